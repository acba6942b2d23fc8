//! The headers of packets from the link to the transport layer, filters on them, and the work that a sender leaves to
//! the link: checksums and segmentation.
//!
//! Parsing is lenient: [`Headers`] holds the fields that a frame has, and parsing stops where the frame is cut off or
//! invalid. No input causes a panic. At most [`MOST_EXTENSIONS`] extension headers of IPv6 are parsed.

mod checksum;
mod classifier;
mod crc32c;
mod filter;
mod offload;
mod segment;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use checksum::{complete_checksum, ones_complement_sum, partial_checksum};
pub use classifier::Classifier;
pub use filter::{Filter, FilterError};
pub use offload::{Offload, PartialChecksum, SegmentKind, Segmentation};
pub use segment::{Segments, segments};

/// The parsed headers of a packet. Offsets are in bytes from the beginning of the frame.
///
/// ```
/// use softclock_wire::packet::{Headers, UDP};
///
/// let mut packet = [0; 28];
/// packet[0] = 0x45; // IPv4, with a header of 20 bytes
/// packet[9] = UDP;
/// packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
/// packet[22..24].copy_from_slice(&53_u16.to_be_bytes());
///
/// let headers = Headers::of_ip(&packet);
/// assert_eq!(headers.addresses.unwrap().0.to_string(), "10.0.0.1");
/// assert_eq!(headers.ports, Some((0, 53)));
/// assert_eq!(headers.payload_offset, Some(28));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headers {
    /// The ID of the outermost VLAN, 0 to 4095.
    pub vlan: Option<u16>,
    /// The EtherType of the network layer: [`IPV4`], [`IPV6`], [`ARP`] or another; 0 if unknown.
    pub ether_type: u16,
    /// The offset of the network layer's header.
    pub network_offset: usize,
    /// The network addresses: source and destination.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// The class of service (DSCP), 0 to 63; 0 if the packet is not IP.
    pub dscp: u8,
    /// The protocol of the transport layer: [`TCP`], [`UDP`] or another; `None` if unknown.
    pub protocol: Option<u8>,
    /// Whether this is a fragment other than the first, which has no transport header.
    pub is_later_fragment: bool,
    /// The offset of the transport's header, or of the place where parsing stopped before it.
    pub transport_offset: usize,
    /// The ports of TCP, UDP and SCTP: source and destination.
    pub ports: Option<(u16, u16)>,
    /// The offset of the payload of TCP and UDP. May be past the end of a frame that is cut off.
    pub payload_offset: Option<usize>,
}

/// The EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// The EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// The EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;

/// The IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// The IP protocol number of TCP.
pub const TCP: u8 = 6;
/// The IP protocol number of UDP.
pub const UDP: u8 = 17;
/// The IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// The IP protocol number of SCTP.
pub const SCTP: u8 = 132;

/// A transport protocol with ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Transport {
    /// UDP (RFC 768).
    Udp,
    /// TCP (RFC 9293).
    Tcp,
}

impl Transport {
    /// The IP protocol number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Udp => UDP,
            Self::Tcp => TCP,
        }
    }
}

impl Headers {
    /// Parses the headers of an Ethernet frame.
    pub fn of_frame(frame: &[u8]) -> Self {
        let mut headers = Self::default();
        let mut offset = 12;
        loop {
            let Some(ether_type) = u16_at(frame, offset) else {
                headers.network_offset = frame.len();
                headers.transport_offset = frame.len();
                return headers;
            };
            offset += 2;
            if !VLAN_TAGS.contains(&ether_type) {
                headers.ether_type = ether_type;
                break;
            }
            let tag = u16_at(frame, offset);
            headers.vlan = headers.vlan.or(tag.map(|tag| tag & 0x0fff));
            offset += 2;
        }
        headers.parse_network(frame, offset);
        headers
    }

