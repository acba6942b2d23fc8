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

use super::places::{ObservedStream, Places, Visit};
use super::text::MetricsPage;
use crate::error::StartError;
use crate::net::address::ListenAddress;
use crate::net::carrier::{Carrier, Stream};
use crate::net::late_timer::LateTimer;
use crate::net::listener::{Binder, Bound, Listener, check_distinct};

/// Serves a program's own metrics page at `/metrics` over HTTP, as [`Settings::metrics`](crate::Settings::metrics) does
/// for a [`Server`](crate::Server).
///
/// [`bind`](Self::bind) reports mistakes before the program begins its work; [`start`](Self::start) serves in a
/// runtime. Each address has at most 32 connections: a new one replaces the one whose last progress is oldest. Dropping
/// the endpoint closes its listeners and connections.
///
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
///
/// use softclock_http::{DEFAULT_SOCKET_MODE, MetricType, MetricsEndpoint, MetricsPage};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let endpoint = MetricsEndpoint::bind(&["127.0.0.1:0".parse()?], DEFAULT_SOCKET_MODE)?;
/// println!("metrics at {}", endpoint.local_addresses()[0]);
/// softclock::Runtime::new()?.block_on(async {
///     let packets = Rc::new(Cell::new(0u64));
///     let counted = Rc::clone(&packets);
///     endpoint.start(async move || {
///         let mut page = MetricsPage::new();
///         page.runtimes([&softclock::statistics()]);
///         page.single("example_packets_total", MetricType::Counter, "Packets so far.", counted.get());
///         page
///     })?;
///     // The work of the program:
///     packets.set(packets.get() + 1);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct MetricsEndpoint {
    endpoints: Endpoints,
}

impl MetricsEndpoint {
    /// Binds the addresses, without accepting connections yet. Unix sockets get the permissions `socket_mode`, such as
    /// [`DEFAULT_SOCKET_MODE`](crate::DEFAULT_SOCKET_MODE). Without addresses the endpoint does nothing.
    ///
    /// # Errors
    /// Addresses on which listening fails, that speak TLS, or that occur twice.
    pub fn bind(addresses: &[ListenAddress], socket_mode: u32) -> Result<Self, StartError> {
        check_plain(addresses)?;
        check_distinct(addresses)?;
        let endpoints = Endpoints::default();
        let new = endpoints.bind(addresses, &mut Binder::default(), socket_mode)?;
        endpoints.replace(addresses, new);
        Ok(Self { endpoints })
    }

    /// Returns the addresses with their real ports.
    pub fn local_addresses(&self) -> Vec<ListenAddress> {
        self.endpoints.local_addresses()
    }

    /// Accepts connections in the current runtime, and calls `page` for each request for metrics. Does nothing if the
    /// endpoint has been started already.
    ///
    /// # Errors
    /// [`StartError::Listen`] if the runtime cannot watch a socket, or if there is none on this thread. The other
    /// addresses are served then.
    pub fn start(&self, page: impl AsyncFn() -> MetricsPage + 'static) -> Result<(), StartError> {
        self.endpoints.start(&Own(Rc::new(page)))
    }
}

/// The source of metrics pages.
pub(crate) trait Reporter: Clone + 'static {
    /// Makes the page for a request.
    fn page(&self) -> impl Future<Output = MetricsPage>;
}

/// The page of a program.
struct Own<F>(Rc<F>);

impl<F> Clone for Own<F> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<F: AsyncFn() -> MetricsPage + 'static> Reporter for Own<F> {
    async fn page(&self) -> MetricsPage {
        (self.0)().await
    }
}

/// The listeners of the metrics endpoint. They run in the runtime of the first thread.
#[derive(Default)]
pub(crate) struct Endpoints {
    all: RefCell<Vec<Endpoint>>,
}

pub(crate) struct Endpoint {
    asked: ListenAddress,
    real: Vec<ListenAddress>,
    /// Bound sockets that are not accepting yet.
    bound: Vec<Bound>,
    tasks: Vec<JoinHandle<()>>,
}

