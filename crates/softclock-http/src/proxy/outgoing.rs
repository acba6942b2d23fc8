//! A request as it is sent to upstreams.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, UPGRADE, VIA};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode, Version};

use super::failure::{Failure, Sent};
use super::headers::{self, Host, Length, Received};
use super::link::Link;
use super::options::ProxyOptions;
use super::upload::Upload;
use super::upload_share::TakePermit;
use super::upstream::Upstream;
use super::url::UpstreamUrl;
use super::via::Via;
use crate::client::Client;
use crate::client::options::ConnectionOptions;
use crate::client::request_body::{RequestBody, awaits_continue};
use crate::net::late_timer::timeout;
use crate::observe::limit::Limit;

/// A request that can be sent several times, to the same upstream or others, until too much of its body is gone.
pub(super) struct Outgoing {
    /// The head of the client's request. The fields of the response replace its fields, to reuse their memory.
    pub(super) parts: Parts,
    length: Length,
    /// The protocol to which the client wants to upgrade.
    pub(super) upgrade: Option<HeaderValue>,
    /// How many times upstreams may forward the request, if the client limits that.
    max_forwards: Option<u64>,
    pub(super) upload: Option<Box<Upload>>,
    /// Whether the client sends the body only after a 100 response, or after a delay (RFC 9110, section 10.1.1).
    awaits_continue: bool,
    /// The time spent waiting for the beginning of the body and for a permit to read the rest. Not the upstream's time.
    pub(super) waited: Duration,
}

/// A failed try.
pub(super) struct Failed {
    pub(super) failure: Failure,
    pub(super) may_retry: bool,
    /// Whether any byte of the request was sent.
    pub(super) has_sent: bool,
}

impl Outgoing {
    /// Prepares a request.
    ///
    /// # Errors
    /// A status and a sentence for the client if the request is not forwarded: no valid Host, CONNECT, a loop, an
    /// ambiguous length, or Max-Forwards makes this proxy the last recipient.
    pub(super) fn of(
        request: Request<RequestBody>,
        client: &Client,
        options: &ConnectionOptions,
        via: &Via,
    ) -> Result<Self, (StatusCode, &'static str)> {
        crate::site::service::check_host(&request)
            .map_err(|_| (StatusCode::BAD_REQUEST, "a request needs one Host field."))?;
        let (parts, body) = request.into_parts();
        if parts.method == Method::CONNECT {
            return Err((
                StatusCode::NOT_IMPLEMENTED,
                "the method CONNECT is not supported.",
            ));
        }
        let max_forwards = match headers::max_forwards(&parts.method, &parts.headers) {
            Some(0) => return Err(last_recipient(&parts.method)),
            most => most.map(|most| most - 1),
        };
        let upload = Upload::of(body, client.peer, options);
        // Most requests have none of these fields, and one pass over the names costs less than a lookup of each.
        let decides = |name: &HeaderName| matches!(*name, CONTENT_LENGTH | UPGRADE | VIA);
        let (length, upgrade) = match upload.is_some() || parts.headers.keys().any(decides) {
            false => (Length::None, None),
            true => {
                if via.is_in(&parts.headers) {
                    Limit::Loop.reached(client.peer, "answered 508");
                    return Err((
                        StatusCode::LOOP_DETECTED,
                        "the request has passed this proxy before.",
                    ));
                }
                let length = headers::length_of(&parts.headers, upload.is_some())
                    .map_err(|_| (StatusCode::BAD_REQUEST, "Content-Length is not one number."))?;
                let upgrade = headers::wanted_upgrade(&parts.headers, parts.version, length);
                (length, upgrade.cloned())
            }
        };
        let awaits_continue = upload.is_some()
            && parts.version >= Version::HTTP_11
            && awaits_continue(&parts.headers);
        Ok(Self {
            upgrade,
            parts,
            length,
            upload,
            max_forwards,
            awaits_continue,
            waited: Duration::ZERO,
        })
    }

    /// Returns whether the client waits for a 100 response that was not sent yet.
    pub(super) fn awaits_continue(&self) -> bool {
        self.awaits_continue
    }

