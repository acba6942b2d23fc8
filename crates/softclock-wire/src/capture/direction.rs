//! Finds out the direction of each packet on a link from the addresses of the packets.

use alloc::collections::BTreeMap;
use core::fmt;
use core::net::IpAddr;

use super::Packet;
use crate::packet::Headers;

/// One of the two directions of a captured link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The direction of the first packet whose direction is known.
    First,
    /// The opposite direction.
    Second,
}

impl Direction {
    /// The opposite direction.
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// A sender or receiver of packets, identified by the outermost address that distinguishes the two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Station {
    /// The station with this Ethernet address.
    Ethernet([u8; 6]),
    /// The station with this IP address, if the link is not Ethernet, or both Ethernet addresses are equal.
    Ip(IpAddr),
    /// The station with this port, if both IP addresses are equal too.
    Port(u16),
    /// The capturing host, in Linux's "cooked" captures.
    Host,
    /// Any other host, in Linux's "cooked" captures.
    Others,
}

/// Learns on which side of a link each station is, as a switch does, and so the direction of each packet.
///
/// The first packet places its source on one side and its destination on the other. Each further station is placed
/// opposite the one with which it exchanges packets. This suits a capture of a host's interface, where every packet is
/// from or to the host, and one of a link between two networks. It does not suit a mirror port, to which a switch
/// copies the traffic of several others: packets between stations on the same side have no direction.
///
/// # Cost
/// Two comparisons for a packet between the same stations as the last packet of either direction, otherwise two
/// look-ups among the stations. Remembers up to 65536 stations.
///
/// # Example
/// ```
/// use softclock_wire::capture::{Direction, Directions, LinkType, Packet};
///
/// // Frames that begin with the addresses of destination and source.
/// let request = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1];
/// let response = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9];
/// let packet = |data| Packet { at: None, original_bytes: 60, data, link: LinkType::ETHERNET };
///
/// let mut directions = Directions::default();
/// assert_eq!(directions.direction_of(&packet(&request)), Some(Direction::First));
/// assert_eq!(directions.direction_of(&packet(&response)), Some(Direction::Second));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Directions {
    /// The direction of the packets that a station sends.
    stations: BTreeMap<Station, Direction>,
    /// The ends of the latest packet of each direction.
    latest: [Option<Ends>; 2],
}

/// The source and the destination of a packet. The destination is `None` for group addresses.
type Ends = (Station, Option<Station>);

impl Directions {
    /// Returns the direction of the packet, and learns from it. `None` if its stations cannot be identified, are not
    /// known, or are on the same side.
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

    /// Finds the direction by the stations' sides, and places a station whose side is not known.
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

    /// The stations that send in this direction, in the order of their addresses.
    pub fn senders(&self, direction: Direction) -> impl Iterator<Item = Station> {
        let senders = self.stations.iter();
        senders.filter_map(move |(station, sends)| (*sends == direction).then_some(*station))
    }
}

/// Identifies the stations of a packet, by the numbers of [`LinkType`]: Ethernet is 1, Linux's "cooked" captures are
/// 113 and 276.
fn ends_of(packet: &Packet<'_>) -> Option<Ends> {
    let data = packet.data;
    match packet.link.0 {
        1 => {
            let [destination, source] = [*data.first_chunk::<6>()?, *data.get(6..)?.first_chunk()?];
            let is_group = destination[0] & 1 != 0;
            // On a loopback interface both are zero, and the IP addresses decide.
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

/// Identifies the stations by the packet type of Linux's "cooked" captures: 0 to the host, 1 broadcast, 2 multicast,
/// 3 between other hosts, 4 from the host.
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

/// The most stations that are remembered.
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
