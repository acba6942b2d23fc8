//! The policies of signalling and their ranges.

use core::fmt;
use core::time::Duration;

use crate::time::saturating_ns;

/// How a thread learns that a queue has work. `FromStr` and `Display` use the notation of command-line options:
/// `interrupt`, `poll`, `clocked=50us`, `hybrid`, `soft-poll=5`, `soft-poll=auto`, `automatic`, `automatic=timer`,
/// `automatic=deferred`. It leaves out the latency bound, which is an option of its own.
///
/// # Example
/// ```
/// use softclock_core::signalling::{LatencyBound, Period, Policy, Quota};
/// use std::time::Duration;
///
/// let clocked = Policy::Clocked(Period::new(Duration::from_millis(1))?);
/// assert_eq!(clocked.name(), "clocked");
/// let bound = LatencyBound::new(Duration::from_micros(50))?;
/// let quota = Quota::packets(5)?;
/// assert_eq!(Policy::SoftPoll { quota, bound }.name(), "soft-poll");
/// assert_eq!(Policy::default().name(), "automatic");
/// assert!(Quota::packets(65).is_err());
/// # Ok::<(), softclock_core::signalling::PolicyError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Policy {
    /// Each arrival interrupts.
    Interrupt,
    /// The thread always looks and never waits.
    Poll,
    /// The thread looks once a period, without interrupts (*Clocked Interrupts*, 1.2).
    Clocked(Period),
    /// An interrupt begins a series of looks; interrupts are enabled again when a look leaves nothing (Mogul and
    /// Ramakrishnan; Linux's NAPI).
    Hybrid,
    /// A busy thread looks at soft-timer events, without interrupts; a thread that would wait has interrupts (*Soft
    /// Timers*, 4.2).
    SoftPoll {
        /// The packets that a look finds on average.
        quota: Quota,
        /// The longest time between two looks.
        bound: LatencyBound,
    },
    /// `Hybrid` under light load and `SoftPoll` with an automatic quota otherwise, by the measured load.
    Automatic {
        /// The longest time between two looks.
        bound: LatencyBound,
        /// Whether an arrival wakes a waiting thread at once.
        wakeups: Wakeups,
    },
}

impl Policy {
    /// Returns the name in options and reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Poll => "poll",
            Self::Clocked(_) => "clocked",
            Self::Hybrid => "hybrid",
            Self::SoftPoll { .. } => "soft-poll",
            Self::Automatic { .. } => "automatic",
        }
    }

    /// Returns whether every wait of a thread without work ends at an arrival.
    pub const fn is_always_woken(&self) -> bool {
        match self {
            Self::Interrupt | Self::Hybrid | Self::SoftPoll { .. } => true,
            Self::Automatic { wakeups, .. } => matches!(wakeups, Wakeups::AtOnce),
            Self::Poll | Self::Clocked(_) => false,
        }
    }

    /// Returns the latency bound, if the policy has one.
    pub const fn bound(&self) -> Option<LatencyBound> {
        match self {
            Self::SoftPoll { bound, .. } | Self::Automatic { bound, .. } => Some(*bound),
            Self::Interrupt | Self::Poll | Self::Clocked(_) | Self::Hybrid => None,
        }
    }

    /// Returns the policy with another latency bound. A policy without a bound is returned unchanged.
    #[must_use]
    pub const fn with_bound(self, bound: LatencyBound) -> Self {
        match self {
            Self::SoftPoll { quota, .. } => Self::SoftPoll { quota, bound },
            Self::Automatic { wakeups, .. } => Self::Automatic { bound, wakeups },
            Self::Interrupt | Self::Poll | Self::Clocked(_) | Self::Hybrid => self,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::Automatic {
            bound: LatencyBound::default(),
            wakeups: Wakeups::AtOnce,
        }
    }
}

/// Whether an arrival wakes a waiting thread at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wakeups {
    /// A thread that waits has interrupts (*Soft Timers*, 5.8).
    AtOnce,
    /// A thread that waits has no interrupts if one of its timers wakes it within the latency bound, such as for a
    /// departure. Otherwise it has interrupts.
    ByTimer,
    /// A thread that waits has no interrupts if it wakes up by itself within the latency bound, or if it is so loaded
    /// that several packets arrive in an interval of looks. Saves wake-ups, and adds latency up to the bound.
    Deferred,
}

/// The period of clocked looks: 20 us to 2 ms, which are 50 kHz to 500 Hz.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Period(u64);

impl Period {
    /// The shortest period.
    pub const SHORTEST: Duration = Duration::from_micros(20);
    /// The longest period, the paper's lowest rate.
    pub const LONGEST: Duration = Duration::from_millis(2);

