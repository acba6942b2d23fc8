//! The setup of the experiments of *LRP*, section 4: clients and a flood on one processor, a server on the other, and
//! between them veth, whose receive work takes place on the server's processor.
//!
//! ```text
//! processor 0                          processor 1
//! clients, flood ---- 10.79.0.0/24 ---- server: driver, interrupt level, receivers
//!           flood ---- 10.79.1.0/24 ---- reference: a namespace without a server, which drops all frames
//! ```
//!
//! The levels of the paper's server are threads of processor 1:
//!
//! | level | the paper's | here |
//! |---|---|---|
//! | driver | the network interface and its interrupt | the kernel thread of threaded NAPI, SCHED_FIFO |
//! | interrupt | early demultiplexing, or all protocol work | `interrupt`, SCHED_FIFO |
//! | process | receivers, and lazy protocol work | `receiver`, ordinary threads |
//!
//! With [`Driver::Receivers`] the work of the first two takes place in calls of the third, in `polled`, or in
//! `channels` if the XDP program demultiplexes.
//!
//! - [`Network`]: the three namespaces, their links and the counters of these.
//! - [`Server`]: one [`Variant`] with its [`Service`]s.
//! - [`Stage`]: a server with a flood, and its [`Rates`]; [`after_step`]: its deliveries after a step of the load.
//! - `eager_stack`: the stack of the interrupt level. `ring`: the bounded queues from there to the receivers.
//! - `pace`: the polls of receivers that have packets.
//! - `weights`: cgroups, for the kernel's receivers.
//! - [`Flood`]: datagrams at a stated rate. [`client`]: ping-pong, calls and a sliding window.
//! - [`work`]: computation of a known length.

mod autogroup;
mod channels;
pub mod client;
mod eager_stack;
mod flood;
mod interrupt;
mod kernel;
mod network;
mod pace;
mod polled;
mod receiver;
mod ring;
mod server;
mod service;
mod slice;
mod stage;
mod step;
mod stopping;
mod variant;
mod weights;
pub mod work;

use std::time::Duration;

use crate::measure::processors::Processors;
use crate::output::report::Report;
use crate::servers::version;

pub use flood::{Flood, Target};
pub use network::{Level, Link, Losses, Network};
pub use server::{Counts, Server};
pub use service::Service;
pub use stage::{Background, Rates, Stage};
pub use step::after_step;
pub use stopping::Stop;
pub(in crate::lab) use stopping::Threads;
pub use variant::{Driver, KernelReceive, Variant};
pub use weights::check_weights;

/// Returns a report of the reason, if labs cannot be created on this machine.
pub fn not_measured(title: &'static str) -> Option<Report> {
    let reason = check().err()?;
    Some(Report::not_measured(title, &reason))
}

/// Returns the notes of a report: those that hold for all measurements here, then the experiment's own.
pub fn notes<'a>(own: &[&'a str]) -> Vec<&'a str> {
    NOTES.iter().chain(own).copied().collect()
}

/// Checks that labs can be created on this machine.
///
/// # Errors
/// The missing requirement, as the end of a sentence.
pub fn check() -> Result<(), String> {
    for (program, argument, package) in TOOLS {
        if version(program, argument).is_none() {
            return Err(format!(
                "{program} is not installed (Debian's package {package})"
            ));
        }
    }
    if !Processors::detect().are_two() {
        return Err("needs two processors".into());
    }
    Network::new().map(drop).map_err(|error| error.to_string())
}

/// The required programs, the arguments that print their versions, and their Debian packages.
const TOOLS: [(&str, &str, &str); 3] = [
    ("ip", "-V", "iproute2"),
    ("ethtool", "--version", "ethtool"),
    ("chrt", "--version", "util-linux"),
];

/// The notes that hold for all measurements in this lab.
const NOTES: [&str; 7] = [
    "flood and clients on processor 0, all receive work of the server on processor 1",
    "bsd, early-demux, and interrupts: receive work takes place as frames arrive; veth's NAPI is a kernel thread, SCHED_FIFO, \
     above the interrupt level, which is SCHED_FIFO, too; the kernel leaves 5 % of the time to ordinary threads, so no variant \
     falls to 0",
    "soft-lrp and ni-lrp: polling driven by the receivers; one that has nothing left receives up to 16 frames from veth's ring, \
     and interrupts stay masked until polls find nothing; one that has packets polls for 5 % of its time, and a thread, \
     SCHED_FIFO, for up to 25 % while others wait; veth does not tell AF_XDP its NAPI, so SO_PREFER_BUSY_POLL has no effect, and io_uring \
     polls by the NAPI's number",
    "bsd, early-demux and soft-lrp receive by AF_XDP in copy mode and differ in the thread that calls the protocols, and when; \
     with ni-lrp the XDP program demultiplexes; each socket or channel holds 256 packets, the shared queue 1000; answers leave \
     by the kernel's UDP in all variants",
    "kernel: recvmmsg of up to 32; default: protocol work on the sender's processor, which hides overload; RPS and threaded \
     NAPI move it to the receiver's; IRQ suspension (EPIOCSPARAMS) is not measured: veth accepts its settings, but a trial \
     delivered less than without them, for an unknown reason",
    "receivers, and threads of NAPI that are not SCHED_FIFO, have nice value -10 and time slices of 100 us; receivers with more \
     than 64 packets in a row have slices of 100 ms, so that one that wakes goes before them",
    "offered: frames that reach the server's end of veth or are lost there because its ring of 256 is full, which comes before \
     any demultiplexing",
];

/// The priority of the interrupt level: above all receivers, and below the driver.
const INTERRUPT_PRIORITY: u8 = 10;

/// The most frames between two looks at the protocols, as with NAPI.
const BUDGET: usize = 64;

/// The longest wait of a thread before it looks whether it has to stop.
const STOP_CHECK: Duration = Duration::from_millis(20);
