//! A tunnel after an accepted upgrade: copies bytes in both directions until both sides have ended, or until a timeout
//! without traffic.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::rt::Write;
use softclock::Instant;

use super::budget::UpstreamPermit;
use super::upstream::Attempt;
use crate::net::buffers::with_scratch;
use crate::net::carrier::Stream;
use crate::net::late_timer::LateTimer;
use crate::net::socket::Socket;
use crate::observe::limit::Limit;

/// The upstream's end of a tunnel.
pub(crate) struct Tunnel {
    pub(super) upstream: Stream,
    /// The bytes that the upstream sent after its response.
    pub(super) early: Bytes,
    /// The longest time without traffic.
    pub(super) idle: Option<Duration>,
    /// The longest silence of one side after the other has ended, if that is less than `idle`.
    pub(super) half_closed: Option<Duration>,
    /// Counts the upstream as in use until the end of the tunnel.
    pub(super) attempt: Attempt,
    /// The permit of the connection, freed after the connection is closed.
    pub(super) _permit: UpstreamPermit,
}

impl Tunnel {
    /// Copies bytes between the upstream and `client` until the tunnel ends; `early` are bytes that the client has sent
    /// already.
    pub(crate) async fn run(self, mut client: Stream, early: Bytes) {
        let mut upstream = self.upstream;
        let mut up = Flow::starting_with(early);
        let mut down = Flow::starting_with(self.early);
        let mut patience = TunnelPatience {
            since: softclock::now(),
            timer: LateTimer::default(),
        };
        let result = poll_fn(|cx| {
            let mut moved = false;
            let up_ended = up.poll(&mut client, &mut upstream, &mut moved, cx)?;
            let down_ended = down.poll(&mut upstream, &mut client, &mut moved, cx)?;
            if up_ended.is_ready() && down_ended.is_ready() {
                return Poll::Ready(Ok(()));
            }
            // After the end of one side, the other has a shorter timeout, unless bytes wait to be written to it.
            let is_half_closed = up.leaves_only(&down) || down.leaves_only(&up);
            let (limit, name) = match self.half_closed {
                Some(limit) if is_half_closed && self.idle.is_none_or(|idle| limit < idle) => {
                    (Some(limit), Limit::HalfClosedTimeout)
                }
                _ => (self.idle, Limit::TunnelTimeout),
            };
            ready!(patience.poll_over(limit, moved, cx));
            name.count_one();
            Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut)))
        })
        .await;
        if let Err(error) = result {
            tracing::debug!(upstream = %self.attempt.upstream, %error, "tunnel ended");
        }
        // Bytes that wait for pacing would otherwise keep the descriptor open, while no connection counts it.
        client.give_up_unsent();
    }
}

/// The timeout without traffic.
struct TunnelPatience {
    since: Instant,
    timer: LateTimer,
}

impl TunnelPatience {
    /// Ready when no bytes have moved for `limit`; `moved` restarts the time.
    fn poll_over(
        &mut self,
        limit: Option<Duration>,
        moved: bool,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let Some(limit) = limit else {
            return Poll::Pending;
        };
        let now = softclock::now();
        if moved {
            self.since = now;
        }
        self.timer.poll_until(self.since + limit, now, cx)
    }
}

/// One direction of a tunnel.
struct Flow {
    /// Bytes that were read but not written yet. Empty, and without memory, while the sink keeps up.
    pending: Bytes,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The source has ended. The sink must be shut down.
    Ending,
    /// The sink is shut down. Bytes before the end may still wait for pacing.
    Leaving,
    Ended,
}

/// The side of a direction that has failed.
enum Broken {
    Source(io::Error),
    Sink(io::Error),
}

impl Flow {
    fn starting_with(pending: Bytes) -> Self {
        Self {
            pending,
            state: State::Open,
        }
    }

    /// Returns whether this direction has ended, and nothing of the other one waits to be written.
    fn leaves_only(&self, other: &Self) -> bool {
        self.state == State::Ended && other.state == State::Open && other.pending.is_empty()
    }

