//! The ways of signalling that are compared, with their names in tables.

use std::time::Duration;

use softclock::signalling::{LatencyBound, Policy};

/// How a host learns that frames have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// This project's stack, with a policy.
    Stack(Policy),
    /// The kernel's sockets.
    Kernel(KernelSignal),
}

/// How the kernel learns that frames have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelSignal {
    /// Each frame wakes the receive work of the link. Segments cross the link joined (TSO), which NAPI of veth does not
    /// take part in, and are steered to the receiver's processor (RPS).
    Joined,
    /// Each arrival wakes NAPI. Segments cross the link one by one, and NAPI joins them (GRO).
    Napi,
    /// The same, but NAPI looks once a period: `gro_flush_timeout`, with so large a `napi_defer_hard_irqs` that frames
    /// never wake it.
    Clocked(Duration),
}

impl Signal {
    /// Returns the name in tables.
    pub fn name(self) -> String {
        match self {
            Self::Stack(policy) => policy_name(policy),
            Self::Kernel(KernelSignal::Joined) => "kernel, joined segments".to_owned(),
            Self::Kernel(KernelSignal::Napi) => "kernel, NAPI".to_owned(),
            Self::Kernel(KernelSignal::Clocked(period)) => {
                format!("kernel, NAPI clocked, {} us", period.as_micros())
            }
        }
    }

    /// Returns the way of signalling of a host that is not measured: interrupts, of the same stack.
    #[must_use]
    pub const fn by_interrupts(self) -> Self {
        match self {
            Self::Stack(_) => Self::Stack(Policy::Interrupt),
            Self::Kernel(KernelSignal::Joined) => self,
            Self::Kernel(_) => Self::Kernel(KernelSignal::Napi),
        }
    }
}

/// Returns the name of a policy in tables, with its latency bound if that is not the default.
pub fn policy_name(policy: Policy) -> String {
    match policy.bound() {
        Some(bound) if bound != LatencyBound::default() => {
            format!("{policy}, {} us", bound.as_ns() / 1_000)
        }
        _ => policy.to_string(),
    }
}
