//! One connection: hyper's HTTP/1.1 over a socket of the runtime.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::Request;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use softclock::hyper::SoftTimer;
use softclock::net::TcpStream;

use crate::members::Membership;
use crate::service::Site;
use crate::stream::PatientStream;

/// How connections are treated.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionOptions {
    /// How long a request's head may take, and how long a connection may idle before the next.
    pub head_timeout: Duration,
    /// How long a client may take nothing of a response before its connection is closed.
    pub send_timeout: Duration,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(30),
            send_timeout: Duration::from_secs(60),
        }
    }
}

/// Answers the requests on `stream` until either side closes it.
///
/// # Errors
/// hyper's: malformed requests, timeouts, lost connections, files that shrink while they are sent.
pub async fn serve_connection(
    stream: TcpStream,
    site: Rc<Site>,
    options: &ConnectionOptions,
) -> Result<(), hyper::Error> {
    serve_member(stream, site, options, None).await
}

/// As [`serve_connection`], and closes when idle once the membership ends.
pub(crate) async fn serve_member(
    stream: TcpStream,
    site: Rc<Site>,
    options: &ConnectionOptions,
    mut membership: Option<Membership>,
) -> Result<(), hyper::Error> {
    let (stream, unanswered) = PatientStream::new(stream, options.send_timeout);
    let service = service_fn(move |request: Request<Incoming>| {
        unanswered.set(!request.body().is_end_stream());
        let site = Rc::clone(&site);
        async move { Ok::<_, std::convert::Infallible>(site.respond(&request).await) }
    });
    let mut connection = pin!(builder(options).serve_connection(stream, service));
    poll_fn(|cx| {
        if let Some(member) = &mut membership
            && let Poll::Ready(()) = member.poll_end(cx)
        {
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    })
    .await
}

fn builder(options: &ConnectionOptions) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(SoftTimer)
        .header_read_timeout(options.head_timeout)
        .max_buf_size(BUFFER_BYTES)
        // A client that has said all it wants may close its side and still get the answer.
        .half_close(true)
        // Copying the body behind the head costs more from a few KB on, and below gains nothing.
        .writev(true);
    builder
}

/// Bounds a request's head and, with one chunk of a file, the memory of a connection.
const BUFFER_BYTES: usize = 64 << 10;