    /// Copies bytes until the source has no more. Ready when the end of the source has been passed to the sink, or the
    /// sink takes no more. Sets `moved` if bytes were copied.
    ///
    /// # Errors
    /// Those of the source.
    fn poll(
        &mut self,
        source: &mut Stream,
        sink: &mut Stream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(self.poll_copy(source, sink, moved, cx)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(Broken::Source(error)) => Poll::Ready(Err(error)),
            // The bytes that this side has sent before are still to be read, in the other direction.
            Err(Broken::Sink(error)) => {
                tracing::debug!(%error, "a side of a tunnel takes no more");
                self.pending.clear();
                self.state = State::Ended;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn poll_copy(
        &mut self,
        source: &mut Stream,
        sink: &mut Stream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        loop {
            while !self.pending.is_empty() {
                let written = Pin::new(&mut *sink).poll_write(cx, &self.pending);
                let written = ready!(written).map_err(Broken::Sink)?;
                self.pending.advance(written);
                *moved = true;
            }
            match self.state {
                State::Open => match self.poll_receive(source, sink, cx)? {
                    Poll::Ready(()) => *moved = true,
                    Poll::Pending => {
                        // With TLS, written bytes may still be buffered.
                        ready!(Pin::new(&mut *sink).poll_flush(cx)).map_err(Broken::Sink)?;
                        return Poll::Pending;
                    }
                },
                State::Ending => {
                    ready!(Pin::new(&mut *sink).poll_shutdown(cx)).map_err(Broken::Sink)?;
                    self.state = State::Leaving;
                }
                State::Leaving => {
                    ready!(sink.poll_sent(cx)).map_err(Broken::Sink)?;
                    self.state = State::Ended;
                    *moved = true;
                }
                State::Ended => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Reads bytes and writes as many as possible. Only the rest is copied into memory.
    fn poll_receive(
        &mut self,
        source: &mut Stream,
        sink: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        with_scratch(|scratch| {
            let received = ready!(source.poll_receive(cx, scratch)).map_err(Broken::Source)?;
            if received == 0 {
                self.state = State::Ending;
                return Poll::Ready(Ok(()));
            }
            let written = match Pin::new(sink).poll_write(cx, &scratch[..received]) {
                Poll::Ready(written) => written.map_err(Broken::Sink)?,
                Poll::Pending => 0,
            };
            self.pending = Bytes::copy_from_slice(&scratch[written..received]);
            Poll::Ready(Ok(()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use softclock::net::TcpStream;

    use super::super::budget::Budget;
    use super::super::target::Target;
    use super::super::upstream::Upstream;
    use super::*;

    /// Returns an end of a new connection for a tunnel, and the other end.
    async fn connection() -> (Stream, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        (stream.into(), listener.accept().unwrap().0)
    }

    async fn tunnel_to(upstream: Stream) -> Tunnel {
        let budget = Budget::new(1);
        let target = Target::new("http://127.0.0.1:1".parse().unwrap()).unwrap();
        let attempt = Attempt::begin(&Upstream::new(target, budget.clone()), 0);
        Tunnel {
            upstream,
            early: Bytes::new(),
            idle: None,
            half_closed: None,
            attempt: attempt.unwrap(),
            _permit: budget.take().await.unwrap(),
        }
    }

    /// Makes `stream` fail the next write: its peer sends `last` and closes the connection, and then refuses a byte.
    async fn break_off(stream: &mut Stream, mut peer: std::net::TcpStream, last: &[u8]) {
        peer.write_all(last).unwrap();
        drop(peer);
        let written = poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, b"x")).await;
        assert_eq!(written.unwrap(), 1);
        poll_fn(|cx| stream.poll_lost(cx)).await;
    }

    #[test]
    fn last_bytes_arrive_though_their_sender_takes_no_more() {
        softclock::Runtime::new().unwrap().block_on(async {
            let (mut upstream, peer) = connection().await;
            break_off(&mut upstream, peer, b"last").await;
            let (client, mut other) = connection().await;
            other.write_all(b"more").unwrap();
            let tunnel = tunnel_to(upstream).await;
            tunnel.run(client, Bytes::from_static(b"early")).await;
            let mut received = [0; 4];
            other.read_exact(&mut received).unwrap();
            assert_eq!(&received, b"last");

            let (mut client, peer) = connection().await;
            break_off(&mut client, peer, b"last").await;
            let (upstream, mut other) = connection().await;
            other.write_all(b"more").unwrap();
            tunnel_to(upstream).await.run(client, Bytes::new()).await;
            other.read_exact(&mut received).unwrap();
            assert_eq!(&received, b"last");
        });
    }
}
