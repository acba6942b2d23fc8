//! Endpoints: a bound port, the channel of the packets that arrive for it, and its counters.

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::ops::{Deref, Range};

use softclock_core::Instant;

use super::absent::Route;
use super::slots::SlotId;
use crate::channel::{Channel, ChannelLimits};
use crate::checksum::Verify;
use crate::drops::{DropReason, Drops};
use crate::routes::Routes;

/// The number of an endpoint in its stack. The number of a closed endpoint is never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EndpointId(pub(super) SlotId);

/// A received datagram. Its payload stays in the frame it arrived in, unless it was reassembled from fragments.
#[derive(Debug)]
pub struct Datagram<B> {
    /// The sender.
    pub source: SocketAddr,
    /// The address that it was sent to: one of the stack's, or a group's.
    pub destination: IpAddr,
    /// The codepoint of explicit congestion notification, 0 to 3 (RFC 3168, 5).
    pub ecn: u8,
    /// When its frame arrived; of fragments, the last one's.
    pub arrived: Instant,
    pub(super) memory: Memory<B>,
    pub(super) payload: Range<usize>,
}

impl<B: Deref<Target = [u8]>> Datagram<B> {
    /// The bytes that the sender sent.
    pub fn payload(&self) -> &[u8] {
        self.memory
            .bytes()
            .get(self.payload.clone())
            .unwrap_or_default()
    }
}

/// The memory of a packet.
#[derive(Debug)]
pub(super) enum Memory<B> {
    /// The frame as the device delivered it.
    Frame(B),
    /// A copy: of a datagram to several endpoints, of fragments put together, or of a packet to the stack itself.
    Copy(Vec<u8>),
}

impl<B: Deref<Target = [u8]>> Memory<B> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Frame(frame) => frame,
            Self::Copy(bytes) => bytes,
        }
    }
}

/// The packets and datagrams of an endpoint so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EndpointCounts {
    /// Datagrams that the receiver took.
    pub received: u64,
    /// The payload of these datagrams, in bytes.
    pub received_bytes: u64,
    /// Datagrams that were sent.
    pub sent: u64,
    /// Packets for this endpoint that were dropped, by reason.
    pub drops: Drops,
}

/// An error that the network reported about a datagram which a connected endpoint had sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NetworkError {
    /// The receiver has no endpoint at this port (ECONNREFUSED).
    Refused,
    /// A router has no way to the receiver (EHOSTUNREACH).
    HostUnreachable,
    /// The datagram was longer than the path allows; the stack has noted the length that is allowed (EMSGSIZE).
    TooLong,
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the receiver refused a datagram: its port is closed",
            Self::HostUnreachable => "no route leads to the receiver",
            Self::TooLong => "a datagram was longer than the path allows",
        })
    }
}

impl core::error::Error for NetworkError {}

/// A frame that waits for the protocols.
#[derive(Debug)]
pub(super) struct Arrived<B> {
    pub(super) memory: Memory<B>,
    pub(super) at: Instant,
    pub(super) verify: Verify,
    /// Whether the stack has sent it to itself.
    pub(super) is_own: bool,
    /// Whether its verdict is counted, or shall not be: it is no frame of the device, or was demultiplexed before.
    pub(super) is_counted: bool,
    /// How it has come to this stack, if several have the same addresses.
    pub(super) route: Route,
}

impl<B: Deref<Target = [u8]>> Arrived<B> {
    pub(super) fn copied(&self) -> Self {
        Self {
            memory: Memory::Copy(self.memory.bytes().into()),
            at: self.at,
            verify: self.verify,
            is_own: self.is_own,
            is_counted: self.is_counted,
            route: self.route,
        }
    }
}

/// A packet that was demultiplexed to an endpoint and that its receiver has not taken yet.
///
/// [`take_pending`](super::Stack::take_pending) takes it out of the channel as it is, so that another thread can do the
/// protocols' work for it.
#[derive(Debug)]
pub struct Pending<B>(pub(super) Waiting<B>);

impl<B: Deref<Target = [u8]>> Pending<B> {
    /// A copy in memory of its own, beside packets in memory of another kind.
    pub fn copied<C>(&self) -> Pending<C> {
        let copied = |memory: &Memory<B>| Memory::Copy(memory.bytes().into());
        Pending(match &self.0 {
            Waiting::Frame(frame) => Waiting::Frame(Arrived {
                memory: copied(&frame.memory),
                at: frame.at,
                verify: frame.verify,
                is_own: frame.is_own,
                is_counted: frame.is_counted,
                route: frame.route,
            }),
            Waiting::Datagram(datagram) => Waiting::Datagram(Datagram {
                source: datagram.source,
                destination: datagram.destination,
                ecn: datagram.ecn,
                arrived: datagram.arrived,
                memory: copied(&datagram.memory),
                payload: datagram.payload.clone(),
            }),
        })
    }