    /// Creates a period.
    ///
    /// # Errors
    /// [`PolicyError::Period`] outside of the range.
    pub fn new(period: Duration) -> Result<Self, PolicyError> {
        let ns = ns_within(period, Self::SHORTEST, Self::LONGEST);
        ns.map(Self).ok_or(PolicyError::Period)
    }

    /// Returns the period in nanoseconds.
    pub const fn as_ns(self) -> u64 {
        self.0
    }
}

/// Returns a time in nanoseconds, if it lies within the limits.
fn ns_within(time: Duration, shortest: Duration, longest: Duration) -> Option<u64> {
    let is_within = (shortest..=longest).contains(&time);
    is_within.then(|| saturating_ns(time))
}

/// The longest time between two looks at a queue without interrupts: 20 us to 10 ms, by default 100 us.
///
/// A packet waits longer only if no trigger state comes in time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LatencyBound(u64);

impl LatencyBound {
    /// The lowest bound.
    pub const SHORTEST: Duration = Duration::from_micros(20);
    /// The highest bound.
    pub const LONGEST: Duration = Duration::from_millis(10);

    /// Creates a bound.
    ///
    /// # Errors
    /// [`PolicyError::Bound`] outside of the range.
    pub fn new(bound: Duration) -> Result<Self, PolicyError> {
        let ns = ns_within(bound, Self::SHORTEST, Self::LONGEST);
        ns.map(Self).ok_or(PolicyError::Bound)
    }

    /// Returns the bound in nanoseconds.
    pub const fn as_ns(self) -> u64 {
        self.0
    }
}

impl Default for LatencyBound {
    fn default() -> Self {
        Self(100_000)
    }
}

/// The aggregation quota (*Soft Timers*, 4.2): the packets that a look finds on average, 1 to 64 or automatic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota(Option<u8>);

impl Quota {
    /// As many packets as the latency bound has room for, up to 16. In Table XII, 15 packets gain 0 to 3 % over 10.
    pub const AUTOMATIC: Self = Self(None);
    /// The largest quota: beyond it, more packets a look gain nothing and wait longer.
    pub const MOST: u32 = 64;

    /// Creates a fixed quota.
    ///
    /// # Errors
    /// [`PolicyError::Quota`] for 0 and above [`MOST`](Self::MOST).
    pub fn packets(packets: u32) -> Result<Self, PolicyError> {
        match u8::try_from(packets) {
            Ok(few @ 1..=64) => Ok(Self(Some(few))),
            _ => Err(PolicyError::Quota),
        }
    }

    /// Returns the fixed quota, or `None` if it is automatic.
    pub fn fixed(self) -> Option<u32> {
        self.0.map(u32::from)
    }

    /// Returns the packets that the interval of looks aims at.
    pub(super) fn target(self) -> u32 {
        self.fixed().unwrap_or(AUTOMATIC_PACKETS)
    }
}

const AUTOMATIC_PACKETS: u32 = 16;

/// The reason why a value of a policy is not possible. Its `Display` gives the range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PolicyError {
    /// The period of clocked looks is outside of 20 us to 2 ms.
    Period,
    /// The latency bound is outside of 20 us to 10 ms.
    Bound,
    /// The quota is outside of 1 to 64 packets.
    Quota,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Period => "the period of clocked looks must be from 20us to 2ms",
            Self::Bound => "the latency bound must be from 20us to 10ms",
            Self::Quota => "the quota must be from 1 to 64 packets",
        })
    }
}

impl core::error::Error for PolicyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_of_their_ranges_are_refused() {
        let us = Duration::from_micros;
        assert_eq!(Period::new(us(19)), Err(PolicyError::Period));
        assert_eq!(Period::new(us(2_001)), Err(PolicyError::Period));
        assert_eq!(Period::new(us(20)).map(Period::as_ns), Ok(20_000));
        assert!(Period::new(us(2_000)).is_ok());
        assert_eq!(LatencyBound::new(us(19)), Err(PolicyError::Bound));
        assert_eq!(LatencyBound::new(us(10_001)), Err(PolicyError::Bound));
        assert!(LatencyBound::new(us(10_000)).is_ok());
        assert_eq!(Quota::packets(0), Err(PolicyError::Quota));
        assert_eq!(Quota::packets(300), Err(PolicyError::Quota));
        assert_eq!(Quota::packets(64).map(Quota::fixed), Ok(Some(64)));
        assert_eq!(Quota::AUTOMATIC.fixed(), None);
    }

    #[test]
    fn only_soft_polls_have_a_bound() {
        let bound = LatencyBound::new(Duration::from_micros(250)).unwrap();
        let policy = Policy::default().with_bound(bound);
        assert_eq!(policy.bound(), Some(bound));
        assert_eq!(Policy::Hybrid.with_bound(bound), Policy::Hybrid);
        assert_eq!(Policy::Hybrid.bound(), None);
    }
}
