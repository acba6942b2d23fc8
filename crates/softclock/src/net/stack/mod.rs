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
mod interface;
mod lane;
mod listener;
mod member;
mod open;
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
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::signalling::{Policy, SignallingReport};
use softclock_linux::link::{ClaimError, DeviceError, Link};
use softclock_net::stack::Settings;

pub use softclock_linux::link::{DelayError, InterruptDelay, Transport};

pub use softclock_net::channel::Limits;
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
pub(crate) use listener::StackListener;
pub(crate) use member::MemberUdp;
pub use share::StackShare;
pub(crate) use tcp::StackTcp;
pub(crate) use udp::StackUdp;

/// The settings of a stack. See the [module](self) for an example.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StackOptions {
    /// The interface: the name of an existing one, or `tap:NAME` for a TAP device to create, whose other end is the
    /// host's.
    pub interface: String,
    /// How frames are received and sent. A TAP device has its own way.
    pub mechanism: StackMechanism,
    /// The stack's own addresses, each with the prefix of its network: at least one. They must not be those of the
    /// host.
    pub addresses: Vec<Prefix>,
    /// Shares the host's addresses on the interface instead of having own ones, if given: the stack takes the packets
    /// to these ports, and the host keeps all others, with ARP, neighbor discovery and ICMP.
    ///
    /// [`addresses`](Self::addresses) and [`link_address`](Self::link_address) are the host's then and must be left
    /// out; so are [`gateways`](Self::gateways), unless they are given. The mechanism must be AF_XDP, which
    /// [`StackMechanism::Auto`] stands for. The host's kernel finds the link addresses of neighbors. The ports must be
    /// free at the host, and stay reserved while the stack is open. Sockets at other ports are the kernel's, and so are
    /// [`TcpStream`](crate::net::TcpStream)s that connect. What comes in fragments, or behind extension headers of
    /// IPv6, goes to the host.
    pub host_ports: Option<Vec<(Transport, u16)>>,
    /// Routers to the networks that no address is part of, at most one for each version of IP.
    pub gateways: Vec<IpAddr>,
    /// The stack's own address on the link. `None` for a random one that is locally administered.
    pub link_address: Option<LinkAddress>,
    /// The longest packet in bytes, at least 576; by default the MTU of the interface, which is never exceeded. A TAP
    /// device gets it as its MTU, which is 1500 otherwise. IPv6 needs at least 1280.
    pub mtu: Option<u16>,
    /// When packets are demultiplexed and processed.
    ///
    /// With [`Architecture::NiLrp`] the XDP program demultiplexes, into a ring for each UDP socket and for the port of
    /// each TCP [listener](Self::listeners): the mechanism must be AF_XDP (which [`StackMechanism::Auto`] stands for
    /// then, with copies or without) on an existing interface, and UDP sockets at one address and at an unspecified one
    /// cannot have the same port. Packets to a socket that come in fragments are put together by the stack, on its own
    /// account, as in the other architectures.
    pub architecture: Architecture,
    /// The limits of a socket's channel. Packets beyond them are discarded, and counted as
    /// [`DropReason::ChannelFull`]. The ring of a socket with [`Architecture::NiLrp`] has as many packets, of up to 4
    /// KiB.
    pub channel: Limits,
    /// The most UDP sockets at addresses of the stack at a time with [`Architecture::NiLrp`], as memory is reserved for
    /// the packets of each: 4 KiB for a packet within [`channel`](Self::channel). A socket that is closed during a
    /// flood counts until the kernel has finished with its last packets, usually less than a millisecond. The other
    /// architectures have no such limit.
    pub sockets: u32,
    /// The most TCP listeners at a time that have a ring of their own with [`Architecture::NiLrp`]: 4 by default, as
    /// memory of 8 MiB is reserved for each. A ring has 2048 segments, of all connections to the listener's port. SYNs
    /// take at most half of it, and are discarded while 256 of them wait in the stack, such as when the listener's owner
    /// does not accept. So a flood to one port harms no other. [`StackReport::rings`] lists the rings.
    ///
    /// A listener without a ring works, too: its SYNs share a ring of 128 frames with datagrams to closed ports, and
    /// its other segments one of 2048 with those of the connections that the stack opens. So do the connections of a
    /// listener that is closed. Listeners have no ring beyond this number, in threads other than the one that opened
    /// the stack, at an unspecified address for more than 16 addresses, and at an address and port of another ring. The
    /// ring of a closed listener counts until its last segments are processed. The other architectures have no such
    /// rings.
    pub listeners: u32,
    /// The threads with TCP sockets, at least 1: the one that opens the stack, and the first others that
    /// [join](StackShare::join). The hash of a connection's addresses and ports names the thread that has it. So each
    /// thread accepts the connections that are its own by a listener of its own at the same port, and those to a thread
    /// without one are refused. The limits of connections, of their memory and of half-open ones are divided among the
    /// threads.
    ///
    /// With AF_XDP on an interface of several queues, each thread receives from the queues whose numbers, modulo the
    /// number of threads, are its own number, and sends by the first of them. The thread that opened the stack receives
    /// from the queues of threads that are not there, and by other mechanisms all frames. Frames for another thread are
    /// handed to it: a copy of each, in a queue of 2048. Frames that find it full, or a thread that has not joined, are
    /// discarded and counted as [`DropReason::HandoverFull`].
    ///
    /// When a thread ends, its connections are reset, and other threads with a listener at the port accept those that
    /// the hash gives to it, until another runtime joins in its place.
    pub threads: usize,
    /// The limits, times and options of TCP: each field of [`TcpSettings`], and of the settings in it, has its unit, its
    /// default and the RFC that it follows. [`TcpSettings::check`] has the ranges, which [`open`] enforces.
    ///
    /// The limits that [`threads`](Self::threads) names are divided; the others hold for each thread. A listener's
    /// backlog is that of its socket.
    ///
    /// ```
    /// use softclock::net::stack::{CookieUse, StackOptions};
    ///
    /// let mut options = StackOptions::new("eth0");
    /// options.tcp.listen.cookies = CookieUse::Always;
    /// options.tcp.connection.keep_alive.is_on = true;
    /// assert_eq!(options.tcp.check(), Ok(()));
    /// ```
    pub tcp: TcpSettings,
    /// How the threads of the stack learn of frames: by default each arrival wakes a thread that waits, and a loaded thread
    /// looks at soft events ([`Policy::Automatic`]).
    ///
    /// A virtual link has no device interrupt: the wake-up of the thread stands for it. A thread that has work looks at
    /// its devices by itself with policies that mask interrupts; how often depends on the policy and the load. Looks
    /// cost no system call with AF_XDP, and one with TAP and AF_PACKET.
    ///
    /// ```
    /// use softclock::net::stack::StackOptions;
    /// use softclock::signalling::{LatencyBound, Policy, Quota};
    ///
    /// let mut options = StackOptions::new("eth0");
    /// let bound = LatencyBound::default();
    /// options.signalling = Policy::SoftPoll { quota: Quota::packets(5).unwrap(), bound };
    /// ```
    pub signalling: Policy,
    /// Delays the interrupts of the interface while the stack is open. `None`, the default, for the interface's own
    /// settings.
    ///
    /// The kernel then looks at the device once in [`InterruptDelay::timeout`] while frames arrive, in all queues of the
    /// interface, and frames of the host wait as well. The settings are undone when the stack ends, also if the process is
    /// killed: see [`DelayedInterrupts`](softclock_linux::link::DelayedInterrupts), which forks the process. A veth has
    /// interrupts to delay only with AF_XDP, and a TAP device never: [`StackError::Interrupts`] then.
    pub interrupts: Option<InterruptDelay>,
    /// Writes the frames that the stack receives and sends to a file. `None`, the default, for no capture.
    ///
    /// The file has each frame with its time of arrival, or the time at which it is handed to the device, on the
    /// system's clock as it was at the start. A frame that the stack drops when it demultiplexes it has the
    /// [`DropReason`] as a comment; reasons that are found later, by the protocols, are only counted. The file has
    /// frames in the order in which the stack handles them, so that a frame sent may precede one that had arrived but
    /// waited in the device. Not in the file: frames that the XDP program discards, with [`Architecture::NiLrp`], and
    /// those lost in the device.
    ///
    /// Costs one or two copies of each frame. A thread writes them, every 10 ms while there are any, so that the stack
    /// does not wait for the disk; a process that is killed loses as much of its capture.
    pub capture: Option<CaptureOptions>,
}

