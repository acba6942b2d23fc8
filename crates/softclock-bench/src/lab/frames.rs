//! Frames of TCP and UDP that clients send without a stack.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use softclock_net::checksum::Addresses;
use softclock_net::link::{Header as LinkHeader, LinkAddress};
use softclock_net::tcp::segment::{self, Flags, Header, Options};
use softclock_net::tcp::seq::Seq;
use softclock_net::{ip, udp};
use softclock_wire::packet::{IPV4, TCP, UDP};

/// The ends of a link that frames cross.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The sender's.
    pub source: LinkAddress,
    /// The receiver's.
    pub destination: LinkAddress,
}

/// The fields of a segment that clients look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The sender.
    pub source: SocketAddrV4,
    /// The receiver.
    pub destination: SocketAddrV4,
    /// The sequence number.
    pub sequence: u32,
    /// The acknowledged sequence number.
    pub acknowledgment: u32,
    /// The flags.
    pub flags: Flags,
}

impl Segment {
    /// Returns the frame of this segment without payload. SYNs have the options of usual clients.
    pub fn to_frame(&self, ends: Ends) -> Vec<u8> {
        let header = Header {
            source_port: self.source.port(),
            destination_port: self.destination.port(),
            sequence: Seq(self.sequence),
            acknowledgment: Seq(self.acknowledgment),
            flags: self.flags,
            window: 64_240,
            urgent: 0,
        };
        let options = match self.flags.contains(Flags::SYN) {
            true => Options {
                mss: Some(1460),
                window_scale: Some(7),
                is_sack_permitted: true,
                ..Options::default()
            },
            false => Options::default(),
        };
        let addresses = addresses(self.source, self.destination);
        let mut segment = Vec::new();
        segment::emit(addresses, &header, &options, |_| (), &mut segment);
        frame(ends, addresses, TCP, &segment)
    }

    /// Returns the fields of a frame; `None` if it is not a segment over IPv4 without options.
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(LinkHeader::BYTES..)?;
        let is_tcp = frame[12..14] == IPV4.to_be_bytes() && *packet.first()? == 0x45;
        if !is_tcp || *packet.get(9)? != TCP {
            return None;
        }
        let segment = packet.get(20..40)?;
        let port = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
        let word = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).ok();
        let number = |at: usize| word(&segment[at..at + 4]).map(u32::from_be_bytes);
        let address = |at: usize| word(&packet[at..at + 4]).map(Ipv4Addr::from);
        Some(Self {
            source: SocketAddrV4::new(address(12)?, port(0)),
            destination: SocketAddrV4::new(address(16)?, port(2)),
            sequence: number(4)?,
            acknowledgment: number(8)?,
            flags: Flags(segment[13].into()),
        })
    }
}

/// Returns the SYNs of different clients, at this number of addresses and ports.
pub fn syns(ends: Ends, destination: SocketAddrV4, count: u32) -> Vec<Vec<u8>> {
    let syn = |number: u32| {
        // Multiplied, so that neighbors in time are not neighbors in a table.
        let mixed = number.wrapping_mul(0x9e37_79b9);
        let [high, low, ..] = mixed.to_be_bytes();
        let address = Ipv4Addr::new(10, 81, high, low.clamp(1, 254));
        Segment {
            source: SocketAddrV4::new(address, 1024 + (number % 60_000) as u16),
            destination,
            sequence: mixed,
            acknowledgment: 0,
            flags: Flags::SYN,
        }
    };
    (0..count)
        .map(|number| syn(number).to_frame(ends))
        .collect()
}

/// Returns the frame of a datagram of 14 bytes, as in *LRP*.
///
/// # Errors
/// None: the datagram is short.
pub fn datagram(
    ends: Ends,
    source: SocketAddrV4,
    destination: SocketAddrV4,
) -> io::Result<Vec<u8>> {
    let addresses = addresses(source, destination);
    let mut datagram = Vec::new();
    let ports = (source.port(), destination.port());
    let written = udp::write(addresses, ports.0, ports.1, &[0; 14], &mut datagram);
    written.map_err(io::Error::other)?;
    Ok(frame(ends, addresses, UDP, &datagram))
}

fn addresses(source: SocketAddrV4, destination: SocketAddrV4) -> Addresses {
    Addresses {
        source: IpAddr::V4(*source.ip()),
        destination: IpAddr::V4(*destination.ip()),
    }
}

fn frame(ends: Ends, addresses: Addresses, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = LinkHeader {
        destination: ends.destination,
        source: ends.source,
        ether_type: IPV4,
    };
    let output = ip::Output {
        addresses,
        protocol,
        hop_limit: 64,
        traffic_class: 0,
        identification: 0,
        may_fragment: false,
    };
    let mut frame = header.to_bytes().to_vec();
    ip::write_header(&output, payload.len(), &mut frame);
    frame.extend(payload);
    // The shortest frame of Ethernet, without its checksum.
    frame.resize(frame.len().max(60), 0);
    frame
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const ENDS: Ends = Ends {
        source: LinkAddress([2, 0, 0, 0, 0, 1]),
        destination: LinkAddress([2, 0, 0, 0, 0, 2]),
    };
    const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 80);

    #[test]
    fn a_segment_is_read_as_it_was_written() {
        let segment = Segment {
            source: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 4000),
            destination: SERVER,
            sequence: 0x0102_0304,
            acknowledgment: 5,
            flags: Flags::ACK,
        };
        let frame = segment.to_frame(ENDS);
        assert_eq!(Segment::of_frame(&frame), Some(segment));
        assert_eq!(Segment::of_frame(&frame[..50]), None);
        let other = datagram(ENDS, SERVER, SERVER).unwrap();
        assert_eq!(Segment::of_frame(&other), None);
    }

    #[test]
    fn syns_are_of_different_clients() {
        let frames = syns(ENDS, SERVER, 1000);
        let segments = frames.iter().filter_map(|frame| Segment::of_frame(frame));
        let sources: HashSet<SocketAddrV4> = segments.map(|segment| segment.source).collect();
        assert_eq!(sources.len(), 1000);
    }
}
