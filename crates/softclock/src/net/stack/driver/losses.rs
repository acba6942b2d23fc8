//! The frames that the driver knows to be lost, and the report of all counters.

use std::cell::Cell;
use std::time::Duration;

use softclock_core::{Clock, Instant};

use super::Driver;
use crate::net::stack::channels::{COMMON, Channels};
use crate::net::stack::{StackReport, ThreadFrames};

/// The frames that were lost before the stack saw them, or that the device refused.
#[derive(Default)]
pub(super) struct Losses {
    lost: Cell<u64>,
    refused: Cell<u64>,
    /// The frames of the common channels that the program had discarded at the last look.
    pub(super) discarded: Cell<[u64; COMMON]>,
    /// When a thread without the device may look at the losses of its queues again.
    next_look: Cell<Instant>,
    /// Whether frames have arrived since it has looked.
    awaits_look: Cell<bool>,
    /// When to look whether frames that wait in rings are lost; `None` while none wait.
    pub(super) ring_look: Cell<Option<Instant>>,
}

impl Losses {
    /// Adds lost frames, and returns all so far.
    pub(super) fn add_lost(&self, more: u64) -> u64 {
        self.lost.set(self.lost.get() + more);
        self.lost.get()
    }

    /// Adds frames that the device refused, and returns all so far.
    pub(super) fn add_refused(&self, more: u64) -> u64 {
        self.refused.set(self.refused.get() + more);
        self.refused.get()
    }

    /// Whether a thread without the device looks at the losses of its queues in this turn, in which frames have arrived
    /// or not: at most once in a time, and once after the last frames.
    pub(super) fn is_look_due(&self, now: Instant, has_received: bool) -> bool {
        let awaits_look = has_received || self.awaits_look.get();
        let is_due = awaits_look && now >= self.next_look.get();
        if is_due {
            self.next_look.set(now + LOOK_PAUSE);
        }
        self.awaits_look.set(awaits_look && !is_due);
        is_due
    }

    /// The time of the next look, if frames have arrived since the last one.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.awaits_look.get().then(|| self.next_look.get())
    }
}

impl Driver {
    pub(in super::super) fn report(&self) -> StackReport {
        let mut refused = self.losses.add_refused(self.interface.take_refused());
        self.count_discards();
        self.look_at_rings();
        let more = self.interface.take_lost().ok();
        let mut lost = more.map(|more| self.losses.add_lost(more));
        self.count_members();
        let mut signalling = self.signalling.report(self.interface.runtime().clock.now());
        let stack = self.stack.borrow();
        let (mut counts, mut drops) = (stack.counts().clone(), stack.drops().clone());
        let mut tcp = stack.tcp_report();
        let own = ThreadFrames {
            received: counts.frames_received,
            sent: counts.frames_sent,
        };
        let mut threads = vec![own];
        if let Some(shared) = self.shared.get() {
            let (lanes, of_threads) = shared.lanes().counts(own);
            threads = of_threads;
            refused += lanes.refused;
            counts.frames_sent += lanes.sent;
            lost = lost.map(|lost| lost + lanes.lost);
            counts.add_received(&lanes.received);
            drops.add(&lanes.received.drops);
            tcp.add(&lanes.tcp);
            signalling.counts.add(&lanes.signalling);
            signalling.soft_polling += lanes.soft_polling;
        }
        StackReport {
            counts,
            drops,
            lost,
            refused,
            capture: self.capture.as_ref().map(|capture| capture.report()),
            signalling: Some(signalling),
            tcp,
            threads,
            rings: (self.interface.channels()).map_or_else(Vec::new, Channels::report),
        }
    }
}

/// The least time between two looks at the losses of the queues.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_looked_at_once_in_a_pause_and_after_the_last_frames() {
        let losses = Losses::default();
        let begin = Instant::from_ns(5_000_000_000);
        let after = |pauses| begin + LOOK_PAUSE * pauses;
        assert!(!losses.is_look_due(begin, false));
        assert!(losses.is_look_due(begin, true));
        assert_eq!(losses.next_look(), None);
        let soon = begin + LOOK_PAUSE / 2;
        assert!(!losses.is_look_due(soon, true));
        assert_eq!(losses.next_look(), Some(after(1)));
        assert!(!losses.is_look_due(soon, false));
        assert!(losses.is_look_due(after(1), false));
        assert_eq!(losses.next_look(), None);
        assert!(!losses.is_look_due(after(3), false));
        assert!(losses.is_look_due(after(3), true));
    }
}
