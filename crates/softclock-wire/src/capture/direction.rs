//! The directions of a link, told apart by the addresses of its packets.

use alloc::collections::BTreeMap;
use core::fmt;
use core::net::IpAddr;

use super::Packet;
use crate::packet::Headers;

/// Which way a packet of a capture goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The way of the first packet whose direction is known.
    First,
    /// The other way.
    Second,
}

impl Direction {
    /// The opposite one.
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// A sender or receiver, by the outermost address that tells the two apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Station {
    /// By its address of Ethernet.
    Ethernet([u8; 6]),
    /// By its address of IP, where packets have no other, or both of Ethernet are equal.
    Ip(IpAddr),
    /// By its port, where both addresses are equal.
    Port(u16),
    /// The host that captured, in Linux's "cooked" captures.
    Host,
    /// Any other host there.
    Others,
}

/// Learns, as a switch does, which stations are on which side of a link, and so which way each packet goes.
///
/// The first packet puts its source on one side and its destination on the other; each further station is put opposite of
/// the one that it exchanges packets with. This fits a capture of a host's interface, where one of both is always the host,
/// and one on a link between two networks. It does not fit a port to which a switch copies the traffic of several others:
/// there, packets between stations of the same side have no direction.
///
/// # Cost
/// Two comparisons for a packet between the same stations as one of the two packets before, which went each way; else two
/// look-ups among the stations.
#[derive(Clone, Debug, Default)]
pub struct Directions {
    /// Which way what a station sends goes.
    stations: BTreeMap<Station, Direction>,
    /// The latest packet of each direction.
    latest: [Option<Ends>; 2],
}

/// The source of a packet and its destination; none for groups.
type Ends = (Station, Option<Station>);

impl Directions {
    /// Which way the packet goes, if that can be told.
    pub fn direction_of(&mut self, packet: &Packet<'_>) -> Option<Direction> {
        let ends = ends_of(packet)?;
        for direction in [Direction::First, Direction::Second] {
            if self.latest[direction as usize] == Some(ends) {
                return Some(direction);
            }
        }
        let direction = self.learn(ends)?;
        self.latest[direction as usize] = Some(ends);
        Some(direction)
    }

    fn learn(&mut self, (source, destination): Ends) -> Option<Direction> {
        let sends = |station: &Station| self.stations.get(station).copied();
        let opposite = destination.as_ref().and_then(sends).map(Direction::other);
        let direction = match (sends(&source), opposite) {
            (Some(own), Some(opposite)) if own != opposite => return None,
            (Some(known), _) | (None, Some(known)) => known,
            (None, None) if self.stations.is_empty() && destination.is_some() => Direction::First,
            (None, None) => return None,
        };
        self.put(source, direction);
        if let Some(destination) = destination {
            self.put(destination, direction.other());
        }
        Some(direction)
    }

    fn put(&mut self, station: Station, sends: Direction) {
        if self.stations.len() < MOST_STATIONS {
            self.stations.insert(station, sends);
        }
    }

    /// Those that send in this direction, in order.
    pub fn senders(&self, direction: Direction) -> impl Iterator<Item = Station> {
        let senders = self.stations.iter();
        senders.filter_map(move |(station, sends)| (*sends == direction).then_some(*station))
    }
}

fn ends_of(packet: &Packet<'_>) -> Option<Ends> {
    let data = packet.data;
    match packet.link.0 {
        1 => {
            let [destination, source] = [*data.first_chunk::<6>()?, *data.get(6..)?.first_chunk()?];
            let is_group = destination[0] & 1 != 0;
            if destination != source {
                let destination = (!is_group).then_some(Station::Ethernet(destination));
                return Some((Station::Ethernet(source), destination));
            }
        }
        113 => return cooked(*data.get(1)?),
        276 => return cooked(*data.get(10)?),
        _ => {}
    }
    let headers = packet.link.headers(data)?;
    match headers.addresses? {
        (source, destination) if source == destination => ports(&headers),
        (source, destination) => {
            let is_group = destination.is_multicast();
            let destination = (!is_group).then_some(Station::Ip(destination));
            Some((Station::Ip(source), destination))
        }
    }
}

fn ports(headers: &Headers) -> Option<Ends> {
    let (source, destination) = headers.ports.filter(|(from, to)| from != to)?;
    Some((Station::Port(source), Some(Station::Port(destination))))
}

