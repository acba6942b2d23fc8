//! The classification of frames: one pass over the headers, before any protocol work (*Lazy Receiver Processing*,
//! section 3).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use softclock_wire::packet::{ARP, ICMP, ICMPV6, IPV4, IPV6, TCP, Transport, UDP};

use crate::drops::DropReason;
use crate::link::Header;

/// The flow that a frame belongs to, as seen by the receiver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Flow {
    /// The protocol of the transport layer.
    pub transport: Transport,
    /// Address and port of the other end: the source of a received frame.
    pub remote: (IpAddr, u16),
    /// Address and port of this end: the destination of a received frame.
    pub local: (IpAddr, u16),
}

/// The class of a frame, which decides the channel that it goes to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// A whole packet of UDP or TCP.
    Flow(Flow),
    /// A fragment of an IP packet, which must be reassembled before its flow is known. First fragments, too, since
    /// they are useless without the others.
    Fragment,
    /// A packet without a flow.
    Control(ControlKind),
}

/// The kind of a packet that belongs to no flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ControlKind {
    /// Resolution of IPv4 addresses.
    Arp,
    /// ICMP over IPv4.
    Icmp,
    /// ICMPv6 over IPv6, which includes neighbor discovery.
    IcmpV6,
    /// A protocol that the stack does not have, for which it may answer that the protocol is unreachable.
    Other,
}

/// Classifies a frame, from the Ethernet header on.
///
/// Reads headers only, and at most eight extension headers of IPv6; options of IPv4 are skipped. Verifies neither
/// addresses nor checksums nor anything that the protocols verify themselves when the receiver runs. A packet that it
/// classifies may therefore still be malformed. An atomic fragment (RFC 6946) is a whole packet.
///
/// ```
/// use softclock_net::demux::{Class, ControlKind, classify};
/// use softclock_net::drops::DropReason;
///
/// let mut frame = [0; 42];
/// frame[12..14].copy_from_slice(&[0x08, 0x06]);
/// assert_eq!(classify(&frame), Ok(Class::Control(ControlKind::Arp)));
/// assert_eq!(classify(&frame[..13]), Err(DropReason::TooShort));
/// ```
///
/// # Errors
/// - [`DropReason::TooShort`]: a header of the link or the network layer is cut off.
/// - [`DropReason::EtherType`]: neither IPv4 nor IPv6 nor ARP, or a VLAN tag.
/// - [`DropReason::IpHeader`]: wrong version, or lengths that contradict each other or the frame.
/// - [`DropReason::IpOption`]: more than eight extension headers.
/// - [`DropReason::UdpHeader`], [`DropReason::TcpHeader`]: the ports are cut off.
#[inline]
pub fn classify(frame: &[u8]) -> Result<Class, DropReason> {
    let (header, payload) = Header::parse(frame)?;
    match header.ether_type {
        IPV4 => classify_v4(payload),
        IPV6 => classify_v6(payload),
        ARP => Ok(Class::Control(ControlKind::Arp)),
        _ => Err(DropReason::EtherType),
    }
}

#[inline]
fn classify_v4(packet: &[u8]) -> Result<Class, DropReason> {
    let header = packet.first_chunk::<20>().ok_or(DropReason::TooShort)?;
    let [
        version_and_length,
        _,
        l0,
        l1,
        _,
        _,
        f0,
        f1,
        _,
        protocol,
        _,
        _,
        addresses @ ..,
    ] = *header;
    let header_bytes = usize::from(version_and_length & 0x0f) * 4;
    let total_bytes = usize::from(u16::from_be_bytes([l0, l1]));
    if version_and_length >> 4 != 4 || header_bytes < header.len() {
        return Err(DropReason::IpHeader);
    }
    // Behind the packet's own length stands padding of short frames.
    let packet = packet.get(..total_bytes).ok_or(DropReason::IpHeader)?;
    let payload = packet.get(header_bytes..).ok_or(DropReason::IpHeader)?;
    if u16::from_be_bytes([f0, f1]) & (V4_MORE_FRAGMENTS | V4_FRAGMENT_OFFSET) != 0 {
        return Ok(Class::Fragment);
    }
    let [s0, s1, s2, s3, d0, d1, d2, d3] = addresses;
    let source = Ipv4Addr::new(s0, s1, s2, s3).into();
    let destination = Ipv4Addr::new(d0, d1, d2, d3).into();
    match protocol {
        ICMP => Ok(Class::Control(ControlKind::Icmp)),
        _ => classify_transport(protocol, source, destination, payload),
    }
}

