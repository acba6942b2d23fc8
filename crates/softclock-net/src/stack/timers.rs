//! The timers of the stack: when they are due, and when a thread that rests must wake up for them.

use core::ops::Deref;

use softclock_core::{FireWindow, Instant};

use super::Stack;
use super::discovery::ANNOUNCE_INTERVAL;
use crate::due::{Slack, earliest};

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// The time at which [`on_timer`](Self::on_timer) has work, if any. It may be past.
    pub fn next_timeout(&self) -> Option<Instant> {
        earliest([
            self.neighbors.next_timeout(),
            self.reassembly.next_timeout(),
            self.announce_again,
            self.tcp_next_timeout(),
        ])
    }

    /// The time at which a caller that has nothing else to do must call [`on_timer`](Self::on_timer). It is later than
    /// [`next_timeout`](Self::next_timeout) as far as the protocols allow, so that one wake-up serves the timers of
    /// several connections. It is rough if its timer has slack. A caller that is awake calls `on_timer` from
    /// `next_timeout` on; what is due at `now` is not put off.
    pub fn next_wake(&self, now: Instant) -> Option<FireWindow> {
        let due = self.next_timeout()?;
        if due <= now {
            return Some(FireWindow::from(due));
        }
        let announcement = Slack::LONG.of_time(ANNOUNCE_INTERVAL);
        let rough = earliest([
            (self.neighbors.next_timeout()).map(|due| due + self.neighbors.slack()),
            (self.reassembly.next_timeout()).map(|due| due + self.reassembly.slack()),
            self.announce_again.map(|due| due + announcement),
        ]);
        let rough = rough.map(FireWindow::roughly);
        FireWindow::first(self.tcp_next_wake().into_iter().chain(rough))
    }

    /// Runs every timer that is due at `now`: TCP connections, listeners and TIME-WAIT, reassembly timeouts, ARP and
    /// neighbor solicitations, and the repeated announcement. Takes time in proportion to the timers that are due: at
    /// most one for each connection, neighbor and incomplete packet. The timer of a connection whose owner does not
    /// come also processes the segments that wait in its channel.
    pub fn on_timer(&mut self, now: Instant) {
        self.tcp_at(now);
        self.expire_fragments(now);
        self.tcp_on_timer(now);
        self.neighbors_on_timer(now);
        self.announcement_on_timer(now);
    }
}
