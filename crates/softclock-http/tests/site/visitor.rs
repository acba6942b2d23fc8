//! A site of a temporary directory, and requests to it in the test's runtime.

use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use softclock::Runtime;
use softclock_http::Site;
pub(crate) use softclock_testing::{directory, noise};

/// Sends requests to a site, without a connection.
pub(crate) struct Visitor {
    runtime: Runtime,
    site: Site,
}

/// A response whose body has been read.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Visitor {
    pub(crate) fn of(site: Site) -> Self {
        let runtime = Runtime::new().unwrap();
        Self { runtime, site }
    }

    pub(crate) fn get(&self, target: &str) -> Response {
        self.request("GET", target, &[])
    }

    /// Sends a request with these field lines in addition to Host.
    pub(crate) fn request(&self, method: &str, target: &str, lines: &[&str]) -> Response {
        let mut request = Request::builder().method(method).uri(target);
        for line in ["Host: t"].iter().chain(lines) {
            let (name, value) = line.split_once(": ").unwrap();
            request = request.header(name, value);
        }
        let request = request.body(()).unwrap();
        self.runtime.block_on(async {
            let (head, body) = self.site.respond(&request).await.into_parts();
            Response {
                status: head.status.as_u16(),
                headers: head.headers,
                body: body.collect().await.unwrap().to_bytes().into(),
            }
        })
    }
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name);
        value.map(|value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}
