//! Pings that find out whether a silent client is still there.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use softclock::Instant;

use super::flow::Line;
use crate::late_timer::LateTimer;

/// Sends a ping when nothing has arrived for a while.
pub(super) struct KeepAlive {
    pings: PingPong,
    /// How long nothing may arrive before a ping, and again before its answer.
    limit: Duration,
    line: Rc<Line>,
    /// Since when the answer to a ping is waited for.
    sent: Option<Instant>,
    /// Whether the answer is late, so that the socket was asked whether the ping can have left.
    is_suspect: bool,
    /// How much had been acknowledged when a ping was last late.
    taken: u64,
    begun: Instant,
    timer: LateTimer,
}

impl KeepAlive {
    pub(super) fn new(pings: PingPong, limit: Duration, line: Rc<Line>) -> Self {
        Self {
            pings,
            limit,
            line,
            sent: None,
            is_suspect: false,
            taken: 0,
            begun: softclock::now(),
            timer: LateTimer::default(),
        }
    }

    /// Whether the client has taken something since this was last asked, or waits for us.
    fn goes_on(&mut self) -> bool {
        let taken = self.line.acknowledged.get();
        let before = std::mem::replace(&mut self.taken, taken);
        taken > before || self.line.is_held_back.get()
    }

    /// Ready when the client is taken for gone.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.pings.poll_pong(cx).is_ready() {
                self.sent = None;
                self.is_suspect = false;
            }
            let heard = self.line.heard.get().unwrap_or(self.begun);
            // What arrives shows as much as an answer, which waits behind all that is to be written.
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
                    // The socket is asked in this turn.
                    self.is_suspect = true;
                    self.line.is_asked.set(true);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                (Some(_), true) if !self.goes_on() => return Poll::Ready(()),
                // The ping may wait behind what the client takes, or for our own pace.
                _ => {
                    self.sent = Some(now);
                    self.is_suspect = false;
                }
            }
            // Fails where a ping is underway, or the connection at its end.
            let _ = self.pings.send_ping(Ping::opaque());
        }
    }
}
