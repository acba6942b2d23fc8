//! Packets in a tunnel: IP in IP (RFC 2003, 2473, 4213), GRE (RFC 2784, 2890), or UDP as for VXLAN and Geneve.
//!
//! Linux joins TCP inside tunnels, too. Its offload then describes the packet inside, and a `virtio_net_hdr` does not
//! say that there is a tunnel: the kernel that the frame is sent by refuses to cut it, or changes the headers inside
//! only.

use super::super::checksum::{ones_complement_sum, pseudo_header_sum, replaced};
use super::{Headers, IPV4, IPV4_HEADER, IPV6_HEADER, Network, PartialChecksum, UDP};
use super::{set_u16, u16_at};

/// The headers around the packet inside a tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tunnel {
    network: Network,
    is_udp: bool,
}

impl Tunnel {
    /// The tunnel with these outer headers, and the headers of the packet inside, whose transport begins at `start`.
    /// `None` for other tunnels, and for GRE with checksums or numbers, which would differ for each segment.
    pub(super) fn of(frame: &[u8], outer: &Headers, start: usize) -> Option<(Self, Headers)> {
        let at = outer.transport_offset;
        let possible = match outer.protocol? {
            IPV4_INSIDE | IPV6_INSIDE => at..=at,
            GRE => inside_gre(frame, at)?..=inside_gre(frame, at)?,
            // The header of such a tunnel has any length.
            UDP => at + UDP_HEADER..=start,
            _ => return None,
        };
        let mut inner = [IPV6_HEADER, IPV4_HEADER].into_iter().filter_map(|length| {
            let network = start.checked_sub(length)?;
            // The checksum of the tunnel sums words.
            let is_possible = possible.contains(&network) && (network - at).is_multiple_of(2);
            packet(frame, network, length).filter(|_| is_possible)
        });
        let tunnel = Self {
            network: Network::of(outer),
            is_udp: outer.protocol == Some(UDP),
        };
        Some((tunnel, inner.next()?))
    }

    /// Sets the fields that depend on the length of a segment, whose packet inside is complete but for its checksum.
    pub(super) fn set(self, segment: &mut [u8], index: u16, inside: PartialChecksum) {
        self.network.set(segment, index);
        if !self.is_udp {
            return;
        }
        let header = self.network.end;
        let length = segment.len() - header;
        set_u16(segment, header + 4, length as u16);
        let field = header + 6;
        if u16_at(segment, field) == 0 {
            return;
        }
        // Local checksum offload (Documentation/networking/checksum-offloads.rst): once its checksum is complete, the
        // transport inside adds up to the complement of its pseudo-header.
        let start = usize::from(inside.start);
        let inside = u16_at(segment, start + usize::from(inside.offset));
        set_u16(segment, field, 0);
        let pseudo = pseudo_header_sum(&segment[self.network.addresses()], UDP, length);
        let sum = replaced(pseudo, inside, ones_complement_sum(&segment[header..start]));
        set_u16(segment, field, if sum == 0xffff { sum } else { !sum });
    }
}

/// The offset of the packet inside GRE, whose header is at `at`.
fn inside_gre(frame: &[u8], at: usize) -> Option<usize> {
    let header = frame.get(at..at + GRE_HEADER)?;
    let key = match u16_at(header, 0) {
        0 => 0,
        GRE_KEY => 4,
        _ => return None,
    };
    let link = match u16_at(header, 2) {
        ETHERNET_INSIDE => ETHERNET_HEADER,
        _ => 0,
    };
    Some(at + GRE_HEADER + key + link)
}

/// The headers of the packet at `network`, if its IP header is `length` bytes long and the rest of the frame is its
/// payload.
fn packet(frame: &[u8], network: usize, length: usize) -> Option<Headers> {
    let packet = frame.get(network..)?;
    let mut headers = Headers::of_ip(packet);
    if headers.transport_offset != length {
        return None;
    }
    let bytes = match headers.ether_type {
        IPV4 => usize::from(u16_at(packet, 2)),
        _ => usize::from(u16_at(packet, 4)) + IPV6_HEADER,
    };
    headers.network_offset = network;
    headers.transport_offset += network;
    headers.payload_offset = headers.payload_offset.map(|payload| payload + network);
    (bytes == packet.len()).then_some(headers)
}

const IPV4_INSIDE: u8 = 4;
const IPV6_INSIDE: u8 = 41;
const GRE: u8 = 47;
/// The flag of GRE for a key, which is the same in all packets of a tunnel.
const GRE_KEY: u16 = 0x2000;
/// The protocol type of GRE for Ethernet frames.
const ETHERNET_INSIDE: u16 = 0x6558;

const ETHERNET_HEADER: usize = 14;
const GRE_HEADER: usize = 4;
const UDP_HEADER: usize = 8;
