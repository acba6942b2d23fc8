//! The source of a clock's time, and the reason for it.

use std::fmt;

/// The source from which a [`ThreadClock`](super::ThreadClock) takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockSource {
    /// The time stamp counter of x86.
    Tsc {
        /// The measured rate, in ticks per second.
        hz: u64,
    },
    /// The virtual counter of Arm's generic timer.
    Cntvct {
        /// The measured rate, in ticks per second.
        hz: u64,
    },
    /// CLOCK_MONOTONIC, because the counter cannot be used.
    Monotonic {
        /// The reason.
        why: Distrust,
    },
}

/// The reason why a clock does not use the processor's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distrust {
    /// This crate knows no counter for this architecture.
    NoCounter,
    /// The processor does not guarantee a constant rate.
    NotInvariant,
    /// The kernel does not use the counter as its clock source, but the one of this name.
    KernelUses(&'static str),
    /// The counter and CLOCK_MONOTONIC kept diverging while the clock ran.
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
