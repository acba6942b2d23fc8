//! Statistics of the alarms, in fixed memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use softclock_core::histogram::{BUCKETS, bucket_of};
use softclock_core::{Histogram, TriggerState, TriggerStatistics};

use super::safe::FiredBy;

/// Statistics of a thread's alarms since they were created; see [`Alarms::stats`](super::Alarms::stats).
#[derive(Clone, Debug)]
pub struct AlarmStats {
    /// The lateness of alarm-safe events, by the check that fired them, in the order of [`FiredBy::ALL`].
    pub fired: [Histogram; FiredBy::ALL.len()],
    /// The lateness of the earliest plain event, at each backup that found it overdue. The backup cannot fire it.
    pub plain_overdue: Histogram,
    /// The time from the previous trigger state or alarm to each alarm of the backup timer.
    pub backups: Histogram,
    /// The time from the previous trigger state or alarm to each deadline alarm.
    pub deadline_alarms: Histogram,
    /// The number of signals that landed inside a section, so that their work waited for its end.
    pub deferred: u64,
    /// The number of times that the deadline alarm was set, or moved to an earlier time.
    pub arms: u64,
    /// The number of times that the deadline alarm was moved to a later time or cancelled, because a trigger state had
    /// come first.
    pub pushes: u64,
    /// The number of expirations of the backup timer that shared a signal with an earlier one.
    pub overruns: u64,
    /// The current least distance between deadline alarms, in nanoseconds.
    pub distance_ns: u64,
    /// The time by which alarms are set early to make up for the delay of signals, in nanoseconds.
    pub early_ns: u64,
    /// The current period of the backup timer, in nanoseconds; [`u64::MAX`] if it is off.
    pub backup_period_ns: u64,
}

impl AlarmStats {
    /// Adds the signals and the handlers that they fired to the trigger states that the thread has counted, which do
    /// not include them.
    pub fn add_to(&self, triggers: &mut TriggerStatistics) {
        let [_, by_backup, by_deadline] = &self.fired;
        triggers.add(TriggerState::Backup, &self.backups, by_backup);
        triggers.add(TriggerState::Deadline, &self.deadline_alarms, by_deadline);
    }
}

/// A [`Histogram`] to which both a signal handler and the code that it interrupts add, never at the same time.
#[derive(Debug)]
pub(super) struct HistogramCell {
    sum_ns: Cell<u64>,
    max_ns: Cell<u64>,
    buckets: [Cell<u64>; BUCKETS],
}

/// The counters behind [`AlarmStats`], under the same rule as the histograms. Only `deferred` is atomic: the handler
/// increments it while the interrupted code is inside a section.
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

    /// Returns the counts. The fields of [`AlarmStats`] that are current settings are 0.
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

/// Adds to a counter, wrapping. Counters do not overflow in a program's lifetime, but a checked addition could panic,
/// which a signal handler must not.
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
