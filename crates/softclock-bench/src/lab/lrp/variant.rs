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

/// The processor that veth's receive work takes place on, for this project's stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Driver {
    /// The receiver's, in a real-time thread: as the interrupts of a network interface.
    Receiver,
    /// The receiver's, in an ordinary thread, which shares the processor evenly with each receiver: under overload, frames
    /// are lost in the ring of the link, at no cost for the receiver, and not by demultiplexing.
    Thread,
    /// The sender's: as a network interface that writes frames to memory by itself.
    Sender,
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
}

impl Variant {
    /// The variants that are always compared, with the driver on the receiver's processor.
    pub const ALL: [Self; 6] = [
        Self::Stack(Architecture::Bsd, Driver::Receiver),
        Self::Stack(Architecture::EarlyDemux, Driver::Receiver),
        Self::Stack(Architecture::SoftLrp, Driver::Receiver),
        Self::Kernel(KernelReceive::Default),
        Self::Kernel(KernelReceive::Rps),
        Self::Kernel(KernelReceive::ThreadedNapi),
    ];

    /// The variants of this project's stack with other drivers.
    pub const OTHER_DRIVERS: [Self; 4] = [
        Self::Stack(Architecture::SoftLrp, Driver::Thread),
        Self::Stack(Architecture::Bsd, Driver::Sender),
        Self::Stack(Architecture::EarlyDemux, Driver::Sender),
        Self::Stack(Architecture::SoftLrp, Driver::Sender),
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stack(architecture, Driver::Receiver) => architecture.name(),
            Self::Stack(Architecture::Bsd, Driver::Thread) => "bsd, driver as a thread",
            Self::Stack(Architecture::EarlyDemux, Driver::Thread) => {
                "early-demux, driver as a thread"
            }
            Self::Stack(Architecture::SoftLrp, Driver::Thread) => "soft-lrp, driver as a thread",
            Self::Stack(Architecture::NiLrp, Driver::Thread) => "ni-lrp, driver as a thread",
            Self::Stack(Architecture::Bsd, Driver::Sender) => "bsd, driver by the sender",
            Self::Stack(Architecture::EarlyDemux, Driver::Sender) => {
                "early-demux, driver by the sender"
            }
            Self::Stack(Architecture::SoftLrp, Driver::Sender) => "soft-lrp, driver by the sender",
            Self::Stack(Architecture::NiLrp, Driver::Sender) => "ni-lrp, driver by the sender",
            Self::Kernel(KernelReceive::Default) => "kernel, default",
            Self::Kernel(KernelReceive::Rps) => "kernel, RPS",
            Self::Kernel(KernelReceive::ThreadedNapi) => "kernel, threaded NAPI",
        }
    }
}
