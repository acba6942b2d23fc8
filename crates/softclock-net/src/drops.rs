//! Why packets are dropped, and how many were dropped for each reason.

use core::fmt;

/// The reason for which the stack dropped a packet. Each packet that is dropped counts once, for one reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum DropReason {
    /// The frame is shorter than an Ethernet header, or a header of the network layer is cut off.
    TooShort,
    /// The frame is addressed to another host on the link.
    OtherHost,
    /// The frame carries neither IPv4 nor IPv6 nor ARP, or it has a VLAN tag.
    EtherType,
    /// A field of the IP header contradicts another, or the length of the packet.
    IpHeader,
    /// The checksum of the IPv4 header is wrong.
    IpChecksum,
    /// A source route, or an option that a host must not accept.
    IpOption,
    /// The source address cannot be that of a single host.
    IpSource,
    /// The destination is none of the stack's addresses and groups.
    NotOurAddress,
    /// No protocol of the stack has this number.
    Protocol,
    /// A fragment contradicts its length, its place, or another fragment of the same packet.
    FragmentInvalid,
    /// A fragment overlaps another of the same packet (RFC 5722, RFC 8200 section 4.5).
    FragmentOverlap,
    /// The memory for fragments is in use.
    FragmentMemory,
    /// Some fragments of a packet did not arrive in time.
    FragmentTimeout,
    /// A message of ARP is cut off or inconsistent.
    Arp,
    /// A message of neighbor discovery is cut off or inconsistent (RFC 4861, 7.1).
    NeighborDiscovery,
    /// A message of ICMP or ICMPv6 is cut off, or has a wrong checksum.
    Icmp,
    /// A request or an error for which the rate limit allows no answer.
    IcmpRate,
    /// A message of ICMP that the stack does not handle.
    IcmpIgnored,
    /// The lengths of a UDP datagram contradict each other.
    UdpHeader,
    /// The checksum of a UDP datagram is wrong, or missing over IPv6.
    UdpChecksum,
    /// The lengths of a TCP segment contradict each other.
    TcpHeader,
    /// The checksum of a TCP segment is wrong.
    TcpChecksum,
    /// The bytes of a TCP segment are outside the window, or behind the end of the stream.
    TcpWindow,
    /// The bytes of a TCP segment have arrived before.
    TcpDuplicate,
    /// A TCP segment would begin another range beyond a gap, and there are too many.
    TcpReassembly,
    /// No endpoint has this port.
    PortUnreachable,
    /// The channel of the endpoint was full: early discard.
    ChannelFull,
    /// The queue to the thread that has the connection was full, that thread has not joined, or too many segments were
    /// searched for among the threads after one of them had been replaced.
    HandoverFull,
    /// A SYN arrived while the listener had too many half-open connections, and cookies are off.
    TcpSynQueueFull,
    /// A handshake could not be completed since too many connections waited to be accepted.
    TcpAcceptQueueFull,
    /// An acknowledgment to a listener belongs to no half-open connection, and holds no valid SYN cookie.
    TcpBadCookie,
    /// The time stamp of a segment is older than that of an earlier one: an old duplicate (PAWS, RFC 7323 section 5).
    TcpTimestamp,
    /// A segment lies outside the receive window (RFC 9293, 3.10.7.4).
    TcpUnacceptable,
    /// A segment acknowledges bytes that were never sent, or so old ones that it may be forged (RFC 5961, 5.2).
    TcpAck,
    /// A RST or SYN inside the window, but without the exact sequence number: possibly forged (RFC 5961, 3 and 4).
    TcpBlindReset,
    /// The connection ignores such a segment in its present state.
    TcpState,
    /// The receive buffer of the connection, or the memory for all of them, was full.
    TcpMemory,
    /// The receive queue of the endpoint was full, after the protocol's work was done.
    SocketFull,
    /// The shared queue of IP packets was full.
    IpQueueFull,
    /// The channel of ARP, neighbor discovery and ICMP was full.
    ControlFull,
    /// The channel of fragments was full.
    FragmentsFull,
    /// The endpoint was closed while packets waited in its channel.
    Closed,
    /// No route leads to the destination.
    NoRoute,
    /// A packet to send is longer than its path allows, and must not be fragmented.
    TooLong,
    /// The next hop did not answer.
    NeighborUnreachable,
    /// Too many packets waited for the link addresses of their next hops.
    NeighborQueueFull,
    /// The link was slower than the stack: the queue of frames to send was full.
    SendQueueFull,
}

