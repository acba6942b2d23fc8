//! From the bytes of a packet to its fields. All lengths and checksums must be right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use softclock_net::checksum::{Addresses, is_transport_checksum_right};
use softclock_net::tcp::segment::{Flags, Header};
use softclock_net::tcp::seq::Seq;
use softclock_wire::packet::ones_complement_sum;

use super::{ICMP_V4, ICMP_V6, IpHeader, TCP, TcpOption, TcpPacket, UDP};

/// A packet that the host has sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// A segment of TCP.
    Tcp(TcpPacket),
    /// A datagram of UDP: its ports, and its bytes.
    Udp(IpHeader, (u16, u16), Vec<u8>),
    /// A message of ICMP: its type, its code, and the bytes behind its checksum.
    Icmp(IpHeader, (u8, u8), Vec<u8>),
}

/// Reads a packet of IP.
///
/// # Errors
/// What is wrong with the packet.
pub fn parse(bytes: &[u8]) -> Result<Packet, String> {
    let (ip, protocol, body) = ip(bytes)?;
    let addresses = Addresses {
        source: ip.source,
        destination: ip.destination,
    };
    let is_right = match protocol {
        ICMP_V4 => ones_complement_sum(body) == 0xffff,
        _ => is_transport_checksum_right(addresses, protocol, body),
    };
    if !is_right {
        return Err(format!("the checksum of protocol {protocol} is wrong"));
    }
    match protocol {
        TCP => tcp(ip, body).map(Packet::Tcp),
        UDP => match (word(body, 0), word(body, 2), body.get(8..)) {
            (Some(source), Some(destination), Some(payload)) => {
                Ok(Packet::Udp(ip, (source, destination), payload.to_vec()))
            }
            _ => Err("the datagram is too short".to_owned()),
        },
        ICMP_V4 | ICMP_V6 => match body {
            [kind, code, _, _, rest @ ..] => Ok(Packet::Icmp(ip, (*kind, *code), rest.to_vec())),
            _ => Err("the message of ICMP is too short".to_owned()),
        },
        other => Err(format!("the protocol is {other}")),
    }
}

/// The beginning of a packet, as a message of ICMP quotes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quote {
    /// The sender's address and port.
    pub source: SocketAddr,
    /// The receiver's address and port.
    pub destination: SocketAddr,
    /// The protocol behind the header of IP.
    pub protocol: u8,
    /// The sequence number of a segment; the length and the checksum of a datagram.
    pub number: u32,
}

/// Reads the quoted packet behind the parameter of a message of ICMP.
///
/// # Errors
/// What is wrong with the quote.
pub fn quote(bytes: &[u8]) -> Result<Quote, String> {
    let fields = match bytes.first().map(|first| first >> 4) {
        Some(4) => bytes.split_first_chunk::<20>().map(|(header, body)| {
            let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
            let (source, destination) = ([s0, s1, s2, s3], [d0, d1, d2, d3]);
            (source.into(), destination.into(), header[9], body)
        }),
        Some(6) => bytes.split_first_chunk::<40>().and_then(|(header, body)| {
            let address =
                |from: usize| -> Option<[u8; 16]> { header.get(from..from + 16)?.try_into().ok() };
            Some((address(8)?.into(), address(24)?.into(), header[6], body))
        }),
        _ => None,
    };
    let quote = fields.and_then(|(source, destination, protocol, body)| {
        let (source, destination): (IpAddr, IpAddr) = (source, destination);
        Some(Quote {
            source: SocketAddr::new(source, word(body, 0)?),
            destination: SocketAddr::new(destination, word(body, 2)?),
            protocol,
            number: long(body, 4)?,
        })
    });
    quote.ok_or_else(|| "the quoted packet is too short".to_owned())
}

fn ip(bytes: &[u8]) -> Result<(IpHeader, u8, &[u8]), String> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => ip_v4(bytes),
        Some(6) => ip_v6(bytes),
        version => Err(format!("the version of IP is {version:?}")),
    }
}

fn ip_v4(bytes: &[u8]) -> Result<(IpHeader, u8, &[u8]), String> {
    let Some((header, body)) = bytes.split_first_chunk::<20>() else {
        return Err("the header of IPv4 is too short".to_owned());
    };
    let [
        first,
        class,
        _,
        _,
        _,
        _,
        fragment,
        offset,
        ttl,
        protocol,
        _,
        _,
        addresses @ ..,
    ] = header;
    if *first != 0x45 {
        return Err("the header of IPv4 has options".to_owned());
    }
    if ones_complement_sum(header) != 0xffff {
        return Err("the checksum of IPv4 is wrong".to_owned());
    }
    if word(bytes, 2).map(usize::from) != Some(bytes.len()) {
        return Err("the length in the header of IPv4 is wrong".to_owned());
    }
    if fragment & 0x3f != 0 || *offset != 0 {
        return Err("the packet is a fragment".to_owned());
    }
    let [s0, s1, s2, s3, d0, d1, d2, d3] = *addresses;
    let ip = IpHeader {
        source: Ipv4Addr::new(s0, s1, s2, s3).into(),
        destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
        ttl: *ttl,
        class: *class,
    };
    Ok((ip, *protocol, body))
}

fn ip_v6(bytes: &[u8]) -> Result<(IpHeader, u8, &[u8]), String> {
    let Some((header, body)) = bytes.split_first_chunk::<40>() else {
        return Err("the header of IPv6 is too short".to_owned());
    };
    let [first, second, _, _, _, _, protocol, ttl, addresses @ ..] = header;
    if word(bytes, 4).map(usize::from) != Some(body.len()) {
        return Err("the length in the header of IPv6 is wrong".to_owned());
    }
    let address = |from: usize| {
        let octets = addresses.get(from..from + 16)?.try_into().ok()?;
        Some(IpAddr::V6(Ipv6Addr::from_octets(octets)))
    };
    match address(0).zip(address(16)) {
        Some((source, destination)) => {
            let ip = IpHeader {
                source,
                destination,
                ttl: *ttl,
                class: first << 4 | second >> 4,
            };
            Ok((ip, *protocol, body))
        }
        None => Err("the header of IPv6 is too short".to_owned()),
    }
}

fn tcp(ip: IpHeader, bytes: &[u8]) -> Result<TcpPacket, String> {
    let Some(fixed) = bytes.first_chunk::<20>() else {
        return Err("the header of TCP is too short".to_owned());
    };
    let number = |offset| long(fixed, offset).unwrap_or_default();
    let half = |offset| word(fixed, offset).unwrap_or_default();
    let words = usize::from(half(12) >> 12);
    let Some((options, payload)) = bytes
        .split_at_checked(words * 4)
        .and_then(|(header, payload)| Some((header.get(20..)?, payload)))
    else {
        return Err(format!("the header of TCP claims {words} words"));
    };
    Ok(TcpPacket {
        ip,
        header: Header {
            source_port: half(0),
            destination_port: half(2),
            sequence: Seq(number(4)),
            acknowledgment: Seq(number(8)),
            flags: Flags(half(12) & 0x1ff),
            window: half(14),
            urgent: half(18),
        },
        options: TcpOption::read_all(options)?,
        payload: payload.to_vec(),
    })
}

fn word(bytes: &[u8], offset: usize) -> Option<u16> {
    let bytes = bytes.get(offset..offset + 2)?;
    bytes.try_into().ok().map(u16::from_be_bytes)
}

fn long(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset + 4)?;
    bytes.try_into().ok().map(u32::from_be_bytes)
}
