//! What paced streams of a runtime did, and the time between its trigger states.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use softclock_core::{Histogram, Instant};

use crate::runtime::inner::Inner;

/// What the paced streams and datagrams of a runtime did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PacingStatistics {
    /// Trains begun.
    pub trains: u64,
    /// Pieces given to the kernel.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Times the kernel had no room for a piece.
    pub blocked: u64,
    /// Bytes accepted from writers that the kernel has not got yet.
    pub pending_bytes: u64,
}

#[derive(Default)]
pub(crate) struct PacingCounts {
    statistics: Cell<PacingStatistics>,
    /// Streams that wait for an event.
    waiting: Cell<u32>,
    interval: Cell<Duration>,
    next_look: Cell<Option<Instant>>,
    /// All intervals until the last look.
    looked_at: RefCell<Option<Box<Histogram>>>,
}

impl PacingCounts {
    pub(crate) fn statistics(&self) -> PacingStatistics {
        self.statistics.get()
    }

    pub(crate) fn pending(&self) -> u64 {
        self.statistics.get().pending_bytes
    }

    pub(crate) fn on_piece(&self, bytes: usize, begins_train: bool) {
        self.change(|counts| {
            counts.trains += u64::from(begins_train);
            counts.pieces += 1;
            counts.bytes += bytes as u64;
        });
    }

    pub(crate) fn on_blocked(&self) {
        self.change(|counts| counts.blocked += 1);
    }

    pub(crate) fn on_accepted(&self, bytes: usize) {
        self.change(|counts| counts.pending_bytes += bytes as u64);
    }

    pub(crate) fn on_gone(&self, bytes: usize) {
        self.change(|counts| counts.pending_bytes -= bytes as u64);
    }

    pub(crate) fn on_wait(&self) {
        self.waiting.set(self.waiting.get() + 1);
    }

    pub(crate) fn on_waited(&self) {
        self.waiting.set(self.waiting.get() - 1);
    }

    fn change(&self, change: impl FnOnce(&mut PacingStatistics)) {
        let mut statistics = self.statistics.get();
        change(&mut statistics);
        self.statistics.set(statistics);
    }

    /// The time from one turn of a stream to its next if each trigger state served one: the median time between trigger
    /// states of late, times the streams that wait. Looked up ten times a second at most, as that takes some
    /// microseconds; in between it costs a comparison.
    pub(crate) fn trigger_interval(&self, runtime: &Inner, now: Instant) -> Duration {
        if self.next_look.get().is_none_or(|next| next <= now) {
            self.next_look.set(Some(now + LOOK_EVERY));
            let all = runtime.timers.borrow_mut().triggers().intervals();
            self.look(all);
        }
        self.interval.get()
    }

    fn look(&self, all: Histogram) {
        let mut looked_at = self.looked_at.borrow_mut();
        let recent = match &*looked_at {
            Some(before) => all.since(before),
            None => all.clone(),
        };
        if recent.count() >= FEW {
            let median = Duration::from_nanos(recent.quantile_ns(0.5));
            self.interval.set(median * self.waiting.get().max(1));
            *looked_at = Some(Box::new(all));
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Of fewer intervals the median means nothing.
const FEW: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_late() {
        let counts = PacingCounts::default();
        let mut all = Histogram::new();
        (0..FEW - 1).for_each(|_| all.record(1_000));
        counts.look(all.clone());
        assert_eq!(counts.interval.get(), Duration::ZERO, "too few");
        all.record(1_000);
        counts.look(all.clone());
        let early = counts.interval.get();
        (0..FEW).for_each(|_| all.record(50_000));
        counts.look(all.clone());
        let late = counts.interval.get();
        assert!(late > early * 10);
        (0..3).for_each(|_| counts.on_wait());
        counts.on_waited();
        (0..2 * FEW).for_each(|_| all.record(50_000));
        counts.look(all);
        assert_eq!(counts.interval.get(), 2 * late);
    }
}