    /// The length of the packet in memory.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Waiting::Frame(frame) => frame.memory.bytes().len(),
            Waiting::Datagram(datagram) => datagram.memory.bytes().len(),
        }
    }

    /// Does the protocols' work that remains. `routes` are those of the stack that the packet was taken from.
    ///
    /// # Errors
    /// The reason for which the packet is dropped.
    pub fn into_datagram(self, routes: &Routes) -> Result<Datagram<B>, DropReason> {
        match self.0 {
            Waiting::Frame(frame) => frame.into_datagram(routes),
            Waiting::Datagram(datagram) => Ok(datagram),
        }
    }
}

/// A frame that the network interface has demultiplexed into the ring of an endpoint ([`Architecture::NiLrp`]).
///
/// [`Architecture::NiLrp`]: super::Architecture::NiLrp
#[derive(Debug)]
pub struct RingFrame<B> {
    /// The frame, from the Ethernet header on.
    pub bytes: B,
    /// When it arrived.
    pub arrived: Instant,
    /// Whether the checksum of its transport layer is to be verified.
    pub verify: Verify,
}

/// The result of [`receive_next`](super::Stack::receive_next).
#[derive(Debug)]
pub enum Taken<B> {
    /// A datagram of the endpoint.
    Datagram(Datagram<B>),
    /// A packet that was dropped, or that another endpoint or the stack itself has to handle. More may have arrived.
    Other,
    /// Nothing has arrived.
    Nothing,
}

/// A queue of the network interface ([`Architecture::NiLrp`]).
///
/// [`Architecture::NiLrp`]: super::Architecture::NiLrp
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ring {
    /// The frames to an endpoint.
    Endpoint(EndpointId),
    /// Segments of TCP: of the connections and SYNs of a listener's port, or of other ports.
    Segments,
    /// Control packets, and datagrams and SYNs without an endpoint.
    Control,
    /// Fragments.
    Fragments,
}

/// The fields of the IP headers of the datagrams that an endpoint sends, and whether this stack receives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramOptions {
    /// Six bits of DSCP (RFC 2474), two bits of ECN (RFC 3168). The default is 0.
    pub traffic_class: u8,
    /// The hop limit of datagrams that are not sent to groups; 0 counts as 1. The default is 64, as in Linux.
    pub hop_limit: u8,
    /// The hop limit of datagrams to groups: 0 for this stack, 1, the default, for the link (RFC 1112, 6.1).
    pub group_hop_limit: u8,
    /// Whether members on this stack receive datagrams to groups. The default is yes.
    pub loops_groups: bool,
}

impl Default for DatagramOptions {
    fn default() -> Self {
        Self {
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
            group_hop_limit: 1,
            loops_groups: true,
        }
    }
}

impl DatagramOptions {
    /// The hop limit of datagrams to this destination.
    pub(super) const fn hop_limit_to(&self, destination: IpAddr) -> u8 {
        match destination.is_multicast() {
            true => self.group_hop_limit,
            false if self.hop_limit == 0 => 1,
            false => self.hop_limit,
        }
    }
}

/// An entry of an endpoint's channel.
#[derive(Debug)]
pub(super) enum Waiting<B> {
    /// A frame that was only demultiplexed.
    Frame(Arrived<B>),
    /// A datagram that the protocols have processed.
    Datagram(Datagram<B>),
}

/// A bound port.
#[derive(Debug)]
pub(super) struct Endpoint<B> {
    /// The address and port as they were bound.
    pub(super) local: (IpAddr, u16),
    /// The address that datagrams are sent from, if it is known: bound, or that of the route to `remote`.
    pub(super) source: Option<IpAddr>,
    pub(super) remote: Option<SocketAddr>,
    pub(super) options: DatagramOptions,
    /// The groups that the endpoint has joined.
    pub(super) groups: Vec<IpAddr>,
    pub(super) channel: Channel<Waiting<B>>,
    pub(super) counts: EndpointCounts,
    pub(super) error: Option<NetworkError>,
    /// Whether the endpoint is in the stack's list of woken endpoints.
    pub(super) is_woken: bool,
    /// Whether the channel goes before the ring of the network interface when the receiver asks next.
    pub(super) is_channel_next: bool,
}

impl<B> Endpoint<B> {
    pub(super) fn new(local: (IpAddr, u16), limits: ChannelLimits) -> Self {
        Self {
            source: (!local.0.is_unspecified()).then_some(local.0),
            local,
            remote: None,
            options: DatagramOptions::default(),
            groups: Vec::new(),
            channel: Channel::new(limits),
            counts: EndpointCounts::default(),
            error: None,
            is_woken: false,
            is_channel_next: false,
        }
    }

    /// The address that the endpoint is bound to, if that is one and can be a source.
    pub(super) fn bound_source(&self) -> Option<IpAddr> {
        let address = self.local.0;
        (!address.is_unspecified() && !address.is_multicast()).then_some(address)
    }

    /// Whether the endpoint receives from this remote endpoint.
    pub(super) fn accepts(&self, remote: (IpAddr, u16)) -> bool {
        self.remote
            .is_none_or(|connected| (connected.ip(), connected.port()) == remote)
    }

    /// Counts a packet that was dropped on its way to the receiver.
    pub(super) fn count(&mut self, reason: DropReason) {
        self.counts.drops.count(reason);
    }
}

/// The default of RFC 1700 and of Linux.
pub(super) const HOP_LIMIT: u8 = 64;