    /// Parses the headers of an IPv4 or IPv6 packet without a link layer.
    pub fn of_ip(packet: &[u8]) -> Self {
        let ether_type = match packet.first().map(|byte| byte >> 4) {
            Some(4) => IPV4,
            Some(6) => IPV6,
            _ => 0,
        };
        let mut headers = Self {
            ether_type,
            ..Self::default()
        };
        headers.parse_network(packet, 0);
        headers
    }

    /// Parses the network layer's header at `offset`, and the transport's after it.
    fn parse_network(&mut self, bytes: &[u8], offset: usize) {
        self.network_offset = offset.min(bytes.len());
        self.transport_offset = self.network_offset;
        let packet = &bytes[self.network_offset..];
        match self.ether_type {
            IPV4 => self.parse_ipv4(packet),
            IPV6 => self.parse_ipv6(packet),
            _ => None,
        };
        if !self.is_later_fragment {
            self.parse_transport(bytes);
        }
    }

    /// Parses a header of IPv4. Returns `None` if it is cut off or invalid; fields that were parsed before stay set.
    fn parse_ipv4(&mut self, packet: &[u8]) -> Option<()> {
        let header = packet.first_chunk::<20>()?;
        let length = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || length < 20 {
            return None;
        }
        self.dscp = header[1] >> 2;
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 4] = header[at..at + 4].try_into().ok()?;
            Some(Ipv4Addr::from(bytes).into())
        };
        self.addresses = Some((address(12)?, address(16)?));
        self.protocol = Some(header[9]);
        self.is_later_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
        self.transport_offset += length;
        Some(())
    }

    /// Parses a header of IPv6 and its extension headers. Returns `None` if they are cut off or invalid.
    fn parse_ipv6(&mut self, packet: &[u8]) -> Option<()> {
        let header = packet.first_chunk::<40>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        self.dscp = (u16::from_be_bytes([header[0], header[1]]) >> 6 & 0x3f) as u8;
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 16] = header[at..at + 16].try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        };
        self.addresses = Some((address(8)?, address(24)?));
        // Each extension header begins with the type of the next. All but those of fragments give their length.
        let mut next = header[6];
        let mut offset = 40;
        // The last round reads the protocol behind the last extension header.
        for _ in 0..=MOST_EXTENSIONS {
            let length = match next {
                HOP_BY_HOP | ROUTING | DESTINATION => usize::from(*packet.get(offset + 1)?) * 8 + 8,
                AUTHENTICATION => usize::from(*packet.get(offset + 1)?) * 4 + 8,
                FRAGMENT => {
                    let place = u16_at(packet, offset + 2)?;
                    self.is_later_fragment = place & 0xfff8 != 0;
                    8
                }
                _ => {
                    self.protocol = Some(next);
                    break;
                }
            };
            next = *packet.get(offset)?;
            offset += length;
            // The rest of a later fragment is payload, so the type of its next header is all that is known.
            if self.is_later_fragment {
                self.protocol = Some(next);
                break;
            }
        }
        self.transport_offset += offset;
        Some(())
    }

    /// Parses the ports and the header length of TCP, UDP and SCTP.
    fn parse_transport(&mut self, bytes: &[u8]) {
        let Some(protocol @ (TCP | UDP | SCTP)) = self.protocol else {
            return;
        };
        let at = self.transport_offset;
        if let (Some(source), Some(destination)) = (u16_at(bytes, at), u16_at(bytes, at + 2)) {
            self.ports = Some((source, destination));
        }
        self.payload_offset = match protocol {
            UDP => Some(at + 8),
            TCP => bytes
                .get(at + 12)
                .map(|byte| at + usize::from(byte >> 4) * 4),
            _ => None,
        };
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

/// The EtherTypes of VLAN tags, which stand before the EtherType of the network layer.
const VLAN_TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// The most extension headers of IPv6 that are parsed. Longer chains do not occur in honest traffic, and have no
/// [`protocol`](Headers::protocol).
pub const MOST_EXTENSIONS: usize = 8;

#[cfg(test)]
mod tests;
