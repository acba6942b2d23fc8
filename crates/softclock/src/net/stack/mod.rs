//! A network stack in this process, whose receive side is lazy (*Lazy Receiver Processing*, OSDI 1996).
//!
//! [`open`] gives the current runtime a stack on an interface, with addresses of its own. From then on,
//! [`UdpSocket`](crate::net::UdpSocket)s and [`TcpListener`](crate::net::TcpListener)s that are bound to one of these
//! addresses, or to an unspecified one, belong to the stack, and those bound to other addresses to the kernel. A
//! [`TcpStream`](crate::net::TcpStream) belongs to the stack if the stack has a route to its peer, loopback addresses
//! excepted.
//!
//! A frame that arrives is only demultiplexed, into the bounded channel of its socket, and discarded there if the
//! channel is full. The work of IP, UDP and TCP is done when the socket's owner receives or sends. So a flood costs its
//! own receiver, and not the tasks beside it. [`StackOptions::architecture`] selects the eager alternatives of the
//! paper, for comparison.
//!
//! The host keeps its own addresses, and its own traffic is untouched: see [`StackOptions::mechanism`]. The stack
//! answers ARP, neighbor discovery and echo requests for its addresses. It ends with the runtime or the process, which
//! leaves nothing behind.
//!
//! - `options`, `error`: the settings, and why a stack cannot be opened.
//! - `open`: opens the interface; `interface`: a device, or the channels of NI-LRP.
//! - `driver`: frames from the interface to the sockets and back; `udp`: UDP sockets; `ring`: their rings with NI-LRP.
//! - `capture`: a file with the frames, for Wireshark.
//! - `tcp`, `listener`: TCP connections and listeners.
//! - `share`: a stack that other threads join; `shared`: the part that they reach; `member`: their UDP sockets; `lane`:
//!   frames to their connections; `queues`: the queues of the interface that a thread receives from.
//!
//! # Example
//! ```no_run
//! use softclock::net::UdpSocket;
//! use softclock::net::stack::{self, StackOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! softclock::Runtime::new()?.block_on(async {
//!     let mut options = StackOptions::new("eth0");
//!     options.addresses.push("192.0.2.7/24".parse()?);
//!     options.gateways.push("192.0.2.1".parse()?);
//!     let stack = stack::open(&options)?;
//!
//!     let echo = UdpSocket::bind(([192, 0, 2, 7], 7))?;
//!     let mut buffer = [0; 2048];
//!     for _ in 0..10 {
//!         let (length, peer) = echo.recv_from(&mut buffer).await?;
//!         echo.send_to(&buffer[..length], peer).await?;
//!     }
//!     println!("{:?}", stack.report().drops);
//!     Ok(())
//! })
//! # }
//! ```

mod capture;
mod channels;
mod driver;
mod error;
mod interface;
mod lane;
mod listener;
mod member;
mod open;
mod options;
mod queues;
mod random;
mod received;
mod ring;
mod share;
mod shared;
mod taking;
mod tcp;
mod udp;

use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use softclock_linux::link::Link;

use crate::signalling::SignallingReport;

pub use softclock_linux::link::{DelayError, InterruptDelay, Transport};

pub use softclock_net::channel::ChannelLimits;
pub use softclock_net::drops::{DropReason, Drops};
pub use softclock_net::link::LinkAddress;
pub use softclock_net::routes::{Prefix, RouteError};
pub use softclock_net::stack::{
    Architecture, StackCounts, TcpCounts, TcpReport, TcpSettings, TcpSettingsError,
};
pub use softclock_net::tcp::challenge::ChallengeCounts;
pub use softclock_net::tcp::keepalive::KeepAlive;
pub use softclock_net::tcp::listen::{CookieUse, ListenSettings, ListenStats, SharedSettings};
pub use softclock_net::tcp::peer::EcnMode;
pub use softclock_net::tcp::receive::ReceiveSettings;
pub use softclock_net::tcp::send::{RetransmissionCause, SendEvent, SendSettings};
pub use softclock_net::tcp::settings::{Linger, Settings as ConnectionSettings};
pub use softclock_net::tcp::state::State as TcpState;
pub use softclock_net::tcp::time_wait::TimeWaitSettings;

pub use capture::{CaptureEnd, CaptureOptions, CaptureReport};
pub use channels::{RingKind, RingReport};

use driver::Driver;
pub use error::StackError;
pub(crate) use listener::StackListener;
pub(crate) use member::MemberUdp;
pub use options::{StackMechanism, StackOptions};
pub use share::StackShare;
pub(crate) use tcp::StackTcp;
pub(crate) use udp::StackUdp;

/// Gives the current runtime a stack. A runtime has at most one.
///
/// # Errors
/// [`StackError`]. Needs CAP_NET_RAW for AF_PACKET, CAP_NET_ADMIN for TAP devices, and also CAP_BPF for AF_XDP.
pub fn open(options: &StackOptions) -> Result<Stack, StackError> {
    let driver = open::open(options)?;
    driver.start().map_err(StackError::Watch)?;
    Ok(Stack(driver))
}

/// Waits until the peers of all connections that the current runtime has closed have acknowledged everything, the ends
/// included. Returns at once without a stack.
///
/// The kernel goes on sending for a process that has ended, but a stack ends with its runtime, and what is left in its
/// send buffers is lost. So a server awaits this before its runtime ends; under a [timeout](crate::timeout), since a
/// peer that does not read is waited for as long as its window stays closed. Looks every 2 ms.
///
/// # Cancel safety
/// Cancel-safe: it only looks.
pub async fn flushed() {
    while unflushed() > 0 {
        crate::sleep(FLUSH_PAUSE).await;
    }
}

