//! What a clock reads, and why.

use std::fmt;

/// Where a [`ThreadClock`](super::ThreadClock) takes its time from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockSource {
    /// The time stamp counter of x86, of the measured rate.
    Tsc {
        /// Ticks a second.
        hz: u64,
    },
    /// The virtual counter of Arm's generic timer, of the measured rate.
    Cntvct {
        /// Ticks a second.
        hz: u64,
    },
    /// CLOCK_MONOTONIC, because no counter can be trusted.
    Monotonic {
        /// What speaks against the counter.
        why: Distrust,
    },
}

/// Why the processor's counter is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// No counter is known for this architecture.
    NoCounter,
    /// The processor does not promise a constant rate.
    NotInvariant,
    /// The kernel does not use the counter for its own time, but the clock source of this name.
    KernelUses(&'static str),
    /// The counter and CLOCK_MONOTONIC kept drifting apart while the clock ran.
    Diverged,
    /// The caller asked for CLOCK_MONOTONIC.
    Asked,
}

impl fmt::Display for ClockSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tsc { hz } => write!(f, "TSC at {:.3} MHz", *hz as f64 / 1e6),
            Self::Cntvct { hz } => write!(f, "CNTVCT at {:.3} MHz", *hz as f64 / 1e6),
            Self::Monotonic { why } => write!(f, "CLOCK_MONOTONIC ({why})"),
        }
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCounter => f.write_str("no counter known for this architecture"),
            Self::NotInvariant => f.write_str("the counter's rate is not constant"),
            Self::KernelUses(name) => write!(f, "the kernel uses {name} instead of the counter"),
            Self::Diverged => f.write_str("the counter diverged from the kernel's time"),
            Self::Asked => f.write_str("asked for"),
        }
    }
}
