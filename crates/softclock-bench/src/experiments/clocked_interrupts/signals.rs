//! The ways of signalling that are compared.

use std::time::Duration;

use softclock::signalling::{LatencyBound, Period, Policy, Quota};

use crate::lab::signalling::{KernelSignal, Signal};

/// One of each kind, for smoke runs.
pub(super) fn few() -> Vec<Signal> {
    let clocked = |us| Policy::Clocked(Period::new(Duration::from_micros(us)).expect(IN_RANGE));
    vec![
        Signal::Stack(Policy::Interrupt),
        Signal::Stack(clocked(500)),
        Signal::Stack(Policy::default()),
        Signal::Kernel(KernelSignal::Clocked(Duration::from_micros(500))),
    ]
}

/// All: the paper's, those that came later, and the kernel's.
pub(super) fn all() -> Vec<Signal> {
    let periods = PERIODS_US.map(Duration::from_micros);
    let clocked = periods.map(|period| Policy::Clocked(Period::new(period).expect(IN_RANGE)));
    let bound = LatencyBound::default();
    let quota = Quota::AUTOMATIC;
    let mut policies = vec![Policy::Interrupt, Policy::Poll];
    policies.extend(clocked);
    policies.extend([
        Policy::Hybrid,
        Policy::SoftPoll { quota, bound },
        Policy::default(),
    ]);
    let kernels = [KernelSignal::Joined, KernelSignal::Napi];
    let kernels_clocked = KERNELS_PERIODS_US.map(Duration::from_micros);
    let kernels_clocked = kernels_clocked.map(KernelSignal::Clocked);
    let kernels = kernels.into_iter().chain(kernels_clocked);
    policies
        .into_iter()
        .map(Signal::Stack)
        .chain(kernels.map(Signal::Kernel))
        .collect()
}

/// 500 Hz, 1, 2, 4 and 20 kHz; the paper's are the first four.
const PERIODS_US: [u64; 5] = [2_000, 1_000, 500, 250, 50];

/// Those of the kernel's own clock.
const KERNELS_PERIODS_US: [u64; 3] = [2_000, 250, 50];

const IN_RANGE: &str = "within the range";

/// The notes on the setup.
pub(super) const NOTES: [&str; 4] = [
    "a virtual link has no device interrupt: the wake-up of the host's thread stands for it, and with the kernel's sockets that of \
     NAPI; a host that is never out of work does not wait, so that policies are level where it is saturated",
    "sender and pings on processor 0, receiver on processor 1, veth between two namespaces, MTU 1500; each host is a thread with its own \
     stack by AF_XDP in copy mode; a kernel thread at each end, SCHED_FIFO, on the processor of that end, moves frames from the \
     link to the stack, and stands for the network interface",
    "kernel: blocking sockets; joined segments: segments of up to 64 KB cross the link (TSO), and are steered to the processor of \
     their receiver (RPS), its best setting on veth, whose NAPI takes no part then; NAPI: single segments, joined by GRO in a \
     kernel thread as above; NAPI clocked: the kernel's own clocked interrupt, gro_flush_timeout of this period with \
     napi_defer_hard_irqs without end, on the interface",
    "the latency bound of soft-poll and automatic is 100 us",
];
