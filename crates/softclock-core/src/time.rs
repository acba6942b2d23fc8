//! Points in time. No code of this crate reads a clock: time is an argument.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// One tick of the measurement clock of *Soft Timers* (section 3), and the width of a slot of the timing wheel.
pub const TICK_NS: u64 = 1_000;

/// A point in time: nanoseconds since an arbitrary origin that all readings of one [`Clock`] share.
///
/// It has no `now()`: callers read a [`Clock`] and pass the result on. Arithmetic saturates instead of overflowing;
/// 2^64 ns are 584 years. Nor does it convert to and from `std::time::Instant`, which has another origin: the clock
/// does that, and in the crate `softclock` the functions `time::to_std` and `time::from_std`.
///
/// # Example
/// ```
/// use softclock_core::Instant;
/// use std::time::Duration;
///
/// let start = Instant::from_ns(1_500);
/// let later = start + Duration::from_micros(2);
/// assert_eq!(later.since(start), Duration::from_micros(2));
/// assert_eq!(start.since(later), Duration::ZERO);
/// assert_eq!(later.tick(), 3);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock.
    pub const ORIGIN: Self = Self(0);
    /// An instant later than any reading: 2^64 - 1 ns after the origin.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Returns the instant `ns` nanoseconds after the origin.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Returns the tick of the measurement clock that this instant falls into, counted from the origin.
    pub const fn tick(self) -> u64 {
        self.0 / TICK_NS
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is the later one.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.ns_since(earlier))
    }

    /// Like [`since`](Self::since), in nanoseconds.
    pub const fn ns_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the instant `ns` nanoseconds later, at most [`FAR_FUTURE`](Self::FAR_FUTURE).
    pub const fn add_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Returns the instant `ns` nanoseconds earlier, or the origin if that is later.
    pub const fn sub_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }

    /// Returns the first instant at or after this one that is a multiple of `ns` (at least 1) after the origin.
    pub const fn round_up(self, ns: u64) -> Self {
        match self.0.checked_next_multiple_of(ns) {
            Some(rounded) => Self(rounded),
            None => Self::FAR_FUTURE,
        }
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        self.add_ns(saturating_ns(rhs))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        self.sub_ns(saturating_ns(rhs))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}s",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}

/// A source of time, read at the edges of a program; all other code gets the time as an argument.
pub trait Clock {
    /// Returns the current time. Readings never decrease.
    fn now(&self) -> Instant;
}

/// Returns `duration` in nanoseconds, at most `u64::MAX`.
pub const fn saturating_ns(duration: Duration) -> u64 {
    let ns = duration.as_nanos();
    if ns > u64::MAX as u128 {
        u64::MAX
    } else {
        ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Instant::FAR_FUTURE + Duration::MAX, Instant::FAR_FUTURE);
        assert_eq!(Instant::ORIGIN - Duration::from_secs(1), Instant::ORIGIN);
        assert_eq!(Instant::ORIGIN.since(Instant::from_ns(5)), Duration::ZERO);
        assert_eq!(Instant::FAR_FUTURE.round_up(8), Instant::FAR_FUTURE);
        assert_eq!(Instant::from_ns(16).round_up(8), Instant::from_ns(16));
        assert_eq!(Instant::from_ns(17).round_up(8), Instant::from_ns(24));
    }

    #[test]
    fn ticks_are_microseconds() {
        assert_eq!(Instant::from_ns(999).tick(), 0);
        assert_eq!(Instant::from_ns(1_000).tick(), 1);
    }
}
