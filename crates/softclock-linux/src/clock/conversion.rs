//! Converts counter ticks to nanoseconds, for the owning thread and for the signal handlers that interrupt it.

use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, compiler_fence,
};

use super::counter::read_unordered;
use super::kernel::monotonic_ns;

/// The conversion ns = base_ns + (counter - base_counter) * mult / 2^[`SHIFT`].
///
/// The fields are atomic because a signal handler of the same thread reads them. Loads and stores are relaxed, which
/// costs no more than plain ones; no other thread accesses them.
#[derive(Debug, Default)]
pub(crate) struct Conversion {
    /// Odd while the owning thread changes the fields below.
    version: AtomicU32,
    base_counter: AtomicU64,
    base_ns: AtomicU64,
    /// Nanoseconds per tick, as a fixed-point number; 0 if CLOCK_MONOTONIC is to be read instead of the counter.
    mult: AtomicU64,
    /// The lead of readings over CLOCK_MONOTONIC, in nanoseconds. Kept because the clock must not go backwards.
    offset_ns: AtomicU64,
    /// The last reading returned to the owning thread.
    last_ns: AtomicU64,
}

impl Conversion {
    /// Reads the time in nanoseconds, which is never less than at the call before. For the owning thread.
    #[inline(always)]
    pub(super) fn read(&self) -> u64 {
        let mult = self.mult.load(Relaxed);
        let ns = if mult == 0 {
            self.read_monotonic()
        } else {
            self.convert(read_unordered(), mult)
        };
        self.hold(ns)
    }

    /// The nanoseconds since the last reading, without counting as a reading; 0 for a clock that reads CLOCK_MONOTONIC.
    pub(super) fn since_last_ns(&self) -> u64 {
        match self.mult() {
            0 => 0,
            mult => self
                .convert(read_unordered(), mult)
                .saturating_sub(self.last_ns()),
        }
    }

    /// Reads the time in nanoseconds, in a signal handler of the owning thread. Async-signal-safe.
    pub(crate) fn read_in_handler(&self) -> u64 {
        // If the handler interrupted `rebase`, the fields do not fit together, and CLOCK_MONOTONIC has to do.
        let changing = self.version.load(Relaxed) & 1 == 1;
        compiler_fence(SeqCst);
        let mult = self.mult.load(Relaxed);
        let ns = if changing || mult == 0 {
            self.read_monotonic()
        } else {
            self.convert(read_unordered(), mult)
        };
        ns.max(self.last_ns.load(Relaxed))
    }

    /// The lead of readings over CLOCK_MONOTONIC, in nanoseconds.
    pub(crate) fn offset_ns(&self) -> u64 {
        self.offset_ns.load(Relaxed)
    }

    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns.load(Relaxed)
    }

    pub(super) fn mult(&self) -> u64 {
        self.mult.load(Relaxed)
    }

    /// Changes the conversion: the counter value `counter` converts to `ns`, and the rate is `mult`.
    pub(super) fn rebase(&self, counter: u64, ns: u64, mult: u64, offset_ns: u64) {
        self.version.store(self.version.load(Relaxed) | 1, Relaxed);
        compiler_fence(SeqCst);
        let back_ns = scale(BACK_TICKS, mult);
        self.base_counter
            .store(counter.wrapping_sub(BACK_TICKS), Relaxed);
        self.base_ns.store(ns.wrapping_sub(back_ns), Relaxed);
        self.mult.store(mult, Relaxed);
        self.offset_ns.store(offset_ns, Relaxed);
        compiler_fence(SeqCst);
        self.version
            .store(self.version.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Makes readings come from CLOCK_MONOTONIC, plus `offset_ns`.
    pub(super) fn use_monotonic(&self, offset_ns: u64) {
        self.rebase(0, 0, 0, offset_ns);
    }

    #[cold]
    fn read_monotonic(&self) -> u64 {
        monotonic_ns() + self.offset_ns.load(Relaxed)
    }

    #[inline(always)]
    fn convert(&self, counter: u64, mult: u64) -> u64 {
        let ticks = counter.wrapping_sub(self.base_counter.load(Relaxed));
        self.base_ns.load(Relaxed).wrapping_add(scale(ticks, mult))
    }

    /// Returns `ns`, or the last reading if that is later. So time stands still instead of going backwards, after a
    /// correction and when the processor reorders two reads of the counter.
    #[inline(always)]
    fn hold(&self, ns: u64) -> u64 {
        let held = ns.max(self.last_ns.load(Relaxed));
        self.last_ns.store(held, Relaxed);
        held
    }
}

#[inline(always)]
fn scale(ticks: u64, mult: u64) -> u64 {
    ((u128::from(ticks) * u128::from(mult)) >> SHIFT) as u64
}

/// The rate at which `ticks` take `ns`, as a fixed-point number of nanoseconds per tick.
pub(super) fn mult_of(ns: u64, ticks: u64) -> u64 {
    ((u128::from(ns) << SHIFT) / u128::from(ticks.max(1))) as u64
}

/// The fractional bits of a rate. They resolve 1e-12 ns per tick, and leave 24 bits for whole nanoseconds per tick.
const SHIFT: u32 = 40;

/// The distance of the base into the past, so that a counter a few ticks behind on another processor does not
/// underflow.
const BACK_TICKS: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_is_exact_over_days() {
        let mult = mult_of(1_000_000_000, 2_500_000_000);
        let day = 86_400 * 2_500_000_000;
        let ns = scale(day, mult);
        assert!(ns.abs_diff(86_400_000_000_000) < 1_000, "{ns}");
    }

    #[test]
    fn a_tick_may_be_long() {
        let mult = mult_of(1_000_000_000, 1_000_000);
        assert_eq!(scale(3_600_000_000, mult), 3_600_000_000_000);
    }
}
