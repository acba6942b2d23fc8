//! A recording of the latest trigger states (*Soft Timers*, sections 5.3 and 5.4).
//!
//! Histograms by source lose the order of trigger states. A trace keeps it, so that an analysis can show how the
//! intervals change over time, and how long they would be without one of the sources.

use alloc::boxed::Box;
use alloc::vec;

use crate::{Instant, TriggerState};

/// The source and time of the latest trigger states, in memory that is allocated and touched up front.
///
/// # Example
/// ```
/// use softclock_core::{Instant, TriggerState, TriggerTrace};
///
/// let mut trace = TriggerTrace::new(2);
/// for (state, us) in [(TriggerState::Turn, 0), (TriggerState::Send, 3), (TriggerState::Idle, 10)] {
///     trace.record(state, Instant::from_ns(us * 1_000));
/// }
/// let states: Vec<_> = trace.iter().map(|(state, _)| state).collect();
/// assert_eq!(states, [TriggerState::Send, TriggerState::Idle]);
/// assert_eq!(trace.overwritten(), 1);
/// ```
#[derive(Clone)]
pub struct TriggerTrace {
    /// Entries: the time in nanoseconds, shifted left by [`SOURCE_BITS`], and the source in the bits below.
    ring: Box<[u64]>,
    /// Number of trigger states recorded so far; the ring holds the latest of them.
    recorded: u64,
    /// Index in `ring` that the next record will overwrite.
    next: usize,
}

impl TriggerTrace {
    /// Creates a trace of the latest `capacity` trigger states, at least 1, of 8 bytes each.
    pub fn new(capacity: usize) -> Self {
        Self {
            // Filled with ones, since the kernel hands out zeroed pages lazily: they would fault at the first write.
            ring: vec![u64::MAX; capacity.max(1)].into_boxed_slice(),
            recorded: 0,
            next: 0,
        }
    }

    /// Records a trigger state, overwriting the oldest if the ring is full. Costs about 2 ns.
    #[inline]
    pub fn record(&mut self, state: TriggerState, now: Instant) {
        self.ring[self.next] = now.as_ns() << SOURCE_BITS | state as u64;
        self.next = if self.next + 1 == self.ring.len() {
            0
        } else {
            self.next + 1
        };
        self.recorded += 1;
    }

    /// Iterates over the recorded trigger states, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (TriggerState, Instant)> + '_ {
        let (before, from) = self.ring.split_at(self.next);
        // Entries from `next` on are older than those before it, but only once the ring has wrapped.
        let from = if self.overwritten() > 0 || self.next == 0 && self.recorded > 0 {
            from
        } else {
            &[]
        };
        from.iter().chain(before).map(|&entry| unpack(entry))
    }

    /// Returns the number of trigger states that the ring holds.
    pub fn len(&self) -> usize {
        usize::try_from(self.recorded).map_or(self.ring.len(), |n| n.min(self.ring.len()))
    }

    /// Returns whether no trigger state was recorded.
    pub const fn is_empty(&self) -> bool {
        self.recorded == 0
    }

    /// Returns whether the next record will overwrite the oldest.
    pub fn is_full(&self) -> bool {
        self.len() == self.ring.len()
    }

    /// Returns the number of trigger states that were recorded and later overwritten.
    pub fn overwritten(&self) -> u64 {
        self.recorded - self.len() as u64
    }
}

impl core::fmt::Debug for TriggerTrace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TriggerTrace")
            .field("len", &self.len())
            .field("overwritten", &self.overwritten())
            .finish_non_exhaustive()
    }
}

fn unpack(entry: u64) -> (TriggerState, Instant) {
    let source = (entry & ((1 << SOURCE_BITS) - 1)) as usize;
    (
        TriggerState::ALL[source],
        Instant::from_ns(entry >> SOURCE_BITS),
    )
}

/// Bits of an entry that hold the source. The other 60 bits hold 36 years of nanoseconds.
const SOURCE_BITS: u32 = 4;

const _: () = assert!(TriggerState::ALL.len() <= 1 << SOURCE_BITS);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn traced(capacity: usize, count: u64) -> Vec<u64> {
        let mut trace = TriggerTrace::new(capacity);
        for ns in 0..count {
            let state = TriggerState::ALL[ns as usize % TriggerState::ALL.len()];
            trace.record(state, Instant::from_ns(ns));
        }
        assert_eq!(trace.len() as u64 + trace.overwritten(), count);
        assert_eq!(trace.len(), trace.iter().count());
        for (state, at) in trace.iter() {
            assert_eq!(state as u64, at.as_ns() % TriggerState::ALL.len() as u64);
        }
        trace.iter().map(|(_, at)| at.as_ns()).collect()
    }

    #[test]
    fn it_holds_the_latest_in_order() {
        assert_eq!(traced(5, 0), []);
        assert_eq!(traced(5, 3), [0, 1, 2]);
        assert_eq!(traced(5, 5), [0, 1, 2, 3, 4]);
        assert_eq!(traced(5, 6), [1, 2, 3, 4, 5]);
        assert_eq!(traced(5, 23), [18, 19, 20, 21, 22]);
        assert_eq!(traced(1, 4), [3]);
        assert_eq!(traced(0, 2), [1]);
    }
}
