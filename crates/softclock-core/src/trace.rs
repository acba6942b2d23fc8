//! The sequence of trigger states, for what histograms by source cannot tell (*Soft Timers*, 5.3 and 5.4): how the
//! intervals change over time, and what they would be without one of the sources.

use alloc::boxed::Box;
use alloc::vec;

use crate::{Instant, TriggerState};

/// The latest trigger states, source and time of each, in memory that is allocated and touched up front.
#[derive(Clone)]
pub struct TriggerTrace {
    /// Nanoseconds above [`SOURCE_BITS`] of source.
    ring: Box<[u64]>,
    /// How many were recorded, of which the ring holds the latest.
    recorded: u64,
    /// Where the next one goes.
    next: usize,
}

impl TriggerTrace {
    /// Room for the latest `capacity` trigger states, 8 bytes each; at least one.
    pub fn new(capacity: usize) -> Self {
        Self {
            // Not zeros: those the system would hand out as pages that fault when they are first written.
            ring: vec![u64::MAX; capacity.max(1)].into_boxed_slice(),
            recorded: 0,
            next: 0,
        }
    }

    /// Records a trigger state, in place of the oldest if the ring is full. Costs some 2 ns.
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

    /// The trigger states that the ring holds, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (TriggerState, Instant)> + '_ {
        let (before, from) = self.ring.split_at(self.next);
        // Until the ring is full there is nothing behind the next place.
        let from = if self.overwritten() > 0 || self.next == 0 && self.recorded > 0 {
            from
        } else {
            &[]
        };
        from.iter().chain(before).map(|&entry| unpack(entry))
    }

    /// How many trigger states the ring holds.
    pub fn len(&self) -> usize {
        usize::try_from(self.recorded).map_or(self.ring.len(), |n| n.min(self.ring.len()))
    }

    /// Whether nothing was recorded.
    pub const fn is_empty(&self) -> bool {
        self.recorded == 0
    }

    /// Whether the next record takes the place of the oldest.
    pub fn is_full(&self) -> bool {
        self.len() == self.ring.len()
    }

    /// How many trigger states were recorded and are gone.
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

/// What remains for the time is 36 years of nanoseconds.
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