    /// Reads at least `bytes` of the body, if there is one, or all of a shorter one.
    pub(super) async fn take_beginning(&mut self, bytes: usize) -> Result<(), Failure> {
        // The first read makes the connection send the 100 response.
        self.awaits_continue = false;
        let Some(upload) = &mut self.upload else {
            return Ok(());
        };
        let begun = softclock::now();
        let result = upload.take_beginning(bytes).await;
        self.waited += softclock::now().since(begun);
        result
    }

    /// Returns whether the client still sends the body, and the request has no permit for an upload in progress yet.
    pub(super) fn needs_permit(&self) -> bool {
        let upload = self.upload.as_ref();
        upload.is_some_and(|upload| upload.needs_permit())
    }

    /// Waits for a permit for an upload in progress, for at most `limit`.
    pub(super) async fn wait_for_permit(
        &mut self,
        take: TakePermit,
        limit: Option<Duration>,
    ) -> Result<(), Failure> {
        let begun = softclock::now();
        let permit = match limit {
            None => Some(take.await),
            Some(limit) => timeout(limit, take).await.ok(),
        };
        self.waited += softclock::now().since(begun);
        let permit = permit.ok_or(Failure::ManyUploads)?;
        if let Some(upload) = &mut self.upload {
            upload.set_permit(permit);
        }
        Ok(())
    }

    pub(super) fn method(&self) -> &Method {
        &self.parts.method
    }

    /// Returns the path and query of the request.
    pub(super) fn target(&self) -> &str {
        let target = self.parts.uri.path_and_query();
        target.map_or("/", |target| target.as_str())
    }

    /// Begins to send this as the next request on a connection.
    pub(super) fn begin(
        &mut self,
        link: &mut Link,
        upstream: &Upstream,
        client: &Client,
        via: &Via,
        options: &ProxyOptions,
    ) {
        if let Some(upload) = &mut self.upload {
            upload.begin();
        }
        let target = upstream.target();
        let host = Host {
            upstream: target.url.host(),
            is_rewritten: options.rewrite_host,
        };
        let write = |head: &mut Vec<u8>| {
            self.write_line(head, &target.url);
            headers::write_request(head, &self.parts.headers, &self.received(client, via), host);
        };
        link.sending().begin(options.timeouts, self.length, write);
        let is_head = self.parts.method == Method::HEAD;
        link.receiving.begin(options.timeouts, is_head);
    }

    fn write_line(&self, head: &mut Vec<u8>, upstream: &UpstreamUrl) {
        head.extend_from_slice(self.parts.method.as_str().as_bytes());
        head.push(b' ');
        let root = PathAndQuery::from_static("/");
        let asked = self.parts.uri.path_and_query().unwrap_or(&root);
        upstream.write_target(head, asked);
        head.extend_from_slice(b" HTTP/1.1\r\n");
    }

    fn received<'a>(&'a self, client: &'a Client, via: &'a Via) -> Received<'a> {
        let authority = self.parts.uri.authority();
        Received {
            version: self.parts.version,
            via: via.in_request(self.parts.version),
            peer: client.address(),
            secure: client.is_secure,
            authority: authority.map(|authority| authority.as_str()),
            length: self.length,
            upgrade: self.upgrade.as_ref(),
            max_forwards: self.max_forwards,
        }
    }

    /// Returns the result of a try that failed on `link`, or before there was a link.
    pub(super) fn failed(&self, failure: Failure, link: Option<&mut Link>) -> Failed {
        let (any, answered) = link.map_or((false, false), |link| {
            (link.sending().has_sent, link.receiving.has_received)
        });
        let body = self.upload.as_ref().is_some_and(|upload| upload.is_gone());
        let sent = Sent {
            any,
            body,
            answered,
        };
        Failed {
            may_retry: failure.may_retry(self.method(), sent),
            has_sent: any,
            failure,
        }
    }
}

/// Returns the answer to a request that may not be forwarded any further (RFC 9110, section 7.6.2).
fn last_recipient(method: &Method) -> (StatusCode, &'static str) {
    match *method {
        Method::OPTIONS => (
            StatusCode::OK,
            "this proxy is the last that Max-Forwards allows.",
        ),
        // It would show the client what is added to its request, such as credentials of another proxy.
        _ => (
            StatusCode::NOT_IMPLEMENTED,
            "the method TRACE is not supported by this proxy itself.",
        ),
    }
}