impl DropReason {
    /// All reasons, in the order of a packet's way through the stack.
    pub const ALL: [Self; 47] = [
        Self::TooShort,
        Self::OtherHost,
        Self::EtherType,
        Self::IpHeader,
        Self::IpChecksum,
        Self::IpOption,
        Self::IpSource,
        Self::NotOurAddress,
        Self::Protocol,
        Self::FragmentInvalid,
        Self::FragmentOverlap,
        Self::FragmentMemory,
        Self::FragmentTimeout,
        Self::Arp,
        Self::NeighborDiscovery,
        Self::Icmp,
        Self::IcmpRate,
        Self::IcmpIgnored,
        Self::UdpHeader,
        Self::UdpChecksum,
        Self::TcpHeader,
        Self::TcpChecksum,
        Self::TcpWindow,
        Self::TcpDuplicate,
        Self::TcpReassembly,
        Self::PortUnreachable,
        Self::ChannelFull,
        Self::HandoverFull,
        Self::TcpSynQueueFull,
        Self::TcpAcceptQueueFull,
        Self::TcpBadCookie,
        Self::TcpTimestamp,
        Self::TcpUnacceptable,
        Self::TcpAck,
        Self::TcpBlindReset,
        Self::TcpState,
        Self::TcpMemory,
        Self::SocketFull,
        Self::IpQueueFull,
        Self::ControlFull,
        Self::FragmentsFull,
        Self::Closed,
        Self::NoRoute,
        Self::TooLong,
        Self::NeighborUnreachable,
        Self::NeighborQueueFull,
        Self::SendQueueFull,
    ];

    /// The name in reports and metrics: lower case with underscores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::OtherHost => "other_host",
            Self::EtherType => "ether_type",
            Self::IpHeader => "ip_header",
            Self::IpChecksum => "ip_checksum",
            Self::IpOption => "ip_option",
            Self::IpSource => "ip_source",
            Self::NotOurAddress => "not_our_address",
            Self::Protocol => "protocol",
            Self::FragmentInvalid => "fragment_invalid",
            Self::FragmentOverlap => "fragment_overlap",
            Self::FragmentMemory => "fragment_memory",
            Self::FragmentTimeout => "fragment_timeout",
            Self::Arp => "arp",
            Self::NeighborDiscovery => "neighbor_discovery",
            Self::Icmp => "icmp",
            Self::IcmpRate => "icmp_rate",
            Self::IcmpIgnored => "icmp_ignored",
            Self::UdpHeader => "udp_header",
            Self::UdpChecksum => "udp_checksum",
            Self::TcpHeader => "tcp_header",
            Self::TcpChecksum => "tcp_checksum",
            Self::TcpWindow => "tcp_window",
            Self::TcpDuplicate => "tcp_duplicate",
            Self::TcpReassembly => "tcp_reassembly",
            Self::PortUnreachable => "port_unreachable",
            Self::ChannelFull => "channel_full",
            Self::HandoverFull => "handover_full",
            Self::TcpSynQueueFull => "tcp_syn_queue_full",
            Self::TcpAcceptQueueFull => "tcp_accept_queue_full",
            Self::TcpBadCookie => "tcp_bad_cookie",
            Self::TcpTimestamp => "tcp_timestamp",
            Self::TcpUnacceptable => "tcp_unacceptable",
            Self::TcpAck => "tcp_ack",
            Self::TcpBlindReset => "tcp_blind_reset",
            Self::TcpState => "tcp_state",
            Self::TcpMemory => "tcp_memory",
            Self::SocketFull => "socket_full",
            Self::IpQueueFull => "ip_queue_full",
            Self::ControlFull => "control_full",
            Self::FragmentsFull => "fragments_full",
            Self::Closed => "closed",
            Self::NoRoute => "no_route",
            Self::TooLong => "too_long",
            Self::NeighborUnreachable => "neighbor_unreachable",
            Self::NeighborQueueFull => "neighbor_queue_full",
            Self::SendQueueFull => "send_queue_full",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Counts of dropped packets by reason.
///
/// ```
/// use softclock_net::drops::{DropReason, Drops};
///
/// let mut drops = Drops::default();
/// drops.count(DropReason::ChannelFull);
/// drops.count(DropReason::ChannelFull);
/// assert_eq!(drops.of(DropReason::ChannelFull), 2);
/// assert_eq!(drops.iter().collect::<Vec<_>>(), [(DropReason::ChannelFull, 2)]);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Self([0; DropReason::ALL.len()])
    }
}

impl Drops {
    /// Counts one packet.
    pub const fn count(&mut self, reason: DropReason) {
        self.count_many(reason, 1);
    }

    /// Counts `packets` packets.
    pub const fn count_many(&mut self, reason: DropReason, packets: u64) {
        self.0[reason as usize] += packets;
    }

    /// Adds other counts.
    pub fn add(&mut self, more: &Self) {
        self.0
            .iter_mut()
            .zip(more.0)
            .for_each(|(to, packets)| *to += packets);
    }

    /// The packets dropped for this reason.
    pub const fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// The packets dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The reasons for which packets were dropped, with their number.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> {
        let counts = DropReason::ALL.into_iter().zip(self.0);
        counts.filter(|&(_, packets)| packets > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_reasons_is_in_the_order_of_their_numbers() {
        for (place, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(place, reason as usize, "{reason}");
        }
    }

    #[test]
    fn names_are_distinct() {
        let mut names = DropReason::ALL.map(DropReason::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
