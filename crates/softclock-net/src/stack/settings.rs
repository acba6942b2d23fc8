//! The settings of a stack.

use core::time::Duration;

use super::{Steering, TcpSettings};
use crate::channel::ChannelLimits;
use crate::ip::fragments::ReassemblyLimits;
use crate::link::LinkAddress;
use crate::neighbors::NeighborSettings;

/// When received packets are demultiplexed, and when the protocols process them (*LRP*, section 4). The four
/// architectures differ in nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Architecture {
    /// Eager: all frames wait in one shared queue, which [`process`](super::Stack::process) empties before any receiver
    /// runs. Overload discards packets that were already worked for.
    Bsd,
    /// Frames are demultiplexed as they arrive, and discarded if their endpoint has no room. Those that remain are
    /// processed eagerly.
    EarlyDemux,
    /// Frames are demultiplexed as they arrive, into the channel of their endpoint. The protocols process them when the
    /// receiver asks for them, in [`receive`](super::Stack::receive).
    #[default]
    SoftLrp,
    /// The network interface demultiplexes frames into a ring for each endpoint, and discards those that find it full.
    /// The protocols process a frame when the receiver takes it from the ring, in
    /// [`receive_next`](super::Stack::receive_next). Frames without a ring are handled as by
    /// [`SoftLrp`](Self::SoftLrp).
    NiLrp,
}

impl Architecture {
    /// All architectures, from the most eager on.
    pub const ALL: [Self; 4] = [Self::Bsd, Self::EarlyDemux, Self::SoftLrp, Self::NiLrp];

    /// The name in options and reports: `bsd`, `early-demux`, `soft-lrp` or `ni-lrp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bsd => "bsd",
            Self::EarlyDemux => "early-demux",
            Self::SoftLrp => "soft-lrp",
            Self::NiLrp => "ni-lrp",
        }
    }

    /// Whether the protocols run when the receiver asks, and not before.
    pub const fn is_lazy(self) -> bool {
        matches!(self, Self::SoftLrp | Self::NiLrp)
    }
}

/// The settings of a [`Stack`](super::Stack). [`new`](Self::new) has a default for all but the link.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// When packets are demultiplexed and processed.
    pub architecture: Architecture,
    /// The stack's own address on the link.
    pub link_address: LinkAddress,
    /// The length of the longest IP packet that the link carries, in bytes: 1280 or more if the stack has addresses of
    /// IPv6, else 576 or more.
    pub mtu: usize,
    /// Whether the device completes the checksums of segments of TCP, and cuts long ones into several as the
    /// [`Offload`](softclock_wire::packet::Offload) of each frame says. Frames must then be taken by
    /// [`next_link_frame`](super::Stack::next_link_frame). By default false.
    pub offloads_tcp: bool,
    /// The limits of an endpoint's channel: packets that have arrived and that the receiver has not taken yet.
    pub channel: ChannelLimits,
    /// The limits of the shared queue between demultiplexing and eager processing ([`Architecture::Bsd`] and
    /// [`Architecture::EarlyDemux`]).
    pub ip_queue: ChannelLimits,
    /// The limits of the channel of ARP, neighbor discovery, ICMP, and datagrams without an endpoint.
    pub control: ChannelLimits,
    /// The limits of the channel of fragments that wait for reassembly.
    pub fragments: ChannelLimits,
    /// The limits of reassembly.
    pub reassembly: ReassemblyLimits,
    /// The limits and times of the neighbor cache.
    pub neighbors: NeighborSettings,
    /// Whether the caller finds the link addresses of neighbors ([`next_question`](super::Stack::next_question)), and
    /// the stack sends no ARP and no neighbor discovery: for a stack that shares the addresses of its host.
    pub asks_caller: bool,
    /// The most frames that wait for the link.
    pub send_queue: usize,
    /// The most answers to echo requests of one sender in a second.
    pub echoes_of_source_per_second: u32,
    /// The most answers to echo requests in a second.
    pub echoes_per_second: u32,
    /// The most ICMP errors in a second that the stack sends, for instance about closed ports (RFC 1812, 4.3.2.8;
    /// RFC 4443, 2.4 f). By chance an error counts twice, so that other hosts cannot tell how many were sent.
    pub errors_per_second: u32,
    /// Connections.
    pub tcp: TcpSettings,
    /// The part of this stack, if several stacks have the connections of the same addresses.
    pub steering: Option<Steering>,
    /// The time after which a smaller path MTU is forgotten (RFC 8201, 4: 5 minutes or more).
    pub path_mtu_lifetime: Duration,
}

impl Settings {
    /// The default of [`channel`](Self::channel): 256 packets, about as many short datagrams as the default receive
    /// buffer of a socket of Linux holds (net.core.rmem_default). There are 2 KiB for each, so that on a link with an
    /// MTU of 1500 the number of packets is the limit, whatever their lengths.
    pub const CHANNEL: ChannelLimits = ChannelLimits {
        packets: 256,
        bytes: 256 * (2 << 10),
    };

    /// The defaults for a link.
    pub fn new(link_address: LinkAddress, mtu: usize) -> Self {
        Self {
            architecture: Architecture::default(),
            link_address,
            mtu,
            offloads_tcp: false,
            channel: Self::CHANNEL,
            ip_queue: IP_QUEUE,
            control: CONTROL,
            fragments: CONTROL,
            reassembly: ReassemblyLimits::default(),
            neighbors: NeighborSettings::default(),
            asks_caller: false,
            send_queue: 1024,
            echoes_of_source_per_second: 1000,
            echoes_per_second: 4000,
            errors_per_second: 1000,
            tcp: TcpSettings::default(),
            steering: None,
            path_mtu_lifetime: Duration::from_secs(600),
        }
    }
}

/// The queue is for all endpoints together. 4.4BSD has 50 packets (`ipqmaxlen`), for links of 10 Mbit/s.
const IP_QUEUE: ChannelLimits = ChannelLimits {
    packets: 1000,
    bytes: 2 << 20,
};

const CONTROL: ChannelLimits = ChannelLimits {
    packets: 128,
    bytes: 256 << 10,
};
