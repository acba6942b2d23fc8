//! A TLS connection: the handshake, and then the version of HTTP that it negotiated (ALPN).

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_rustls::TlsAcceptor;
use futures_rustls::server::TlsStream;

use crate::client::members::{Awaits, Membership};
use crate::client::options::ConnectionOptions;
use crate::exchange::http1::Conversation;
use crate::exchange::http2;
use crate::exchange::session::Session;
use crate::net::carrier::{Carrier, Peer, Stream};
use crate::net::late_timer::LateTimer;
use crate::observe::limit::Limit;

/// Answers the requests of a client over TLS until either side closes the connection. Once the membership ends, closes
/// it as soon as it is idle.
pub(crate) async fn serve_tls(
    carrier: Carrier,
    acceptor: TlsAcceptor,
    session: Rc<Session>,
    options: ConnectionOptions,
    mut membership: Membership,
) -> Result<(), Box<dyn std::error::Error>> {
    let peer = session.client.peer;
    // Each phase is boxed, so that the task does not reserve the memory of the largest phase for its whole life.
    let handshake = handshake(carrier, acceptor, peer, &options, &mut membership);
    let tls = match Box::pin(handshake).await {
        Ok(tls) => tls,
        Err(error) => {
            session.exchanges.telemetry.on_handshake_failed();
            return Err(error.into());
        }
    };
    let is_version_2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = Stream::Tls(Box::new(tls));
    if is_version_2 {
        let conversation = http2::converse(stream, session, &options, membership);
        let result = Box::pin(conversation).await;
        if let Err(error) = &result
            && http2::is_flood(error)
        {
            Limit::Http2Flood.reached(peer, "connection ended");
        }
        result?;
    } else {
        let conversation = Conversation::new(stream, session, &options, Some(membership));
        Box::pin(conversation.run()).await?;
    }
    Ok(())
}

/// Performs the TLS handshake. Waits for the first byte for [`Timeouts::first_byte`](crate::Timeouts::first_byte), and
/// from there on for as long as a request's head may take ([`Timeouts::head`](crate::Timeouts::head)).
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
    let slot = membership.slot();
    // A silent connection is like an idle one, and may be closed early to make room for others.
    slot.note(Some((Awaits::Request, softclock::now())));
    within(timeouts.first_byte, membership, heard, on_late).await?;
    // Once the handshake has begun, its bytes are likely in flight: leave it more time.
    slot.note(Some((Awaits::RestOfHead, softclock::now())));
    let mut accept = acceptor.accept(carrier);
    let accepted = |cx: &mut Context<'_>| Pin::new(&mut accept).poll(cx);
    let on_late = || Limit::HandshakeTimeout.reached(peer, "connection closed");
    let accepted = within(timeouts.head, membership, accepted, on_late).await;
    slot.note(None);
    accepted
}

/// Awaits `poll`. Fails with [`TimedOut`](io::ErrorKind::TimedOut) if the membership ends first or `limit` passes;
/// calls `on_late` in the second case.
async fn within<T>(
    limit: Option<Duration>,
    membership: &mut Membership,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    on_late: impl Fn(),
) -> io::Result<T> {
    let limit = limit.map(|limit| softclock::now() + limit);
    let mut timer = LateTimer::default();
    poll_fn(|cx| {
        // Polled before the timeout, so that bytes that have arrived in time count.
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