impl StackOptions {
    /// The defaults for an interface, still without an address.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            mechanism: StackMechanism::Auto,
            addresses: Vec::new(),
            host_ports: None,
            gateways: Vec::new(),
            link_address: None,
            mtu: None,
            architecture: Architecture::SoftLrp,
            channel: Settings::CHANNEL,
            // 16 MiB with the default channel.
            sockets: 16,
            listeners: 4,
            threads: 1,
            tcp: TcpSettings::default(),
            signalling: Policy::default(),
            interrupts: None,
            capture: None,
        }
    }
}

/// How a stack shares an existing interface with the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum StackMechanism {
    /// AF_XDP if the driver supports it without copying, or if the architecture needs it; else AF_PACKET.
    #[default]
    Auto,
    /// AF_PACKET. The host sees the stack's frames, too, and ignores them, as they are to another link address.
    Packet,
    /// AF_XDP, in copy mode if the driver has no other. A program in the driver takes the frames for the stack's
    /// addresses and leaves the rest to the host.
    Xdp,
}

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

    /// Completes when the interface is deleted, or moved to another network namespace. Sockets of the stack receive
    /// nothing more then.
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

/// Why a stack cannot be opened, or has ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum StackError {
    /// No interface has this name.
    Find(String, io::Error),
    /// Another process of softclock uses the interface.
    Claim(String, ClaimError),
    /// The device cannot be opened.
    Open(DeviceError),
    /// No address was given.
    NoAddress,
    /// The addresses or routers contradict each other.
    Routes(RouteError),
    /// The host has this address, too.
    HostAddress(IpAddr),
    /// The host's addresses were to be shared, with AF_PACKET or a TAP device.
    HostNeedsXdp,
    /// The host's addresses were to be shared, and addresses of the stack's own were given.
    HostAndOwn,
    /// The host has no address on the interface that could be shared.
    NoHostAddress(String),
    /// The host's addresses were to be shared, without a port.
    NoHostPort,
    /// A port of the host cannot be reserved.
    HostPort(SocketAddr, io::Error),
    /// The longest packet is shorter than the second number of bytes: 576, or 1280 with an address of IPv6.
    MtuTooShort(u16, u16),
    /// The TAP device cannot have packets of this length.
    Mtu(u16, io::Error),
    /// A setting of TCP is out of its range, or contradicts another one.
    Tcp(TcpSettingsError),
    /// The runtime has a stack already.
    Exists,
    /// [`Architecture::NiLrp`] was asked for with AF_PACKET or a TAP device, where no XDP program can demultiplex.
    NeedsXdp,
    /// The runtime cannot watch the device, or there is no runtime on this thread.
    Watch(io::Error),
    /// The interrupts of this interface cannot be delayed.
    Interrupts(String, DelayError),
    /// The file of the capture cannot be created.
    Capture(PathBuf, io::Error),
    /// The interface was deleted.
    Gone(String),
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Find(interface, error) => write!(f, "cannot find interface {interface}: {error}"),
            Self::Claim(interface, ClaimError::Held(Some(process))) => {
                write!(f, "{interface} is in use by process {process}")
            }
            Self::Claim(interface, ClaimError::Held(None)) => {
                write!(f, "{interface} is in use by another process")
            }
            Self::Claim(interface, ClaimError::Io(error)) => {
                write!(f, "cannot claim {interface}: {error}")
            }
            Self::Open(error) => error.fmt(f),
            Self::NoAddress => f.write_str("a stack needs an address"),
            Self::Routes(error) => error.fmt(f),
            Self::HostAddress(address) => {
                write!(
                    f,
                    "{address} is an address of the host, and cannot be the stack's too"
                )
            }
            Self::HostNeedsXdp => f.write_str(
                "only AF_XDP shares the host's addresses, on an existing interface: otherwise the host, too, receives \
                 the packets to the ports, and refuses them",
            ),
            Self::HostAndOwn => f.write_str(
                "a stack that shares the host's addresses has no address of its own, on the link neither",
            ),
            Self::NoHostAddress(interface) => {
                write!(f, "the host has no address on {interface} to share")
            }
            Self::NoHostPort => f.write_str("a stack that shares the host's addresses needs a port"),
            Self::HostPort(address, error) => {
                write!(f, "cannot take {address} from the host: {error}")
            }
            Self::MtuTooShort(bytes, least) => {
                write!(f, "an MTU of {bytes} is too short: choose at least {least}")
            }
            Self::Mtu(bytes, error) => write!(
                f,
                "the TAP device cannot have an MTU of {bytes}: {error}; choose a lower one"
            ),
            Self::Tcp(error) => error.fmt(f),
            Self::Exists => f.write_str("the runtime has a stack already"),
            Self::NeedsXdp => f.write_str(
                "ni-lrp needs AF_XDP, whose program demultiplexes, on an existing interface",
            ),
            Self::Watch(error) => write!(f, "cannot watch the device: {error}"),
            Self::Interrupts(interface, error) => {
                write!(f, "cannot delay the interrupts of {interface}: {error}")
            }
            Self::Capture(path, error) => {
                write!(f, "cannot create the capture {}: {error}", path.display())
            }
            Self::Gone(interface) => write!(f, "{interface} is gone"),
        }
    }
}

impl std::error::Error for StackError {}

/// The pause between two looks at connections that are being closed.
const FLUSH_PAUSE: Duration = Duration::from_millis(2);
