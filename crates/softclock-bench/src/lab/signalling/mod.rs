//! The setup of *Clocked Interrupts*, section 4: two hosts, a bulk transfer from one to the other, pings, and a
//! compute-bound process beside the receiver.
//!
//! ```text
//! processor 0                                    processor 1
//! sender 10.79.0.8, pings 10.79.0.1 --- veth --- receiver 10.79.0.7, compute-bound thread
//! ```
//!
//! Each host is a thread with a runtime and a stack of its own, by AF_XDP on its end of the link, or uses the kernel's
//! sockets. A kernel thread of each end, SCHED_FIFO, moves frames from the link to the stack: it stands for the network
//! interface, which works beside the processor's other threads.
//!
//! - [`Signal`]: how a host learns that frames have arrived.
//! - [`Bulk`]: both hosts, and the transfer between them; [`Flow`]: what a slice of it has moved, at which cost.
//! - [`Sink`]: a receiver of datagrams under a flood.
//! - [`ping`]: round trips of ICMP echo.
//! - `host`, `kernel`: the hosts.

mod bulk;
mod host;
mod kernel;
pub mod ping;
mod signal;
mod sink;

pub use bulk::{Bulk, Ends, Flow, Transfer};
pub use signal::{KernelSignal, Signal, policy_name};
pub use sink::Sink;

use std::net::Ipv4Addr;
use std::time::Duration;

use super::lrp::Level;
use softclock_net::link::LinkAddress;

/// The address of the receiver's stack.
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 7);
const RECEIVER_LINK_ADDRESS: LinkAddress = LinkAddress([2, 0, 0, 79, 0, 7]);
/// The address of the sender's stack.
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 8);
const SENDER_LINK_ADDRESS: LinkAddress = LinkAddress([2, 0, 0, 79, 0, 8]);
/// The port of the receiver.
const PORT: u16 = 5002;
/// The bytes of a call that sends or receives, as in the paper.
const MESSAGE_BYTES: usize = 32 << 10;
/// Above all threads of the hosts.
const DEVICE: Level = Level::RealTime(20);
/// The longest wait of a thread before it looks whether it has to stop.
const STOP_CHECK: Duration = Duration::from_millis(20);
