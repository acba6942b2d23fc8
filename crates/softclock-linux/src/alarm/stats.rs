//! What the alarms did, in fixed memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use softclock_core::Histogram;
use softclock_core::histogram::{BUCKETS, bucket_of};

use super::safe::FiredBy;

/// What happened since the alarms were made.
#[derive(Clone, Debug)]
pub struct AlarmStats {
    /// Lateness of the alarm-safe events that trigger states, the backup and deadlines fired, in this order.
    pub fired: [Histogram; FiredBy::ALL.len()],
    /// Lateness of plain events that the backup found overdue (it cannot run them).
    pub plain_overdue: Histogram,
    /// The time from the trigger state before, of any source, to each signal of the backup timer.
    pub backups: Histogram,
    /// The same for each signal of the deadline alarm.
    pub deadline_alarms: Histogram,
    /// Signals that landed inside a section and whose work waited for its end.
    pub deferred: u64,
    /// How often the deadline alarm was set.
    pub arms: u64,
    /// How often it was moved or taken back because a trigger state had won.
    pub pushes: u64,
    /// Expirations of the backup timer that shared a signal with another.
    pub overruns: u64,
    /// The present least distance between deadline alarms, in nanoseconds.
    pub distance_ns: u64,
    /// How much earlier than needed alarms are set, for they land late, in nanoseconds.
    pub early_ns: u64,
    /// The present period of the backup timer, in nanoseconds.
    pub backup_period_ns: u64,
}

/// A [`Histogram`] that a signal handler and the code it interrupts both add to, never at the same time.
#[derive(Debug)]
pub(super) struct HistogramCell {
    sum_ns: Cell<u64>,
    max_ns: Cell<u64>,
    buckets: [Cell<u64>; BUCKETS],
}

/// The counters behind [`AlarmStats`], under the same rule as the histogram; `deferred` is counted in the midst of the
/// owner's work and so atomic.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) fired: [HistogramCell; FiredBy::ALL.len()],
    pub(super) plain_overdue: HistogramCell,
    pub(super) backups: HistogramCell,
    pub(super) deadline_alarms: HistogramCell,
    pub(super) deferred: AtomicU64,
    pub(super) arms: Cell<u64>,
    pub(super) pushes: Cell<u64>,
    pub(super) overruns: Cell<u64>,
}

impl Counters {
    pub(super) const fn new() -> Self {
        Self {
            fired: [const { HistogramCell::new() }; FiredBy::ALL.len()],
            plain_overdue: HistogramCell::new(),
            backups: HistogramCell::new(),
            deadline_alarms: HistogramCell::new(),
            deferred: AtomicU64::new(0),
            arms: Cell::new(0),
            pushes: Cell::new(0),
            overruns: Cell::new(0),
        }
    }

    /// What was counted; the present settings are 0.
    pub(super) fn snapshot(&self) -> AlarmStats {
        AlarmStats {
            fired: FiredBy::ALL.map(|by| self.fired[by as usize].snapshot()),
            plain_overdue: self.plain_overdue.snapshot(),
            backups: self.backups.snapshot(),
            deadline_alarms: self.deadline_alarms.snapshot(),
            deferred: self.deferred.load(Relaxed),
            arms: self.arms.get(),
            pushes: self.pushes.get(),
            overruns: self.overruns.get(),
            distance_ns: 0,
            early_ns: 0,
            backup_period_ns: 0,
        }
    }
}

impl HistogramCell {
    pub(super) const fn new() -> Self {
        Self {
            sum_ns: Cell::new(0),
            max_ns: Cell::new(0),
            buckets: [const { Cell::new(0) }; BUCKETS],
        }
    }

    pub(super) fn record(&self, ns: u64) {
        add(&self.sum_ns, ns);
        self.max_ns.set(self.max_ns.get().max(ns));
        if let Some(bucket) = self.buckets.get(bucket_of(ns)) {
            add(bucket, 1);
        }
    }

    pub(super) fn snapshot(&self) -> Histogram {
        let counts = std::array::from_fn(|i| self.buckets[i].get());
        Histogram::from_parts(counts, self.sum_ns.get(), self.max_ns.get())
    }
}

/// Adds to a counter, which cannot overflow in a program's life; an addition that may panic has no place in a signal.
pub(super) fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get().wrapping_add(n));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_counts_as_a_histogram_does() {
        let cell = HistogramCell::new();
        let mut histogram = Histogram::new();
        for late in [0, 10, 20, 30, 5_000, u64::MAX] {
            cell.record(late);
            histogram.record(late);
        }
        let snapshot = cell.snapshot();
        assert!(snapshot.buckets().eq(histogram.buckets()));
        assert_eq!(snapshot.sum_ns(), histogram.sum_ns());
        assert_eq!(snapshot.max_ns(), histogram.max_ns());
    }
}
