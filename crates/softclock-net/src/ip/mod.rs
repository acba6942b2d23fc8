//! IP version 4 and 6: parsing and writing packets, fragmentation and reassembly (RFC 791, RFC 1122, RFC 8200).
//!
//! [`parse`] checks all that a host must check before it looks at the payload, except for the destination, which the
//! caller compares with its own addresses. A fragment goes to a [`Reassembly`](fragments::Reassembly). [`write_header`]
//! and [`fragments()`] are the sending side. [`arp`] and [`ndisc`] find the link addresses of neighbors.

pub mod arp;
pub mod fragments;
mod identifications;
pub mod ndisc;
mod v4;
mod v6;

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use softclock_wire::packet::ICMPV6;

use crate::checksum::Addresses;
use crate::drops::DropReason;

pub use identifications::Identifications;

/// A parsed packet, or a parsed fragment of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The sender, which can be a single host, and the receiver, which can be any address.
    pub addresses: Addresses,
    /// The protocol of the payload. In a fragment of IPv6 this is the header behind the fragment header, which can be
    /// another extension header.
    pub protocol: u8,
    /// The time to live of IPv4, or the hop limit of IPv6.
    pub hop_limit: u8,
    /// The type of service of IPv4, or the traffic class of IPv6: six bits of DSCP, two bits of ECN.
    pub traffic_class: u8,
    /// The place in the whole packet, if this is a fragment. An atomic fragment of IPv6 is a whole packet (RFC 6946).
    pub fragment: Option<Fragment>,
    /// Whether a fragment header of IPv6 is among the headers, be the fragment atomic or not.
    pub has_fragment_header: bool,
    /// The bytes behind all headers of the network layer, without padding of the link.
    pub payload: &'a [u8],
    /// The length of the headers in front of the payload, with options and extension headers.
    pub header_bytes: usize,
}

/// The place of a fragment in its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// The number that all fragments of a packet share. IPv4 uses the low 16 bits.
    pub identification: u32,
    /// The offset of the payload in that of the whole packet, in bytes: a multiple of 8.
    pub offset: usize,
    /// Whether other fragments follow behind this one.
    pub has_more: bool,
}

/// The fields of a packet to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Output {
    /// The sender and the receiver.
    pub addresses: Addresses,
    /// The protocol of the payload.
    pub protocol: u8,
    /// The time to live of IPv4, or the hop limit of IPv6.
    pub hop_limit: u8,
    /// The type of service of IPv4, or the traffic class of IPv6.
    pub traffic_class: u8,
    /// The number by which the receiver recognizes the fragments of the packet, from [`Identifications`]. It must not
    /// repeat for the same addresses while fragments can be in the network. A packet that must not be fragmented needs
    /// none (RFC 6864, 4.1). IPv4 takes the low 16 bits.
    pub identification: u32,
    /// Whether [`fragments()`] may cut the packet, and routers, too, if it is IPv4. Otherwise IPv4 sets "don't
    /// fragment", which path MTU discovery needs.
    pub may_fragment: bool,
}

/// The protocol of an IPv6 packet that ends with its headers (RFC 8200, 4.7).
pub(crate) const NO_NEXT_HEADER: u8 = 59;

/// The longest payload of an IPv4 packet without options.
pub const MOST_PAYLOAD_V4: usize = MOST_PACKET - v4::HEADER_BYTES;
/// The longest payload of an IPv6 packet without extension headers. Jumbograms are not supported.
pub const MOST_PAYLOAD_V6: usize = MOST_PACKET;

