//! One connection: HTTP/1.1 by hyper or HTTP/2 by h2, over TCP, TLS or a Unix socket.

use std::future::poll_fn;
use std::io;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_rustls::TlsAcceptor;
use futures_rustls::server::TlsStream;
use softclock::net::TcpStream;

use crate::client::members::{Awaits, Membership};
use crate::exchange::answer::Client;
use crate::exchange::http1::Conversation;
use crate::exchange::http2;
use crate::net::carrier::{Carrier, Peer, Stream};
use crate::net::late_timer::LateTimer;
use crate::observe::limit::Limit;
use crate::server::worker::{Worker, WorkerOptions};
use crate::site::content::Site;
use crate::syntax::head::HeadLimits;

/// How connections are treated.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionOptions {
    /// How long heads may be.
    pub head: HeadLimits,
    /// How long clients may take.
    pub timeouts: Timeouts,
    /// HTTP/2 frames that a client may send beyond those that it needs to receive its responses; 0 is unlimited. With
    /// more the connection is ended.
    ///
    /// Each request counts as one, and so does each field line far beyond [`HeadLimits::fields`]. Each control frame
    /// (SETTINGS, PING, PRIORITY, WINDOW_UPDATE, RST_STREAM, unknown ones) counts as one, and as one more for each KiB.
    /// Responses and their DATA give some back, and so does time: a hundredth of this number each second.
    pub control_frames: u32,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            head: HeadLimits::default(),
            timeouts: Timeouts::default(),
            control_frames: 1_000,
        }
    }
}

/// How long a client may take, in each phase; `None` is for ever.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the start of the connection to its first byte. Then it is closed without a word.
    pub first_byte: Option<Duration>,
    /// From the first byte of a head to its end. Then the answer is 408. The same for the handshake of TLS, from its
    /// first byte; then it is closed.
    pub head: Option<Duration>,
    /// Between bytes of a body that is passed on. Then the answer is 408, if there was none, and the connection is
    /// closed; in HTTP/2 the stream ends. Where a body is not read, as in requests for files, the answer does not wait
    /// for it, and the connection is closed then, or after 2 seconds if that is sooner; in HTTP/2 its stream is reset
    /// after a second.
    pub body: Option<Duration>,
    /// Between requests. Then the connection is closed without a word.
    pub idle: Option<Duration>,
    /// During a response, without any of it being taken. Then the connection is reset; in HTTP/2 the stream, and the
    /// connection when all its streams wait. Time in which the server itself holds back, as it paces, does not count.
    pub send: Option<Duration>,
    /// The least a client must take of a response in bytes a second, averaged over [`rate_window`](Self::rate_window)
    /// of waiting for it; 0 for any. Then the connection is reset.
    ///
    /// In HTTP/2 the waiting streams of a connection share the rate equally, and a stream whose client takes less than
    /// its share is reset.
    pub min_rate: u32,
    /// The least a client must send of a body in bytes a second, averaged over [`rate_window`](Self::rate_window) of
    /// waiting for it; 0 for any. A slower body fails as for [`body`](Self::body).
    pub min_upload_rate: u32,
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
            min_upload_rate: 256,
            rate_window: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    /// Bytes of a response that a client must take in a window.
    pub(crate) fn least_in_window(&self) -> u64 {
        self.in_window(self.min_rate)
    }

    /// Bytes of a body that a client must send in a window.
    pub(crate) fn least_upload_in_window(&self) -> u64 {
        self.in_window(self.min_upload_rate)
    }

    fn in_window(&self, rate: u32) -> u64 {
        let bytes = u128::from(rate) * self.rate_window.as_millis() / 1_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// How long a client may need for so many bytes where it does not show how much of them it has taken: at the least
    /// rate, after a pause. For ever if any rate will do.
    pub(crate) fn for_bytes(&self, bytes: usize) -> Option<Duration> {
        let rate = NonZeroU32::new(self.min_rate)?;
        let pause = self.send.unwrap_or(self.rate_window);
        Some(pause + Duration::from_secs(bytes as u64) / rate.get())
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
    let peer = stream.peer_addr();
    let peer = peer.map_or(Peer::Local, |address| Peer::Internet(address.ip()));
    let worker = Worker::of_site(
        site,
        WorkerOptions {
            connection: *options,
            ..WorkerOptions::default()
        },
    );
    let client = Client::new(worker, peer, false);
    Conversation::new(stream.into(), client, options, None)
        .run()
        .await
}

/// Answers the requests of a client through TLS until either side closes the connection; when idle once the membership
/// ends.
pub(crate) async fn serve_tls(
    carrier: Carrier,
    acceptor: TlsAcceptor,
    client: Rc<Client>,
    options: ConnectionOptions,
    mut membership: Membership,
) -> Result<(), Box<dyn std::error::Error>> {
    let peer = client.peer;
    let handshake = handshake(carrier, acceptor, peer, &options, &mut membership);
    let tls = match Box::pin(handshake).await {
        Ok(tls) => tls,
        Err(error) => {
            client.worker.telemetry.on_handshake_failed();
            return Err(error.into());
        }
    };
    let is_version_2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = Stream::Tls(Box::new(tls));
    if is_version_2 {
        let conversation = http2::converse(stream, client, &options, membership);
        let result = Box::pin(conversation).await;
        if let Err(error) = &result
            && http2::is_flood(error)
        {
            Limit::Http2Flood.reached(peer, "connection ended");
        }
        result?;
    } else {
        let conversation = Conversation::new(stream, client, &options, Some(membership));
        Box::pin(conversation.run()).await?;
    }
    Ok(())
}

/// Agrees on keys and a version of HTTP, in the time that a head may take from the first byte on.
async fn handshake(
    carrier: Carrier,
    acceptor: TlsAcceptor,
    peer: Peer,
    options: &ConnectionOptions,
    membership: &mut Membership,
) -> io::Result<TlsStream<Carrier>> {
    let timeouts = &options.timeouts;
    let heard = |cx: &mut Context<'_>| carrier.poll_heard(cx);
    let on_late = || Limit::FirstByteTimeout.count_one();
    let seat = membership.seat();
    seat.note(Some((Awaits::Request, softclock::now())));
    within(timeouts.first_byte, membership, heard, on_late).await?;
    seat.note(Some((Awaits::RestOfHead, softclock::now())));
    let mut accept = acceptor.accept(carrier);
    let accepted = |cx: &mut Context<'_>| Pin::new(&mut accept).poll(cx);
    let on_late = || Limit::HandshakeTimeout.reached(peer, "connection closed");
    let accepted = within(timeouts.head, membership, accepted, on_late).await;
    seat.note(None);
    accepted
}

/// What `poll` gives, unless the time or the membership ends before. Calls `on_late` at the end of the time.
async fn within<T>(
    limit: Option<Duration>,
    membership: &mut Membership,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    on_late: impl Fn(),
) -> io::Result<T> {
    let limit = limit.map(|limit| softclock::now() + limit);
    let mut timer = LateTimer::default();
    poll_fn(|cx| {
        if let Poll::Ready(result) = poll(cx) {
            return Poll::Ready(result);
        }
        let now = softclock::now();
        let is_over = limit.is_some_and(|limit| timer.poll_until(limit, now, cx).is_ready());
        if is_over {
            on_late();
        }
        if is_over || membership.poll_end(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    })
    .await
}

/// Bounds, with one chunk of a file, the memory of a connection.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