impl Endpoints {
    /// Binds the wanted addresses that it does not have.
    pub(crate) fn bind(
        &self,
        wanted: &[ListenAddress],
        binder: &mut Binder,
        mode: u32,
    ) -> Result<Vec<Endpoint>, StartError> {
        let all = self.all.borrow();
        let mut new = Vec::new();
        for address in wanted {
            if all.iter().any(|own| own.asked == *address) {
                continue;
            }
            if binder.divides(&address.place) {
                return Err(StartError::DividedMetrics(address.clone()));
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
        Ok(new)
    }

    /// Adds new endpoints, and closes those that are not wanted any more.
    pub(crate) fn replace(&self, wanted: &[ListenAddress], new: Vec<Endpoint>) {
        let mut all = self.all.borrow_mut();
        all.retain(|own| wanted.contains(&own.asked));
        all.extend(new);
    }

    /// Accepts connections on the listeners prepared before, in the current runtime. Starts all listeners that it can,
    /// and returns the first error.
    pub(crate) fn start(&self, reporter: &impl Reporter) -> Result<(), StartError> {
        let mut result = Ok(());
        for endpoint in self.all.borrow_mut().iter_mut() {
            for bound in std::mem::take(&mut endpoint.bound) {
                match bound.listen(&[]) {
                    Ok(listener) => {
                        let task = accept_loop(listener, reporter.clone());
                        endpoint.tasks.push(softclock::spawn_local(task));
                    }
                    Err(error) => {
                        let error = StartError::Listen(endpoint.asked.clone(), error);
                        result = result.and(Err(error));
                    }
                }
            }
        }
        result
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

/// Refuses addresses with TLS: metrics are served without.
pub(crate) fn check_plain(addresses: &[ListenAddress]) -> Result<(), StartError> {
    let tls = addresses.iter().find(|address| address.tls);
    tls.map_or(Ok(()), |address| {
        Err(StartError::PlainOnly(address.clone()))
    })
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
        (true, true) => (StatusCode::OK, reporter.page().await.into_text()),
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::net::address::Place;

    fn bind(addresses: &[&str]) -> Result<MetricsEndpoint, StartError> {
        let addresses: Vec<_> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        MetricsEndpoint::bind(&addresses, SOCKET_MODE)
    }

    /// The response to this request at the endpoint's first address, read on a thread of its own.
    async fn ask(endpoint: &MetricsEndpoint, request: &'static str) -> io::Result<String> {
        let Place::One(address) = endpoint.local_addresses()[0].place else {
            unreachable!("an IP address was bound");
        };
        softclock::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(request.as_bytes())?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })
        .await
    }

    const SOCKET_MODE: u32 = 0o660;

    const GET: &str = "GET /metrics HTTP/1.0\r\n\r\n";

    #[test]
    fn a_program_serves_its_own_page_until_the_endpoint_is_dropped() {
        let runtime = softclock::Runtime::new().unwrap();
        runtime.block_on(async {
            let endpoint = bind(&["127.0.0.1:0", "127.0.0.1:0"]).unwrap();
            assert_eq!(endpoint.local_addresses().len(), 2);
            let pages = Rc::new(std::cell::Cell::new(0));
            let made = Rc::clone(&pages);
            let page = async move || {
                softclock::yield_now().await;
                made.set(made.get() + 1);
                let mut page = MetricsPage::new();
                page.single("x", super::super::text::MetricType::Gauge, "X.", made.get());
                page
            };
            endpoint.start(page).unwrap();
            for made in 1..=2 {
                let text = ask(&endpoint, GET).await.unwrap();
                let start = text.starts_with("HTTP/1.0 200 OK\r\n");
                assert!(start && text.ends_with(&format!("\nx {made}\n")), "{text}");
            }
            let text = ask(&endpoint, "POST /metrics HTTP/1.0\r\n\r\n").await;
            assert!(text.unwrap().contains(" 405 "));
            assert!(
                ask(&endpoint, "GET / HTTP/1.0\r\n\r\n")
                    .await
                    .unwrap()
                    .contains(" 404 ")
            );
            assert_eq!(pages.get(), 2);

            let addresses = endpoint.local_addresses();
            drop(endpoint);
            // Tasks end at the next turn, and with them their listeners.
            softclock::sleep(Duration::from_millis(1)).await;
            assert_eq!(Rc::strong_count(&pages), 1);
            MetricsEndpoint::bind(&addresses, SOCKET_MODE).expect("the port is free");
        });
    }

    #[test]
    fn without_addresses_the_endpoint_does_nothing() {
        let endpoint = bind(&[]).unwrap();
        softclock::Runtime::new().unwrap().block_on(async {
            endpoint.start(async || MetricsPage::new()).unwrap();
        });
        assert!(endpoint.local_addresses().is_empty());
    }

    #[test]
    fn a_start_outside_a_runtime_is_an_error() {
        let endpoint = bind(&["127.0.0.1:0"]).unwrap();
        let started = endpoint.start(async || MetricsPage::new());
        assert!(
            matches!(started, Err(StartError::Listen(..))),
            "{started:?}"
        );
    }

    #[test]
    fn addresses_with_tls_and_repeated_ones_are_refused() {
        let refused = bind(&["tls:127.0.0.1:0"]);
        assert!(
            matches!(refused, Err(StartError::PlainOnly(_))),
            "{refused:?}"
        );
        let refused = bind(&["127.0.0.1:1", "127.0.0.1:1"]);
        assert!(
            matches!(refused, Err(StartError::Repeated(_))),
            "{refused:?}"
        );
    }
}
