//! What the alarms did, in fixed memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use softclock_core::histogram::{BUCKETS, bucket_of, upper_bound};

use super::safe::FiredBy;

/// What happened since the alarms were made.
#[derive(Clone, Debug)]
pub struct AlarmStats {
    /// Lateness of the alarm-safe events that trigger states, the backup and deadlines fired, in this order.
    pub fired: [LatenessHistogram; FiredBy::ALL.len()],
    /// Lateness of plain events that the backup found overdue (it cannot run them).
    pub plain_overdue: LatenessHistogram,
    /// Signals of the backup timer.
    pub backups: u64,
    /// Signals of the deadline alarm.
    pub deadline_alarms: u64,
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

/// Lateness, to a sixteenth, in the buckets of [`softclock_core::histogram`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatenessHistogram {
    /// The number of events.
    pub count: u64,
    /// The sum of their lateness, in nanoseconds.
    pub sum_ns: u64,
    /// The largest lateness, in nanoseconds.
    pub max_ns: u64,
    /// Bucket `i` counts what [`bucket_of`] says.
    pub buckets: [u64; BUCKETS],
}

/// A histogram that a signal handler and the code it interrupts both add to, never at the same time.
#[derive(Debug)]
pub(super) struct HistogramCell {
    count: Cell<u64>,
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
    pub(super) backups: Cell<u64>,
    pub(super) deadline_alarms: Cell<u64>,
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
            backups: Cell::new(0),
            deadline_alarms: Cell::new(0),
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
            backups: self.backups.get(),
            deadline_alarms: self.deadline_alarms.get(),
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
            count: Cell::new(0),
            sum_ns: Cell::new(0),
            max_ns: Cell::new(0),
            buckets: [const { Cell::new(0) }; BUCKETS],
        }
    }

    pub(super) fn record(&self, late_ns: u64) {
        add(&self.count, 1);
        add(&self.sum_ns, late_ns);
        self.max_ns.set(self.max_ns.get().max(late_ns));
        if let Some(bucket) = self.buckets.get(bucket_of(late_ns)) {
            add(bucket, 1);
        }
    }

    pub(super) fn snapshot(&self) -> LatenessHistogram {
        LatenessHistogram {
            count: self.count.get(),
            sum_ns: self.sum_ns.get(),
            max_ns: self.max_ns.get(),
            buckets: std::array::from_fn(|i| self.buckets[i].get()),
        }
    }
}

impl LatenessHistogram {
    /// An upper bound of the lateness that the given share (0 to 1) of the events did not exceed, in nanoseconds; 0 if
    /// there were none.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let rank = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (i, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_bound(i).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// The share of events, 0 to 1, that were later than `ns` (to the resolution of a bucket).
    pub fn share_above(&self, ns: u64) -> f64 {
        let above: u64 = self.buckets[bucket_of(ns) + 1..].iter().sum();
        above as f64 / self.count.max(1) as f64
    }

    /// What was counted since `earlier`, a copy of this same histogram. The maximum is that of all.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            sum_ns: self.sum_ns.wrapping_sub(earlier.sum_ns),
            max_ns: self.max_ns,
            buckets: std::array::from_fn(|i| self.buckets[i].saturating_sub(earlier.buckets[i])),
        }
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
    }

    /// The mean lateness in nanoseconds; 0 if there were no events.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count).unwrap_or(0)
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
    fn since_leaves_what_was_added() {
        let cell = HistogramCell::new();
        cell.record(10);
        let before = cell.snapshot();
        cell.record(1_000);
        let mut since = cell.snapshot().since(&before);
        assert_eq!((since.count, since.sum_ns), (1, 1_000));
        assert_eq!(since.share_above(999), 0.0);
        assert_eq!(since.share_above(500), 1.0);
        since.merge(&before);
        assert_eq!(since, cell.snapshot());
    }

    #[test]
    fn quantiles_are_upper_bounds() {
        let cell = HistogramCell::new();
        assert_eq!(cell.snapshot().quantile_ns(0.5), 0);
        for late in [0, 10, 20, 30, 5_000] {
            cell.record(late);
        }
        let histogram = cell.snapshot();
        assert_eq!(histogram.quantile_ns(0.5), 20);
        assert_eq!(histogram.quantile_ns(1.0), 5_000);
        assert_eq!(histogram.mean_ns(), 1_012);
    }
}
