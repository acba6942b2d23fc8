//! One connection: hyper's HTTP/1.1 over a socket of the runtime.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use softclock::net::TcpStream;

use crate::closing;
use crate::head::HeadLimits;
use crate::members::Membership;
use crate::service::Site;
use crate::socket::Socket;
use crate::stream::GuardedStream;

/// How connections are treated.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionOptions {
    /// How long heads may be.
    pub head: HeadLimits,
    /// How long clients may take.
    pub timeouts: Timeouts,
}

/// How long a client may take, in each phase; `None` is for ever.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the start of the connection to its first byte. Then it is closed without a word.
    pub first_byte: Option<Duration>,
    /// From the first byte of a head to its end. Then the answer is 408.
    pub head: Option<Duration>,
    /// Between bytes of a body, while somebody reads it. Then the body fails.
    pub body: Option<Duration>,
    /// Between requests. Then the connection is closed without a word.
    pub idle: Option<Duration>,
    /// During a response, without any of it being taken. Then the connection is reset.
    pub send: Option<Duration>,
    /// The least a client must take of a response in bytes a second, averaged over [`rate_window`](Self::rate_window) of
    /// waiting for it; 0 for any. Then the connection is reset.
    pub min_rate: u32,
    /// See [`min_rate`](Self::min_rate).
    pub rate_window: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first_byte: Some(Duration::from_secs(30)),
            head: Some(Duration::from_secs(10)),
            body: Some(Duration::from_secs(30)),
            idle: Some(Duration::from_secs(60)),
            send: Some(Duration::from_secs(60)),
            min_rate: 256,
            rate_window: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    pub(crate) fn least_in_window(&self) -> u64 {
        let bytes = u128::from(self.min_rate) * self.rate_window.as_millis() / 1_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Answers the requests on `stream` until either side closes it.
///
/// # Errors
/// hyper's: lost connections, timeouts, files that shrink while they are sent. A refused request is none.
pub async fn serve_connection(
    stream: TcpStream,
    site: Rc<Site>,
    options: &ConnectionOptions,
) -> Result<(), hyper::Error> {
    serve_member(stream, site, options, None).await
}

/// As [`serve_connection`], and closes when idle once the membership ends.
pub(crate) async fn serve_member<S: Socket + 'static>(
    socket: S,
    site: Rc<Site>,
    options: &ConnectionOptions,
    mut membership: Option<Membership>,
) -> Result<(), hyper::Error> {
    let seat = membership.as_ref().map(Membership::seat);
    let stream = GuardedStream::new(socket, options, seat);
    let service = service_fn(move |request: Request<Incoming>| {
        let site = Rc::clone(&site);
        async move { Ok::<_, std::convert::Infallible>(site.respond(&request).await) }
    });
    let mut connection = builder(options).serve_connection(stream, service);
    let result = poll_fn(|cx| {
        if let Some(member) = &mut membership
            && let Poll::Ready(()) = member.poll_end(cx)
        {
            Pin::new(&mut connection).graceful_shutdown();
        }
        Pin::new(&mut connection).poll(cx)
    })
    .await;
    closing::close(connection.into_parts().io.into_ending()).await;
    result
}

fn builder(options: &ConnectionOptions) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // Ours is in the stream, and answers.
        .header_read_timeout(None)
        .max_buf_size(BUFFER_BYTES.max(options.head.head_bytes + 1))
        // A client that has said all it wants may close its side and still get the answer.
        .half_close(true)
        // Copying the body behind the head costs more from a few KB on, and below gains nothing.
        .writev(true);
    if options.head.fields > HYPER_FIELDS {
        // Costs an allocation for each head.
        builder.max_headers(options.head.fields);
    }
    builder
}

/// Bounds, with one chunk of a file, the memory of a connection.
const BUFFER_BYTES: usize = 64 << 10;

/// As many header fields as hyper has room for on its stack.
const HYPER_FIELDS: usize = 100;
