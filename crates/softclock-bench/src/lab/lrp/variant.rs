//! The receive architectures that are compared.

use softclock_net::stack::Architecture;

/// How a server receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// This project's stack.
    Stack(Architecture, Driver),
    /// The kernel's sockets.
    Kernel(KernelReceive),
}

/// When the receive work of the link takes place, for this project's stack. It is on the receivers' processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Driver {
    /// As frames arrive, in a real-time thread: the interrupts of a network interface.
    Interrupts,
    /// When a receiver has nothing left, in its calls; by interrupts while all sleep.
    Receivers,
}

/// The place of the kernel's protocol work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelReceive {
    /// The sender's processor: the default of veth.
    Default,
    /// The receiver's processor, by receive packet steering (Documentation/networking/scaling.rst).
    Rps,
    /// A kernel thread on the receiver's processor, of ordinary priority.
    ThreadedNapi,
    /// As with RPS, and each receiver is in a cgroup with the same weight.
    Weights,
}

impl Variant {
    /// Those that are always compared.
    pub const ALL: [Self; 9] = [
        Self::Stack(Architecture::Bsd, Driver::Interrupts),
        Self::Stack(Architecture::EarlyDemux, Driver::Interrupts),
        Self::Stack(Architecture::SoftLrp, Driver::Receivers),
        Self::Stack(Architecture::SoftLrp, Driver::Interrupts),
        Self::Stack(Architecture::NiLrp, Driver::Receivers),
        Self::Stack(Architecture::NiLrp, Driver::Interrupts),
        Self::Kernel(KernelReceive::Default),
        Self::Kernel(KernelReceive::Rps),
        Self::Kernel(KernelReceive::ThreadedNapi),
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stack(Architecture::SoftLrp, Driver::Interrupts) => "soft-lrp, interrupts",
            Self::Stack(Architecture::NiLrp, Driver::Interrupts) => "ni-lrp, interrupts",
            Self::Stack(architecture, _) => architecture.name(),
            Self::Kernel(KernelReceive::Default) => "kernel, default",
            Self::Kernel(KernelReceive::Rps) => "kernel, RPS",
            Self::Kernel(KernelReceive::ThreadedNapi) => "kernel, threaded NAPI",
            Self::Kernel(KernelReceive::Weights) => "kernel, RPS, cgroup weights",
        }
    }
}
