//! Pings a silent client to detect a dead connection.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use softclock::Instant;

use super::flow::Transport;
use crate::net::late_timer::LateTimer;

/// Sends a ping when nothing has arrived for a while.
pub(super) struct KeepAlive {
    pings: PingPong,
    /// The silence after which a ping is sent, and the time that the client has to answer it.
    limit: Duration,
    transport: Rc<Transport>,
    /// The time at which the unanswered ping was sent.
    sent: Option<Instant>,
    /// Whether the answer is late, and the socket was asked for its progress.
    is_suspect: bool,
    /// The bytes that the client had acknowledged when a ping was last late.
    taken: u64,
    begun: Instant,
    timer: LateTimer,
}

impl KeepAlive {
    pub(super) fn new(pings: PingPong, limit: Duration, transport: Rc<Transport>) -> Self {
        Self {
            pings,
            limit,
            transport,
            sent: None,
            is_suspect: false,
            taken: 0,
            begun: softclock::now(),
            timer: LateTimer::default(),
        }
    }

    /// Returns whether the client has acknowledged bytes since the last call, or this server's pacing holds the output
    /// back.
    fn goes_on(&mut self) -> bool {
        let taken = self.transport.acknowledged.get();
        let before = std::mem::replace(&mut self.taken, taken);
        taken > before || self.transport.is_held_back.get()
    }

    /// Ready when the client counts as gone: it is silent, its answer to a ping is late, and it acknowledges no output.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.pings.poll_pong(cx).is_ready() {
                self.sent = None;
                self.is_suspect = false;
            }
            let heard = self.transport.heard.get().unwrap_or(self.begun);
            // Any bytes from the client prove that it is alive. The ping itself may be queued behind much other output,
            // so that its answer can be late without a fault of the client.
            let since = self.sent.map_or(heard, |sent| sent.max(heard));
            let now = softclock::now();
            if self
                .timer
                .poll_until(since + self.limit, now, cx)
                .is_pending()
            {
                return Poll::Pending;
            }
            match (self.sent, self.is_suspect) {
                (Some(_), false) => {
                    // The socket reports during this turn.
                    self.is_suspect = true;
                    self.transport.is_asked.set(true);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                (Some(_), true) if !self.goes_on() => return Poll::Ready(()),
                // Send the first ping, or wait again: the last one may be queued behind output that the client is
                // reading, or behind pacing.
                _ => {
                    self.sent = Some(now);
                    self.is_suspect = false;
                }
            }
            // Fails if a ping is in flight already, or the connection has ended.
            let _ = self.pings.send_ping(Ping::opaque());
        }
    }
}
