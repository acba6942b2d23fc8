//! Records the lateness of a periodic event.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use softclock_core::Instant;
use softclock_core::time::saturating_ns;

use super::safe::{AlarmSafe, Firing};

/// A histogram of the lateness of one periodic event.
///
/// It is a handler for a [`SignalTimer`](super::SignalTimer), whose firings do not include the due time, and records
/// other firings by [`record`](Self::record). The event is due once every period. Periods that pass before the event
/// fires are missed and not made up: the firing counts once, with the lateness of the first period that it stands for.
/// One thread records; others may read.
///
/// ```
/// use std::time::Duration;
///
/// use softclock_core::Instant;
/// use softclock_linux::alarm::AlarmLateness;
///
/// let lateness = AlarmLateness::new();
/// lateness.restart(Instant::from_ns(1_000), Duration::from_nanos(100));
/// // Due at 1100, and 257 ns late: the events at 1200 and 1300 are missed.
/// let next_due = lateness.record(Instant::from_ns(1_357));
/// assert_eq!(next_due.as_ns(), 1_400);
/// assert_eq!(lateness.fires(), 1);
/// ```
#[derive(Debug)]
pub struct AlarmLateness {
    next_due_ns: AtomicU64,
    period_ns: AtomicU64,
    counts: [AtomicU64; COUNTS],
}

impl AlarmLateness {
    /// Creates an empty histogram. Call [`restart`](Self::restart) before the first firing.
    pub const fn new() -> Self {
        Self {
            next_due_ns: AtomicU64::new(0),
            period_ns: AtomicU64::new(1),
            counts: [const { AtomicU64::new(0) }; COUNTS],
        }
    }

    /// Makes the event due every `period` from `now` on, the first time at `now + period`. Keeps the histogram.
    pub fn restart(&self, now: Instant, period: Duration) {
        let period_ns = saturating_ns(period).max(1);
        self.period_ns.store(period_ns, Relaxed);
        self.next_due_ns.store(now.as_ns() + period_ns, Relaxed);
    }

    /// Records a firing at `now`. Returns the next due time, which is after `now`. Costs about 5 ns.
    pub fn record(&self, now: Instant) -> Instant {
        let due_ns = self.next_due_ns.load(Relaxed);
        let late_ns = now.as_ns().saturating_sub(due_ns);
        let period_ns = self.period_ns.load(Relaxed);
        let next_ns = due_ns.saturating_add((late_ns / period_ns + 1).saturating_mul(period_ns));
        self.next_due_ns.store(next_ns, Relaxed);
        // Only one thread writes, so a load and a store replace the costlier locked instruction.
        let count = &self.counts[index_of(late_ns)];
        count.store(count.load(Relaxed) + 1, Relaxed);
        Instant::from_ns(next_ns)
    }

    /// The number of firings.
    pub fn fires(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// The buckets in order of lateness: the exclusive upper bound in nanoseconds, and the number of firings. Each
    /// octave has four buckets.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.counts.iter().enumerate();
        counts.map(|(index, count)| (bound_of(index), count.load(Relaxed)))
    }
}

impl Default for AlarmLateness {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: `record` uses only atomics and saturating arithmetic. The index is less than the array's length, and the
// divisor is at least 1, so nothing panics.
unsafe impl AlarmSafe for AlarmLateness {
    fn fire(&self, firing: &Firing) {
        self.record(firing.now);
    }
}

/// The number of buckets: four to an octave, up to 2^36 ns (69 s).
const COUNTS: usize = 36 * 4;

const _: () = assert!(index_of(u64::MAX) == COUNTS - 1 && index_of(0) == 0);

const fn index_of(ns: u64) -> usize {
    if ns < 8 {
        return ns as usize;
    }
    let octave = ns.ilog2();
    let quarter = (ns >> (octave - 2)) & 3;
    let index = (octave as usize - 1) * 4 + quarter as usize;
    if index < COUNTS { index } else { COUNTS - 1 }
}

const fn bound_of(index: usize) -> u64 {
    if index < 8 {
        return index as u64 + 1;
    }
    let octave = index / 4 + 1;
    let quarters = 4 + index as u64 % 4 + 1;
    quarters << (octave - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_meet_without_gaps() {
        for index in 0..COUNTS - 1 {
            assert_eq!(index_of(bound_of(index) - 1), index);
            assert_eq!(index_of(bound_of(index)), index + 1);
        }
    }

    #[test]
    fn missed_events_are_not_made_up() {
        let lateness = AlarmLateness::new();
        lateness.restart(Instant::from_ns(1_000), Duration::from_nanos(100));
        assert_eq!(lateness.record(Instant::from_ns(1_103)).as_ns(), 1_200);
        assert_eq!(lateness.record(Instant::from_ns(1_457)).as_ns(), 1_500);
        let late: Vec<_> = lateness.counts().filter(|&(_, count)| count > 0).collect();
        assert_eq!(late, [(4, 1), (320, 1)], "3 ns and 257 ns");
        assert_eq!(lateness.fires(), 2);
    }
}
