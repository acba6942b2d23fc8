//! The flows that are looked up.

use std::net::Ipv4Addr;

use softclock_net::demux::{Flow, Transport};

/// A kind of flows, or of packets of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keys {
    Random,
    Sequential,
    Colliding,
    Absent,
}

impl Keys {
    pub(super) const ALL: [Self; 4] = [
        Self::Random,
        Self::Sequential,
        Self::Colliding,
        Self::Absent,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sequential => "sequential",
            Self::Colliding => "colliding",
            Self::Absent => "absent",
        }
    }

    /// Returns `count` distinct flows, none of which has [`ABSENT_PORT`].
    pub(super) fn flows(self, count: usize) -> Vec<Flow> {
        (0..count as u32).map(|number| self.flow(number)).collect()
    }

    fn flow(self, number: u32) -> Flow {
        let (host, port) = match self {
            Self::Random | Self::Absent => {
                let port = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
                (scattered(number), port as u16)
            }
            Self::Sequential => (FIRST_HOST + number, 40_000),
            Self::Colliding => {
                let host = FIRST_HOST + number;
                (host, (host >> 16 ^ host) as u16)
            }
        };
        Flow {
            transport: Transport::Tcp,
            remote: (Ipv4Addr::from_bits(host).into(), port.max(ABSENT_PORT + 1)),
            local: (LOCAL.into(), 80),
        }
    }
}

/// Maps each number to another that looks random, and no two to the same.
const fn scattered(number: u32) -> u32 {
    let mut bits = number ^ number >> 16;
    bits = bits.wrapping_mul(0x7feb_352d);
    bits ^= bits >> 15;
    bits = bits.wrapping_mul(0x846c_a68b);
    bits ^ bits >> 16
}

/// BSD's hash of flows in the table of protocol control blocks, without the mask that makes it a place in the table.
pub(super) const fn unkeyed_hash(host: u32, ports: u32) -> u32 {
    let port = (ports >> 16 ^ ports) & 0xffff;
    host ^ host >> 16 ^ port
}

/// The source port of packets that belong to no flow.
pub(super) const ABSENT_PORT: u16 = 1;

const FIRST_HOST: u32 = Ipv4Addr::new(10, 0, 0, 0).to_bits();

const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::net::IpAddr;

    #[test]
    fn flows_are_distinct() {
        for keys in Keys::ALL {
            let flows: HashSet<Flow> = keys.flows(100_000).into_iter().collect();
            assert_eq!(flows.len(), 100_000, "{keys:?}");
        }
    }

    #[test]
    fn colliding_flows_collide_in_the_unkeyed_hash() {
        let hash = |flow: Flow| match flow.remote.0 {
            IpAddr::V4(host) => {
                let ports = u32::from(flow.remote.1) << 16 | u32::from(flow.local.1);
                unkeyed_hash(host.to_bits(), ports)
            }
            IpAddr::V6(_) => unreachable!("all flows are of IPv4"),
        };
        let flows = Keys::Colliding.flows(10_000);
        let hashes: HashSet<u32> = flows.into_iter().map(hash).collect();
        // Two flows have a port that is reserved, and get another.
        assert!(hashes.len() <= 3, "{hashes:?}");
    }
}
