//! The settings of a stack.

use std::net::IpAddr;

use softclock_net::stack::Settings;

use super::{
    Architecture, CaptureOptions, ChannelLimits, InterruptDelay, LinkAddress, Prefix, TcpSettings,
    Transport,
};
use crate::signalling::Policy;

/// The settings of a stack. See the [module](super) for an example.
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
    /// [`DropReason::ChannelFull`](super::DropReason::ChannelFull). The ring of a socket with [`Architecture::NiLrp`]
    /// has as many packets, of up to 4 KiB.
    pub channel: ChannelLimits,
    /// The most UDP sockets at addresses of the stack at a time with [`Architecture::NiLrp`], as memory is reserved for
    /// the packets of each: 4 KiB for a packet within [`channel`](Self::channel). A socket that is closed during a
    /// flood counts until the kernel has finished with its last packets, usually less than a millisecond. The other
    /// architectures have no such limit.
    pub sockets: u32,
    /// The most TCP listeners at a time that have a ring of their own with [`Architecture::NiLrp`]: 4 by default, as
    /// memory of 8 MiB is reserved for each. A ring has 2048 segments, of all connections to the listener's port. SYNs
    /// take at most half of it, and are discarded while 256 of them wait in the stack, such as when the listener's
    /// owner does not accept. So a flood to one port harms no other. [`StackReport::rings`](super::StackReport::rings)
    /// lists the rings.
    ///
    /// A listener without a ring works, too: its SYNs share a ring of 128 frames with datagrams to closed ports, and
    /// its other segments one of 2048 with those of the connections that the stack opens. So do the connections of a
    /// listener that is closed. Listeners have no ring beyond this number, in threads other than the one that opened
    /// the stack, at an unspecified address for more than 16 addresses, and at an address and port of another ring. The
    /// ring of a closed listener counts until its last segments are processed. The other architectures have no such
    /// rings.
    pub listeners: u32,
    /// The threads with TCP sockets, at least 1: the one that opens the stack, and the first others that
    /// [join](super::StackShare::join). The hash of a connection's addresses and ports names the thread that has it. So
    /// each thread accepts the connections that are its own by a listener of its own at the same port, and those to a
    /// thread without one are refused. These limits are divided among the threads: connections, half-open connections,
    /// memory, connections without an owner, connections in TIME-WAIT, resets, and challenge ACKs in a second.
    ///
    /// With AF_XDP on an interface of several queues, each thread receives from the queues whose numbers, modulo the
    /// number of threads, are its own number, and sends by the first of them. The thread that opened the stack receives
    /// from the queues of threads that are not there, and by other mechanisms all frames. Frames for another thread are
    /// handed to it: a copy of each, in a queue of 2048. Frames that find it full, or a thread that has not joined, are
    /// discarded and counted as [`DropReason::HandoverFull`](super::DropReason::HandoverFull).
    ///
    /// When a thread ends, its connections are reset, and other threads with a listener at the port accept those that
    /// the hash gives to it, until another runtime joins in its place.
    pub threads: usize,
    /// The limits, times and options of TCP: each field of [`TcpSettings`], and of the settings in it, has its unit,
    /// its default and the RFC that it follows. [`TcpSettings::check`] has the ranges, which [`open`](super::open)
    /// enforces.
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
    /// How the threads of the stack learn of frames: by default each arrival wakes a thread that waits, and a loaded
    /// thread looks at soft events ([`Policy::Automatic`]).
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
    /// The kernel then looks at the device once in [`InterruptDelay::timeout`] while frames arrive, in all queues of
    /// the interface, and frames of the host wait as well. The settings are undone when the stack ends, also if the
    /// process is killed: see [`DelayedInterrupts`](softclock_linux::link::DelayedInterrupts), which forks the process.
    /// A veth has interrupts to delay only with AF_XDP, and a TAP device never:
    /// [`StackError::Interrupts`](super::StackError::Interrupts) then.
    pub interrupts: Option<InterruptDelay>,
    /// Writes the frames that the stack receives and sends to a file. `None`, the default, for no capture.
    ///
    /// The file has each frame with its time of arrival, or the time at which it is handed to the device, on the
    /// system's clock as it was at the start. A frame that the stack drops when it demultiplexes it has the
    /// [`DropReason`](super::DropReason) as a comment; reasons that are found later, by the protocols, are only
    /// counted. The file has frames in the order in which the stack handles them, so that a frame sent may precede one
    /// that had arrived but waited in the device. Not in the file: frames that the XDP program discards, with
    /// [`Architecture::NiLrp`], and those lost in the device.
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