/// The type of a packet in Linux's captures: to the host, to all, to a group, between others, from the host.
fn cooked(kind: u8) -> Option<Ends> {
    match kind {
        0..=2 => Some((Station::Others, Some(Station::Host))),
        4 => Some((Station::Host, Some(Station::Others))),
        _ => None,
    }
}

impl fmt::Display for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ethernet([a, b, c, d, e, g]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
            Self::Ip(address) => address.fmt(f),
            Self::Port(port) => write!(f, "port {port}"),
            Self::Host => f.write_str("the host"),
            Self::Others => f.write_str("others"),
        }
    }
}

/// Stations that are remembered.
const MOST_STATIONS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::super::LinkType;
    use super::Direction::{First, Second};
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use alloc::vec::Vec;

    fn packet(link: u16, data: &[u8]) -> Packet<'_> {
        Packet {
            at: None,
            original_bytes: 60,
            data,
            link: LinkType(link),
        }
    }

    fn frame(source: u8, destination: u8) -> Vec<u8> {
        let address = |last: u8| match last {
            0xff => [0xff; 6],
            last => [2, 0, 0, 0, 0, last],
        };
        [address(destination), address(source)].concat()
    }

    fn udp(source: u8, destination: u8, ports: [u8; 2]) -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        ip.extend([
            10,
            0,
            0,
            source,
            10,
            0,
            0,
            destination,
            0,
            ports[0],
            0,
            ports[1],
        ]);
        ip.extend([0; 4]);
        ip
    }

    #[test]
    fn the_stations_of_a_link_are_on_two_sides() {
        let mut directions = Directions::default();
        let mut of = |source, destination| {
            let frame = frame(source, destination);
            directions.direction_of(&packet(1, &frame))
        };
        assert_eq!(of(9, 0xff), None, "nobody is known yet");
        assert_eq!(
            [of(1, 2), of(2, 1), of(1, 2)],
            [Some(First), Some(Second), Some(First)]
        );
        assert_eq!(
            [of(1, 3), of(3, 1), of(4, 1)],
            [Some(First), Some(Second), Some(Second)]
        );
        assert_eq!([of(1, 0xff), of(4, 0xff)], [Some(First), Some(Second)]);
        assert_eq!(of(3, 4), None, "both are on one side");
        assert_eq!(of(8, 7), None, "neither is known");
        let senders = |direction| {
            directions
                .senders(direction)
                .map(|s| s.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(senders(First), ["02:00:00:00:00:01"]);
        assert_eq!(senders(Second).len(), 3);
    }

    #[test]
    fn addresses_of_ip_and_ports_stand_in() {
        let same_ethernet = |ip: Vec<u8>| [vec![0; 12], vec![8, 0], ip].concat();
        let mut directions = Directions::default();
        for (source, destination, direction) in [(1, 2, First), (2, 1, Second), (3, 1, Second)] {
            let (frame, raw) = (udp(source, destination, [7, 8]), 101);
            assert_eq!(
                directions.direction_of(&packet(raw, &frame)),
                Some(direction)
            );
            let frame = same_ethernet(frame);
            assert_eq!(directions.direction_of(&packet(1, &frame)), Some(direction));
        }
        let mut directions = Directions::default();
        for (ports, direction) in [([9, 80], First), ([80, 9], Second), ([10, 80], First)] {
            let frame = same_ethernet(udp(1, 1, ports));
            assert_eq!(directions.direction_of(&packet(1, &frame)), Some(direction));
        }
        let alike = same_ethernet(udp(1, 1, [5, 5]));
        assert_eq!(directions.direction_of(&packet(1, &alike)), None);
    }

    #[test]
    fn linux_says_what_the_host_sent() {
        for (link, at) in [(113, 1), (276, 10)] {
            let mut directions = Directions::default();
            let mut of = |kind| {
                let mut data = vec![0; 20];
                data[at] = kind;
                directions.direction_of(&packet(link, &data))
            };
            assert_eq!(
                [of(0), of(4), of(1), of(3)],
                [Some(First), Some(Second), Some(First), None]
            );
        }
    }

    #[test]
    fn no_packet_is_too_short() {
        for link in [1, 12, 113, 276, 147] {
            for length in 0..40 {
                Directions::default().direction_of(&packet(link, &vec![0x45; length]));
            }
        }
    }
}