/// Parses a packet that begins with its IP header. Bytes behind the length in the header are padding and ignored.
///
/// Verifies the header checksum of IPv4, all lengths, options and extension headers. Refuses source routes, and sources
/// that are not a single host's address: groups, broadcast, loopback, `0.0.0.0/8`, and IPv4-mapped IPv6 addresses. The
/// unspecified address of IPv6 is a valid source only of ICMPv6 packets to a group, for the detection of duplicate
/// addresses (RFC 4862). Otherwise checks neither the destination nor the payload.
///
/// ```
/// use softclock_net::checksum::Addresses;
/// use softclock_net::ip::{self, Output};
///
/// let output = Output {
///     addresses: Addresses {
///         source: "10.0.0.1".parse().unwrap(),
///         destination: "10.0.0.2".parse().unwrap(),
///     },
///     protocol: 17,
///     hop_limit: 64,
///     traffic_class: 0,
///     identification: 1,
///     may_fragment: false,
/// };
/// let mut bytes = Vec::new();
/// ip::write_header(&output, 5, &mut bytes);
/// bytes.extend_from_slice(b"hello, and padding");
///
/// let packet = ip::parse(&bytes).unwrap();
/// assert_eq!(packet.addresses, output.addresses);
/// assert_eq!(packet.payload, b"hello");
/// ```
///
/// # Errors
/// [`DropReason::TooShort`] if a header is cut off, [`DropReason::IpHeader`], [`DropReason::IpChecksum`],
/// [`DropReason::IpOption`], [`DropReason::IpSource`] or [`DropReason::FragmentInvalid`].
pub fn parse(packet: &[u8]) -> Result<Packet<'_>, DropReason> {
    let parsed = match packet.first().ok_or(DropReason::TooShort)? >> 4 {
        4 => v4::parse(packet)?,
        6 => v6::parse(packet)?,
        _ => return Err(DropReason::IpHeader),
    };
    if !parsed.has_possible_source() {
        return Err(DropReason::IpSource);
    }
    if let Some(fragment) = parsed.fragment {
        parsed.end_of_fragment(fragment)?;
    }
    Ok(parsed)
}

/// Appends the header of a packet that is not fragmented. The payload must follow it.
///
/// `payload_bytes` is at most [`MOST_PAYLOAD_V4`] or [`MOST_PAYLOAD_V6`]. For a longer payload, which is an error of
/// the caller, the length field holds its highest value.
pub fn write_header(output: &Output, payload_bytes: usize, to: &mut Vec<u8>) {
    output.write(None, payload_bytes, to);
}

/// Appends the IP header that a packet which was put together from fragments would have had as one packet.
pub(crate) fn write_header_of_reassembled(packet: &Packet<'_>, to: &mut Vec<u8>) {
    let output = Output {
        addresses: packet.addresses,
        protocol: packet.protocol,
        hop_limit: packet.hop_limit,
        traffic_class: packet.traffic_class,
        identification: 0,
        may_fragment: true,
    };
    write_header(&output, packet.payload.len(), to);
}

/// Returns the packets that carry a payload over a link, each a whole IP packet of at most `mtu` bytes: one if the
/// payload fits, else fragments (RFC 791, RFC 8200 section 4.5), in order.
///
/// Returns none if the payload does not fit and [`Output::may_fragment`] is false, or if it is longer than any packet
/// can be. A fragment carries 8 bytes or more, so an `mtu` below 28 counts as 28 (IPv4), and below 56 as 56 (IPv6).
///
/// ```
/// use softclock_net::checksum::Addresses;
/// use softclock_net::ip::{self, Output};
///
/// let output = Output {
///     addresses: Addresses {
///         source: "2001:db8::1".parse().unwrap(),
///         destination: "2001:db8::2".parse().unwrap(),
///     },
///     protocol: 17,
///     hop_limit: 64,
///     traffic_class: 0,
///     identification: 1,
///     may_fragment: true,
/// };
/// let packets: Vec<Vec<u8>> = ip::fragments(&output, &[7; 2000], 1280).collect();
/// assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [1280, 816]);
/// ```
pub fn fragments<'a>(
    output: &Output,
    payload: &'a [u8],
    mtu: usize,
) -> impl Iterator<Item = Vec<u8>> + use<'a> {
    let output = *output;
    let (header, fragment_header, most) = match output.family() {
        Family::V4(..) => (v4::HEADER_BYTES, v4::HEADER_BYTES, MOST_PAYLOAD_V4),
        Family::V6(..) => {
            let fragment_header = v6::HEADER_BYTES + v6::FRAGMENT_HEADER_BYTES;
            (v6::HEADER_BYTES, fragment_header, MOST_PAYLOAD_V6)
        }
    };
    let is_whole = header + payload.len() <= mtu;
    let is_possible = payload.len() <= most && (is_whole || output.may_fragment);
    let step = match is_whole {
        true => payload.len().max(1),
        false => (mtu.saturating_sub(fragment_header) / 8 * 8).max(8),
    };
    // An empty payload is one packet, too.
    let places = if is_possible { payload.len().max(1) } else { 0 };
    (0..places).step_by(step).map(move |offset| {
        let end = payload.len().min(offset + step);
        let part = payload.get(offset..end).unwrap_or_default();
        let fragment = (!is_whole).then_some(Fragment {
            identification: output.identification,
            offset,
            has_more: end < payload.len(),
        });
        let mut packet = Vec::with_capacity(fragment_header + part.len());
        output.write(fragment, part.len(), &mut packet);
        packet.extend_from_slice(part);
        packet
    })
}

