//! `GET /metrics`, on separate listeners: metrics are internal and should not be served to the site's visitors.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use softclock::JoinHandle;
use softclock::hyper::SoftTimer;

use super::families::page;
use super::places::{ObservedStream, Places, Visit};
use crate::error::StartError;
use crate::net::address::ListenAddress;
use crate::net::carrier::{Carrier, Stream};
use crate::net::late_timer::LateTimer;
use crate::net::listener::{Binder, Bound, Listener};
use crate::observe::access_log::AccessLog;
use crate::observe::telemetry::Report;

/// The source of the data on metrics pages.
pub(crate) trait Reporter: Clone + 'static {
    /// Returns the reports of all threads that answer in time.
    fn reports(&self) -> impl Future<Output = Vec<Report>>;

    /// Returns whether responses are logged to an access log.
    fn has_access_log(&self) -> bool;
}

/// The listeners of the metrics endpoint. They run in the runtime of the first thread.
#[derive(Default)]
pub(crate) struct Endpoints {
    all: RefCell<Vec<Endpoint>>,
}

struct Endpoint {
    asked: ListenAddress,
    real: Vec<ListenAddress>,
    /// Bound sockets that are not accepting yet.
    bound: Vec<Bound>,
    tasks: Vec<JoinHandle<()>>,
}

impl Endpoints {
    /// Binds new addresses and closes those that are no longer wanted. After an error nothing has changed.
    pub(crate) fn prepare(
        &self,
        wanted: &[ListenAddress],
        binder: &mut Binder,
        mode: u32,
    ) -> Result<(), StartError> {
        let mut all = self.all.borrow_mut();
        let mut new = Vec::new();
        for address in wanted {
            if all.iter().any(|own| own.asked == *address) {
                continue;
            }
            let bound = binder.bind(address, mode, 1)?.remove(0);
            let real = bound.iter().map(Bound::local_address);
            let real = real.collect::<io::Result<_>>();
            new.push(Endpoint {
                real: real.map_err(|error| StartError::Listen(address.clone(), error))?,
                asked: address.clone(),
                bound,
                tasks: Vec::new(),
            });
        }
        // All binds have succeeded, so the change cannot fail half-way.
        all.retain(|own| wanted.contains(&own.asked));
        all.append(&mut new);
        Ok(())
    }

    /// Accepts connections on the listeners prepared before, in the current runtime.
    pub(crate) fn start(&self, reporter: &impl Reporter) {
        for endpoint in self.all.borrow_mut().iter_mut() {
            for bound in std::mem::take(&mut endpoint.bound) {
                match bound.listen() {
                    Ok(listener) => {
                        let task = accept_loop(listener, reporter.clone());
                        endpoint.tasks.push(softclock::spawn_local(task));
                    }
                    Err(error) => {
                        tracing::error!(address = %endpoint.asked, %error, "cannot listen")
                    }
                }
            }
        }
    }

    /// Closes all listeners and their connections.
    pub(crate) fn close(&self) {
        self.all.take();
    }

    pub(crate) fn local_addresses(&self) -> Vec<ListenAddress> {
        let all = self.all.borrow();
        all.iter()
            .flat_map(|endpoint| endpoint.real.clone())
            .collect()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.local_addresses()).finish()
    }
}

async fn accept_loop(listener: Listener, reporter: impl Reporter) {
    let mut places = Places::default();
    loop {
        match listener.accept().await {
            Ok((carrier, peer)) => {
                let made_room = places.make_room();
                let visit = Visit::new(peer);
                let serve = serve(carrier, reporter.clone(), Rc::clone(&visit));
                places.take(visit, softclock::spawn_local(serve));
                if made_room {
                    // In a flood, each connection gets a turn before the next may replace it.
                    softclock::yield_now().await;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "metrics: cannot accept");
                // The cause, such as a lack of descriptors, may last; trying again at once would spin.
                softclock::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(carrier: Carrier, reporter: impl Reporter, visit: Rc<Visit>) {
    if let Carrier::Tcp(stream) = &carrier {
        // Otherwise the kernel buffers dozens of pages for a client that reads none.
        let _ = stream.set_notsent_lowat(UNSENT_BYTES);
    }
    let stream = ObservedStream::new(Stream::Plain(carrier), Rc::clone(&visit));
    let service = service_fn(|request: Request<Incoming>| {
        let (reporter, visit) = (&reporter, &visit);
        visit.begin_answer();
        async move {
            let response = respond(reporter, &request).await;
            visit.end_answer();
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(SoftTimer).header_read_timeout(TIMEOUT);
    let mut connection = pin!(builder.serve_connection(stream, service));
    let mut timer = LateTimer::default();
    // Connections are not drained when the server ends: this task ends with its runtime.
    poll_fn(|cx| {
        if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
            if let Err(error) = result {
                tracing::debug!(%error, "metrics: connection ended");
            }
            return Poll::Ready(());
        }
        // Stricter than hyper's timeout for the first head, and the only limit on the time for reading a response.
        visit.poll_late(&mut timer, cx).map(|()| visit.on_late())
    })
    .await;
}

async fn respond(reporter: &impl Reporter, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let known = matches!(request.uri().path(), "/metrics" | "/metrics/");
    let allowed = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, text) = match (known, allowed) {
        (true, true) => {
            let reports = reporter.reports().await;
            let log = reporter.has_access_log().then(AccessLog::counts);
            (StatusCode::OK, page(&reports, log))
        }
        (true, false) => (StatusCode::METHOD_NOT_ALLOWED, "GET only\n".into()),
        (false, _) => (StatusCode::NOT_FOUND, "metrics are at /metrics\n".into()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// About the size of a page, in bytes.
const UNSENT_BYTES: u32 = 64 << 10;

const CONTENT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The longest wait for a later request, so that a scraper with an interval of a minute keeps its connection.
const TIMEOUT: Duration = Duration::from_secs(90);

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