/// The number of connections that [`flushed`] waits for.
pub fn unflushed() -> usize {
    Driver::current().map_or(0, |driver| driver.closing_connections())
}

/// Lists the host's addresses on an interface: those that a stack [shares](StackOptions::host_ports).
///
/// # Errors
/// [`StackError::Find`], [`StackError::HostNeedsXdp`] for a TAP device, and [`StackError::NoHostAddress`].
pub fn host_addresses(interface: &str) -> Result<Vec<Prefix>, StackError> {
    if interface.starts_with(open::TAP) {
        return Err(StackError::HostNeedsXdp);
    }
    let listed = Link::named(interface).and_then(|link| open::host_addresses(&link));
    let listed = listed.map_err(|error| StackError::Find(interface.into(), error))?;
    match listed.is_empty() {
        false => Ok(listed),
        true => Err(StackError::NoHostAddress(interface.into())),
    }
}

/// The stack of a runtime. Dropping this leaves the stack open.
#[derive(Clone)]
pub struct Stack(Rc<Driver>);

impl Stack {
    /// The counters so far.
    pub fn report(&self) -> StackReport {
        self.0.report()
    }

    /// Lets other threads have sockets on this stack: each runtime that [joins](StackShare::join) has its own channels
    /// and does its own protocol work.
    pub fn share(&self) -> StackShare {
        StackShare(self.0.share())
    }

    /// The stack's addresses.
    pub fn addresses(&self) -> Vec<Prefix> {
        self.0.addresses()
    }

    /// The ports that the stack takes at the host's addresses; `None` if its addresses are its own.
    pub fn host_ports(&self) -> Option<Vec<(Transport, u16)>> {
        self.0.ports().map(Vec::from)
    }

    /// The stack's address on the link.
    pub fn link_address(&self) -> LinkAddress {
        self.0.link_address()
    }

    /// The mechanism in use: `packet`, `xdp` or `tap`.
    pub fn mechanism(&self) -> &'static str {
        self.0.mechanism()
    }

    /// The architecture.
    pub fn architecture(&self) -> Architecture {
        self.0.architecture()
    }

    /// The name of the interface.
    pub fn interface(&self) -> &str {
        self.0.interface()
    }

    /// Completes when the [capture](StackOptions::capture) has ended early, since its limit is reached or its file
    /// cannot be written; the stack goes on. Never completes without a capture.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has not taken the end.
    pub async fn capture_ended(&self) -> CaptureEnd {
        poll_fn(|cx| self.0.poll_capture_ended(cx)).await
    }

    /// Ends the capture, if there is one, and blocks until its file is written; [`report`](Self::report) then tells
    /// whether it could be. The end of the stack does the same.
    pub fn finish_capture(&self) {
        self.0.finish_capture();
    }

    /// Completes when the host has removed, or added again, one of the addresses that the stack
    /// [shares](StackOptions::host_ports) with it: once for each change, in one task. Never completes without shared
    /// addresses.
    ///
    /// The stack goes on to take the packets to a removed address. But the host no longer answers ARP and neighbor
    /// discovery for it, so that only hosts that remember its link address reach the stack.
    ///
    /// # Cancel safety
    /// Cancel-safe: a change that a dropped future has not returned is returned by the next.
    pub async fn host_address_changed(&self) -> HostAddressChange {
        poll_fn(|cx| self.0.poll_host_address(cx)).await
    }

    /// Completes when the interface is deleted, or moved to another network namespace. Calls of the stack's sockets, in
    /// all threads, then fail with [`NetworkDown`](std::io::ErrorKind::NetworkDown) once they have read what had arrived.
    ///
    /// # Cancel safety
    /// Cancel-safe: a later call completes at once.
    pub async fn ended(&self) -> StackError {
        self.0.ended().await
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("interface", &self.interface())
            .field("mechanism", &self.mechanism())
            .finish_non_exhaustive()
    }
}

/// The host has removed or added an address that a stack shares with it. As text, it says what follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HostAddressChange {
    /// The address.
    pub address: IpAddr,
    /// Whether the host has it now.
    pub is_present: bool,
}

impl fmt::Display for HostAddressChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        match self.is_present {
            true => write!(
                f,
                "the host has {address} again: clients reach it as before"
            ),
            false => write!(
                f,
                "the host has removed {address}: new clients do not find it until the host has it again"
            ),
        }
    }
}

/// The counters of a stack since it was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StackReport {
    /// Frames and datagrams.
    pub counts: StackCounts,
    /// Packets that the stack dropped, by reason.
    pub drops: Drops,
    /// Frames lost because the device's receive buffer was full, before the stack could look at them; `None` if the
    /// count is not available.
    pub lost: Option<u64>,
    /// Frames that the link refused to send.
    pub refused: u64,
    /// The capture, if there is one.
    pub capture: Option<CaptureReport>,
    /// TCP: connections at present, segments, retransmissions, and handshakes.
    pub tcp: TcpReport,
    /// The frames of each thread, by the numbers of the threads.
    pub threads: Vec<ThreadFrames>,
    /// The rings that the stack itself receives from, with [`Architecture::NiLrp`]; those of sockets are not among
    /// them.
    pub rings: Vec<RingReport>,
    /// How the stack's threads have learned of frames; `None` in the report of no stack.
    pub signalling: Option<SignallingReport>,
}

/// The frames that a thread has received and sent by the device, or by queues of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ThreadFrames {
    /// Frames that it has received, whichever thread they were for.
    pub received: u64,
    /// Frames that it has sent, for whichever thread.
    pub sent: u64,
}

/// The pause between two looks at connections that are being closed.
const FLUSH_PAUSE: Duration = Duration::from_millis(2);
