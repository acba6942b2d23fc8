//! One connection: hyper's HTTP/1.1 or HTTP/2 over a stream of the runtime.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_rustls::TlsAcceptor;
use http::Request;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use softclock::hyper::{LocalExecutor, SoftTimer};
use softclock::net::TcpStream;
use softclock::{Sleep, sleep};

use crate::exchange::{Client, answer};
use crate::members::Membership;
use crate::service::Site;
use crate::socket::{Peer, Socket, Stream};
use crate::stream::PatientStream;
use crate::worker::{Worker, WorkerOptions};

/// How connections are treated.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionOptions {
    /// How long a TLS handshake or a request's head may take, and how long a connection may idle before the next.
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
    let peer = stream.peer_addr();
    let peer = peer.map_or(Peer::Local, |address| Peer::Internet(address.ip()));
    let worker = Worker::of_site(
        site,
        WorkerOptions {
            connection: *options,
            ..WorkerOptions::default()
        },
    );
    http1(stream.into(), Client::new(worker, peer), options, None).await
}

/// Answers the requests of a client, through TLS if there is an acceptor, until either side closes the connection; soon
/// after the membership has ended.
pub(crate) async fn serve_member(
    socket: Socket,
    acceptor: Option<TlsAcceptor>,
    client: Rc<Client>,
    mut membership: Membership,
) -> Result<(), Box<dyn std::error::Error>> {
    let options = client.worker.live().options.connection;
    let Some(acceptor) = acceptor else {
        return Ok(http1(Stream::Plain(socket), client, &options, Some(membership)).await?);
    };
    let tls = match handshake(socket, acceptor, &options, &mut membership).await {
        Ok(tls) => tls,
        Err(error) => {
            client.worker.telemetry.on_handshake_failed();
            return Err(error.into());
        }
    };
    let version2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = Stream::Tls(Box::new(tls));
    if version2 {
        http2(stream, client, &options, membership).await?;
    } else {
        http1(stream, client, &options, Some(membership)).await?;
    }
    Ok(())
}

async fn handshake(
    socket: Socket,
    acceptor: TlsAcceptor,
    options: &ConnectionOptions,
    membership: &mut Membership,
) -> io::Result<futures_rustls::server::TlsStream<Socket>> {
    let mut accept = acceptor.accept(socket);
    let mut limit = sleep(options.head_timeout);
    poll_fn(|cx| {
        if let Poll::Ready(result) = Pin::new(&mut accept).poll(cx) {
            return Poll::Ready(result);
        }
        if membership.poll_end(cx).is_ready() || Pin::new(&mut limit).poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    })
    .await
}

async fn http1(
    stream: Stream,
    client: Rc<Client>,
    options: &ConnectionOptions,
    mut membership: Option<Membership>,
) -> Result<(), hyper::Error> {
    let (stream, unanswered) = PatientStream::new(stream, options.send_timeout);
    let service = service_fn(move |request: Request<Incoming>| {
        unanswered.set(!request.body().is_end_stream());
        let client = Rc::clone(&client);
        async move { Ok::<_, Infallible>(answer(client, request).await) }
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

async fn http2(
    stream: Stream,
    client: Rc<Client>,
    options: &ConnectionOptions,
    mut membership: Membership,
) -> Result<(), hyper::Error> {
    let (stream, _) = PatientStream::new(stream, options.send_timeout);
    let mut idle = Idle::new(Rc::clone(&client), options.head_timeout);
    let service = service_fn(move |request: Request<Incoming>| {
        let client = Rc::clone(&client);
        async move { Ok::<_, Infallible>(answer(client, request).await) }
    });
    let mut builder = http2::Builder::new(LocalExecutor);
    builder
        .timer(SoftTimer)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(BUFFER_BYTES as u32)
        .max_send_buf_size(BUFFER_BYTES)
        // Finds out whether the client is still there while it takes nothing.
        .keep_alive_interval(options.head_timeout)
        .keep_alive_timeout(options.send_timeout);
    let mut connection = pin!(builder.serve_connection(stream, service));
    poll_fn(|cx| {
        if membership.poll_end(cx).is_ready() || idle.poll_over(cx).is_ready() {
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    })
    .await
}

/// Ends a connection on which nothing was asked for too long; hyper does so for HTTP/1 only.
struct Idle {
    client: Rc<Client>,
    limit: Duration,
    end: Option<Sleep>,
    over: bool,
}

impl Idle {
    fn new(client: Rc<Client>, limit: Duration) -> Self {
        Self {
            client,
            limit,
            end: None,
            over: false,
        }
    }

    /// Ready once, when the time is up.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.over {
            return Poll::Pending;
        }
        let end = self.end.get_or_insert_with(|| sleep(self.limit));
        if Pin::new(&mut *end).poll(cx).is_pending() {
            return Poll::Pending;
        }
        if self.client.take_activity() {
            end.reset(softclock::now() + self.limit);
            return Pin::new(end).poll(cx);
        }
        self.over = true;
        Poll::Ready(())
    }
}

/// Bounds a request's head and, with one chunk of a file, the memory of a connection.
const BUFFER_BYTES: usize = 64 << 10;

/// Requests at a time on one HTTP/2 connection, as in nginx.
const STREAMS: u32 = 128;
