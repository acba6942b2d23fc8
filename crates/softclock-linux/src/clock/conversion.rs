//! From counter ticks to nanoseconds, readable by the owning thread and by the alarms that interrupt it.

use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, compiler_fence,
};

use super::counter::read_unordered;
use super::kernel::monotonic_ns;

/// ns = base_ns + (counter - base_counter) * mult / 2^[`SHIFT`].
///
/// The fields are atomics because a signal handler of the same thread reads them; loads and stores are relaxed, which
/// costs nothing over plain ones. No other thread ever looks.
#[derive(Debug, Default)]
pub(crate) struct Conversion {
    /// Odd while the owning thread changes the fields below.
    version: AtomicU32,
    base_counter: AtomicU64,
    base_ns: AtomicU64,
    /// Nanoseconds a tick, as a fixed-point number; 0 says that CLOCK_MONOTONIC is to be read.
    mult: AtomicU64,
    /// What readings are ahead of CLOCK_MONOTONIC, because going back was not possible.
    offset_ns: AtomicU64,
    /// The last reading given to the owning thread.
    last_ns: AtomicU64,
}

impl Conversion {
    /// The time in nanoseconds, never less than what was returned before. For the owning thread.
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

    /// Nanoseconds from the last reading until now, which is no reading itself; nothing where CLOCK_MONOTONIC is read.
    pub(super) fn since_last_ns(&self) -> u64 {
        match self.mult() {
            0 => 0,
            mult => self
                .convert(read_unordered(), mult)
                .saturating_sub(self.last_ns()),
        }
    }

    /// The time in nanoseconds, for a signal handler on the owning thread: async-signal-safe.
    pub(crate) fn read_in_handler(&self) -> u64 {
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

    /// What readings are ahead of CLOCK_MONOTONIC.
    pub(crate) fn offset_ns(&self) -> u64 {
        self.offset_ns.load(Relaxed)
    }

    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns.load(Relaxed)
    }

    pub(super) fn mult(&self) -> u64 {
        self.mult.load(Relaxed)
    }

    /// Makes the counter value `counter` mean `ns` from now on, at the rate `mult`.
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

    /// Reads CLOCK_MONOTONIC, `offset_ns` ahead, from now on.
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

    /// Time stands still rather than going back: after a correction, and where the processor reordered two reads.
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

/// The rate at which `ticks` take `ns`.
pub(super) fn mult_of(ns: u64, ticks: u64) -> u64 {
    ((u128::from(ns) << SHIFT) / u128::from(ticks.max(1))) as u64
}

/// Resolves rates to 1e-12 ns a tick, and leaves 24 bits for the nanoseconds of a tick.
const SHIFT: u32 = 40;

/// The base lies this far in the past, so that a counter some ticks behind on another processor does not underflow.
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
