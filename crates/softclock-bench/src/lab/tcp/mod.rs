//! The setup of the experiments on TCP: a web server on one processor, its clients on the other, and veth between them
//! ([`Network`](super::lrp::Network)), of which each end's receive work takes place on the processor of that end.
//!
//! - [`Subject`]: the servers that are compared: `softclock serve` on its own stack and on the kernel, and nginx.
//! - [`Stage`]: one of them with its network; [`Stage::load`]: a slice of a load on it.
//! - [`IdleClients`]: connections without descriptors at the clients.
//! - [`Attack`]: floods on it.
//! - [`arrivals_after`]: throughput after the end of a flood.
//! - [`bulk`]: bulk transfers over a TAP device.
//! - [`Counted`]: the instructions of a server. [`in_memory`]: a stack with simulated peers.
//! - [`FarServer`]: a server behind an emulated long path, in the lab of [`bridge`](super::bridge).

mod attack;
pub mod bulk;
mod callgrind;
mod far;
mod files;
mod idle;
pub mod in_memory;
mod recovery;
mod stage;
mod subject;

pub use attack::Attack;
pub use callgrind::{Counted, check as check_callgrind};
pub use far::{FarServer, FarStack};
pub use files::{File, PAPERS, SMALL, write_files};
pub use idle::IdleClients;
pub use recovery::arrivals_after;
pub use stage::{Load, Memory, Offered, Sample, Stage};
pub use subject::{Carrier, PORT, Placement, SILENT_PORT, Subject};

use softclock::fs::raise_descriptor_limit;

use super::lrp;
use crate::servers::{nginx, version};

/// Checks that the setup can be created on this machine, and raises the limit of descriptors, which servers inherit.
///
/// # Errors
/// The missing requirement, as the end of a sentence.
pub fn check() -> Result<(), String> {
    raise_descriptor_limit();
    lrp::check()
}

/// Returns the versions of the peers, as a note.
pub fn versions() -> String {
    let peers = [
        ("nginx", nginx::program(), "-v"),
        ("nftables", "nft", "--version"),
    ];
    let version = |(name, program, argument): (&str, &str, &str)| match version(program, argument) {
        Some(version) => format!("{name} {version}"),
        None => format!("{name} is not installed"),
    };
    peers.map(version).join("; ")
}