#[inline]
fn classify_v6(packet: &[u8]) -> Result<Class, DropReason> {
    let (header, rest) = packet
        .split_first_chunk::<40>()
        .ok_or(DropReason::TooShort)?;
    let [version, _, _, _, l0, l1, next, _, addresses @ ..] = header;
    if version >> 4 != 6 {
        return Err(DropReason::IpHeader);
    }
    let payload_bytes = usize::from(u16::from_be_bytes([*l0, *l1]));
    let rest = rest.get(..payload_bytes).ok_or(DropReason::IpHeader)?;
    let Some((protocol, payload)) = skip_extensions(*next, rest)? else {
        return Ok(Class::Fragment);
    };
    let (source, destination) = addresses.split_at(16);
    let address = |bytes: &[u8]| bytes.first_chunk::<16>().copied().map(Ipv6Addr::from);
    let (Some(source), Some(destination)) = (address(source), address(destination)) else {
        return Err(DropReason::TooShort);
    };
    match protocol {
        ICMPV6 => Ok(Class::Control(ControlKind::IcmpV6)),
        _ => classify_transport(protocol, source.into(), destination.into(), payload),
    }
}

/// Returns the protocol and the payload behind the extension headers (RFC 8200, section 4), or `None` for a fragment.
#[inline]
fn skip_extensions(mut next: u8, mut rest: &[u8]) -> Result<Option<(u8, &[u8])>, DropReason> {
    for _ in 0..=MOST_EXTENSIONS {
        if !matches!(next, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION) {
            return Ok(Some((next, rest)));
        }
        // Every extension header is at least 8 bytes long and begins with the type of the next.
        let [following, length, p0, p1, ..] =
            *rest.first_chunk::<8>().ok_or(DropReason::TooShort)?;
        let bytes = match next {
            // The length field of a fragment header is reserved.
            FRAGMENT if u16::from_be_bytes([p0, p1]) & !V6_RESERVED != 0 => return Ok(None),
            FRAGMENT => 8,
            _ => usize::from(length) * 8 + 8,
        };
        rest = rest.get(bytes..).ok_or(DropReason::TooShort)?;
        next = following;
    }
    Err(DropReason::IpOption)
}

#[inline]
fn classify_transport(
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
    payload: &[u8],
) -> Result<Class, DropReason> {
    let (transport, cut_off) = match protocol {
        UDP => (Transport::Udp, DropReason::UdpHeader),
        TCP => (Transport::Tcp, DropReason::TcpHeader),
        _ => return Ok(Class::Control(ControlKind::Other)),
    };
    let [s0, s1, d0, d1] = *payload.first_chunk().ok_or(cut_off)?;
    Ok(Class::Flow(Flow {
        transport,
        remote: (source, u16::from_be_bytes([s0, s1])),
        local: (destination, u16::from_be_bytes([d0, d1])),
    }))
}

/// The flag of a packet of IPv4 behind which more fragments follow.
const V4_MORE_FRAGMENTS: u16 = 0x2000;
/// The offset of a fragment of IPv4, in units of 8 bytes.
const V4_FRAGMENT_OFFSET: u16 = 0x1fff;
/// The reserved bits beside the offset and the flag of more fragments in a fragment header of IPv6.
const V6_RESERVED: u16 = 0x0006;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// The most extension headers of IPv6. Honest packets have one or two; a bound makes the cost of each packet constant.
const MOST_EXTENSIONS: usize = 8;

#[cfg(test)]
mod tests;
