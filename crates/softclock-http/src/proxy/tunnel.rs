//! What follows on an accepted upgrade: bytes both ways, until both sides have ended or nothing comes for long.

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

/// An upstream that has accepted an upgrade.
pub(crate) struct Tunnel {
    pub(super) upstream: Stream,
    /// What it sent behind its response.
    pub(super) early: Bytes,
    pub(super) idle: Option<Duration>,
    /// How long one side may be silent after the other has ended, if that is less than `idle`.
    pub(super) half_closed: Option<Duration>,
    /// The upstream is in use as long as this is.
    pub(super) attempt: Attempt,
    /// Its connection's, given back behind it.
    pub(super) _permit: UpstreamPermit,
}

impl Tunnel {
    /// Passes bytes on both ways; `early` is what the client has sent already.
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
        client.give_up_unsent();
    }
}

struct TunnelPatience {
    since: Instant,
    timer: LateTimer,
}

impl TunnelPatience {
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

/// One direction.
struct Flow {
    /// Read but not written yet; empty, and without memory, while the reader keeps up.
    pending: Bytes,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The source has ended; its end is to be passed on.
    Ending,
    /// The end is passed on; what is before it may wait for the pace.
    Leaving,
    Ended,
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

    /// Ready when the end was passed on.
    fn poll(
        &mut self,
        source: &mut Stream,
        sink: &mut Stream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            while !self.pending.is_empty() {
                let written = ready!(Pin::new(&mut *sink).poll_write(cx, &self.pending))?;
                self.pending.advance(written);
                *moved = true;
            }
            match self.state {
                State::Open => match self.poll_receive(source, sink, cx)? {
                    Poll::Ready(()) => *moved = true,
                    Poll::Pending => {
                        // Through TLS, what was written may not be on its way yet.
                        ready!(Pin::new(&mut *sink).poll_flush(cx))?;
                        return Poll::Pending;
                    }
                },
                State::Ending => {
                    ready!(Pin::new(&mut *sink).poll_shutdown(cx))?;
                    self.state = State::Leaving;
                }
                State::Leaving => {
                    ready!(sink.poll_sent(cx))?;
                    self.state = State::Ended;
                    *moved = true;
                }
                State::Ended => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Reads, and writes at once what can be.
    fn poll_receive(
        &mut self,
        source: &mut Stream,
        sink: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        with_scratch(|scratch| {
            let received = ready!(source.poll_receive(cx, scratch))?;
            if received == 0 {
                self.state = State::Ending;
                return Poll::Ready(Ok(()));
            }
            let written = match Pin::new(sink).poll_write(cx, &scratch[..received]) {
                Poll::Ready(written) => written?,
                Poll::Pending => 0,
            };
            self.pending = Bytes::copy_from_slice(&scratch[written..received]);
            Poll::Ready(Ok(()))
        })
    }
}
