//! From fields to the bytes of a packet.

use std::net::IpAddr;

use softclock_net::checksum::{Addresses, transport_checksum};
use softclock_net::tcp::segment::Header;
use softclock_wire::packet::ones_complement_sum;

use super::{ICMP_V4, ICMP_V6, IpHeader, TCP, TcpPacket, UDP};

/// The packet of IP with a segment.
///
/// # Errors
/// The options or the packet are longer than their length can say.
///
/// ```
/// use softclock_script::wire::{IpHeader, Packet, TcpPacket, parse, tcp_packet};
///
/// let ip = IpHeader {
///     source: "192.0.2.1".parse()?,
///     destination: "192.168.0.1".parse()?,
///     ttl: 64,
///     class: 0,
/// };
/// let segment = TcpPacket { ip, header: Default::default(), options: vec![], payload: vec![1, 2] };
/// assert_eq!(parse(&tcp_packet(&segment)?)?, Packet::Tcp(segment));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn tcp_packet(packet: &TcpPacket) -> Result<Vec<u8>, String> {
    let mut segment = tcp_header(&packet.header);
    for option in &packet.options {
        option.write(&mut segment);
    }
    // Zeros are the end of the list of options.
    segment.resize(segment.len().next_multiple_of(4), 0);
    let words = segment.len() / 4;
    if words > MOST_WORDS {
        let bytes = (words - FIXED_WORDS) * 4;
        return Err(format!("the options have {bytes} bytes, more than 40"));
    }
    if let Some(offset) = segment.get_mut(12) {
        *offset |= (words as u8) << 4;
    }
    segment.extend(&packet.payload);
    ip_packet(packet.ip, TCP, segment, Some(16))
}

/// The packet of IP with a datagram.
///
/// # Errors
/// The packet is longer than its length can say.
pub fn udp_packet(ip: IpHeader, ports: (u16, u16), payload: &[u8]) -> Result<Vec<u8>, String> {
    let length = length_of(payload.len() + 8)?;
    let mut datagram = Vec::with_capacity(length.into());
    for field in [ports.0, ports.1, length, 0] {
        datagram.extend(field.to_be_bytes());
    }
    datagram.extend(payload);
    ip_packet(ip, UDP, datagram, Some(6))
}

/// The packet of IP with a message of ICMP about a packet that this message's receiver has sent. `quoted` is that
/// packet's header of IP, its protocol, and the first bytes behind its header.
///
/// # Errors
/// The packet is longer than its length can say.
pub fn icmp_packet(
    ip: IpHeader,
    numbers: (u8, u8),
    parameter: u32,
    quoted: (IpHeader, u8, &[u8]),
) -> Result<Vec<u8>, String> {
    let mut message = vec![numbers.0, numbers.1, 0, 0];
    message.extend(parameter.to_be_bytes());
    let (header, protocol, bytes) = quoted;
    message.extend(ip_packet(header, protocol, bytes.to_vec(), None)?);
    if ip.source.is_ipv6() {
        return ip_packet(ip, ICMP_V6, message, Some(2));
    }
    let sum = !ones_complement_sum(&message);
    put(&mut message, 2, sum);
    ip_packet(ip, ICMP_V4, message, None)
}

/// The fixed part of a header of TCP, without the checksum and the data offset.
pub(crate) fn tcp_header(header: &Header) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(60);
    bytes.extend(header.source_port.to_be_bytes());
    bytes.extend(header.destination_port.to_be_bytes());
    bytes.extend(header.sequence.0.to_be_bytes());
    bytes.extend(header.acknowledgment.0.to_be_bytes());
    bytes.extend(header.flags.0.to_be_bytes());
    bytes.extend(header.window.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(header.urgent.to_be_bytes());
    bytes
}

/// A packet of IP; writes the transport's checksum at `checksum`, an offset in `body`.
fn ip_packet(
    ip: IpHeader,
    protocol: u8,
    mut body: Vec<u8>,
    checksum: Option<usize>,
) -> Result<Vec<u8>, String> {
    if let Some(offset) = checksum {
        let addresses = Addresses {
            source: ip.source,
            destination: ip.destination,
        };
        let sum = transport_checksum(addresses, protocol, &body);
        put(&mut body, offset, sum);
    }
    let mut packet = Vec::with_capacity(40 + body.len());
    match (ip.source, ip.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            packet.extend([0x45, ip.class]);
            packet.extend(length_of(body.len() + 20)?.to_be_bytes());
            // No identification; the packet must not be fragmented.
            packet.extend([0, 0, 0x40, 0, ip.ttl, protocol, 0, 0]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
            let sum = !ones_complement_sum(&packet);
            put(&mut packet, 10, sum);
        }
        (source, destination) => {
            packet.extend((6 << 28 | u32::from(ip.class) << 20).to_be_bytes());
            packet.extend(length_of(body.len())?.to_be_bytes());
            packet.extend([protocol, ip.ttl]);
            for address in [source, destination] {
                packet.extend(match address {
                    IpAddr::V6(address) => address.octets(),
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                });
            }
        }
    }
    packet.extend(body);
    Ok(packet)
}

fn length_of(bytes: usize) -> Result<u16, String> {
    u16::try_from(bytes).map_err(|_| format!("the packet has {bytes} bytes, more than 65535"))
}

fn put(bytes: &mut [u8], offset: usize, value: u16) {
    if let Some(place) = bytes.get_mut(offset..offset + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// The words of a header of TCP without options, and the most that it can have.
const FIXED_WORDS: usize = 5;
const MOST_WORDS: usize = 15;