/// The length of the IP header of packets from or to this address, without options and extension headers.
pub const fn header_bytes(address: &IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => v4::HEADER_BYTES,
        IpAddr::V6(_) => v6::HEADER_BYTES,
    }
}

impl<'a> Packet<'a> {
    /// The protocol of the upper layer, and the bytes from its header on: in a first fragment of IPv6, behind the
    /// extension headers that were fragmented.
    pub(crate) fn upper_layer(&self) -> Result<(u8, &'a [u8]), DropReason> {
        if self.addresses.source.is_ipv4() {
            return Ok((self.protocol, self.payload));
        }
        let (protocol, bytes) = v6::skip_extensions(self.protocol, self.payload)?;
        let payload = self.payload.get(bytes..).ok_or(DropReason::TooShort)?;
        Ok((protocol, payload))
    }

    /// Whether the source can be the sender of this packet.
    fn has_possible_source(&self) -> bool {
        match self.addresses.source {
            IpAddr::V4(source) => {
                let is_this_network = source.octets()[0] == 0;
                let is_group = source.is_multicast() || source.is_broadcast();
                !is_this_network && !is_group && !source.is_loopback()
            }
            IpAddr::V6(source) if source.is_unspecified() => {
                let is_to_group = self.addresses.destination.is_multicast();
                self.protocol == ICMPV6 && is_to_group && self.fragment.is_none()
            }
            IpAddr::V6(source) => {
                !source.is_multicast() && !source.is_loopback() && source.to_ipv4_mapped().is_none()
            }
        }
    }

    /// Checks the place and the length of a fragment; returns its end in the payload of the whole packet.
    ///
    /// Refuses fragments without payload, fragments in the middle whose length is not a multiple of 8, and fragments
    /// behind which the whole packet would be longer than its length field can say.
    fn end_of_fragment(&self, fragment: Fragment) -> Result<usize, DropReason> {
        let bytes = self.payload.len();
        let unfragmentable = match self.addresses.source {
            IpAddr::V4(_) => self.header_bytes,
            IpAddr::V6(_) => self
                .header_bytes
                .saturating_sub(v6::HEADER_BYTES + v6::FRAGMENT_HEADER_BYTES),
        };
        let end = fragment.offset.saturating_add(bytes);
        let is_too_long = end.saturating_add(unfragmentable) > MOST_PACKET;
        let is_aligned = bytes.is_multiple_of(8) || !fragment.has_more;
        let is_misplaced = !fragment.offset.is_multiple_of(8) || !is_aligned;
        match bytes == 0 || is_too_long || is_misplaced {
            true => Err(DropReason::FragmentInvalid),
            false => Ok(end),
        }
    }
}

impl Output {
    /// Appends the headers of a packet or of a fragment with `payload_bytes` bytes of its own.
    fn write(&self, fragment: Option<Fragment>, payload_bytes: usize, to: &mut Vec<u8>) {
        match self.family() {
            Family::V4(addresses) => v4::write(self, addresses, fragment, payload_bytes, to),
            Family::V6(addresses) => v6::write(self, addresses, fragment, payload_bytes, to),
        }
    }

    /// The addresses by family. A mixed pair, which [`Addresses`] excludes, counts as IPv6 with mapped addresses.
    fn family(&self) -> Family {
        let v6 = |address| match address {
            IpAddr::V4(address) => Ipv4Addr::to_ipv6_mapped(&address),
            IpAddr::V6(address) => address,
        };
        match (self.addresses.source, self.addresses.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Family::V4([source, destination]),
            (source, destination) => Family::V6([v6(source), v6(destination)]),
        }
    }
}

/// The source and the destination.
enum Family {
    V4([Ipv4Addr; 2]),
    V6([Ipv6Addr; 2]),
}

/// The highest value of the length fields of both headers, which have 16 bits.
const MOST_PACKET: usize = u16::MAX as usize;

#[cfg(test)]
mod tests;
