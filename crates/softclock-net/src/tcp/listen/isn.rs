//! Initial sequence numbers and clocks of time stamps that other hosts cannot foresee (RFC 6528; RFC 7323, 5.4).

use core::net::IpAddr;

use softclock_core::Instant;

use crate::demux::{Flow, HashKey};
use crate::tcp::seq::Seq;

/// The secrets from which sequence numbers, time stamps and cookies of a stack are computed, for each flow others.
///
/// ```
/// use core::time::Duration;
/// use softclock_core::Instant;
/// use softclock_net::demux::{Flow, HashKey, Transport};
/// use softclock_net::tcp::listen::FlowSecrets;
///
/// let flow = Flow {
///     transport: Transport::Tcp,
///     remote: ("192.0.2.7".parse().unwrap(), 40_000),
///     local: ("192.0.2.1".parse().unwrap(), 80),
/// };
/// let secrets = FlowSecrets::new(HashKey([1, 2])); // In earnest: random, and secret.
/// let first = secrets.initial_sequence(&flow, Instant::ORIGIN);
/// let later = secrets.initial_sequence(&flow, Instant::ORIGIN + Duration::from_millis(1));
/// assert_eq!(later, first + 250);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FlowSecrets {
    sequence: HashKey,
    timestamp: HashKey,
    pub(super) cookie: HashKey,
    pub(super) cookie_options: HashKey,
}

impl FlowSecrets {
    /// Derives the secrets from one key, which must be random and used for nothing else.
    pub fn new(key: HashKey) -> Self {
        let derive = |number: u8| HashKey([key.mac(&[number, 0]), key.mac(&[number, 1])]);
        Self {
            sequence: derive(0),
            timestamp: derive(1),
            cookie: derive(2),
            cookie_options: derive(3),
        }
    }

    /// The initial sequence number of a connection that is opened at `now`: a secret for each flow, and a clock that
    /// adds 1 every 4 µs, so that a new connection of the same flow begins behind the previous one (RFC 6528, 3).
    pub fn initial_sequence(&self, flow: &Flow, now: Instant) -> Seq {
        let clock = (now.as_ns() / ISN_TICK_NS) as u32;
        Seq(self.sequence.mac(&message(flow, 0)) as u32) + clock
    }

    /// Like [`initial_sequence`](Self::initial_sequence), behind all sequence numbers of a previous connection of the
    /// flow up to `previous`, which is in TIME-WAIT (RFC 9293, 3.4.1; RFC 1122, 4.2.2.13).
    pub fn initial_sequence_after(&self, flow: &Flow, now: Instant, previous: Seq) -> Seq {
        let sequence = self.initial_sequence(flow, now);
        match sequence.is_at_or_before(previous) {
            true => previous + PAST_PREVIOUS,
            false => sequence,
        }
    }

    /// The number that is added to the clock of a flow's time stamps, so that they tell neither the uptime of the host
    /// nor which flows belong to it. The same for each connection of the flow, so its time stamps never go back.
    pub fn timestamp_offset(&self, flow: &Flow) -> u32 {
        self.timestamp.mac(&message(flow, 0)) as u32
    }
}

/// The unit of the clock of time stamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimestampUnit {
    /// Milliseconds, as in Linux and FreeBSD: the clock wraps after 50 days.
    #[default]
    Millisecond,
    /// Microseconds: the clock wraps after 72 minutes, and round trips within a data center can be measured. RFC 7323,
    /// 5.4 advises against units below a millisecond unless the path's segments live shortly.
    Microsecond,
}

impl TimestampUnit {
    /// The reading of the clock, before the offset of a flow.
    pub const fn reading(self, now: Instant) -> u32 {
        (now.as_ns() / self.ns()) as u32
    }

    /// The length of a unit, in nanoseconds.
    pub const fn ns(self) -> u64 {
        match self {
            Self::Millisecond => 1_000_000,
            Self::Microsecond => 1_000,
        }
    }
}

/// A flow and a number as bytes for a hash.
pub(super) fn message(flow: &Flow, number: u64) -> [u8; 44] {
    let mut bytes = [0; 44];
    let parts = [
        (0, octets(flow.remote.0), flow.remote.1),
        (18, octets(flow.local.0), flow.local.1),
    ];
    for (start, address, port) in parts {
        bytes[start..start + 16].copy_from_slice(&address);
        bytes[start + 16..start + 18].copy_from_slice(&port.to_be_bytes());
    }
    bytes[36..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The period of the clock of initial sequence numbers (RFC 6528, 3).
const ISN_TICK_NS: u64 = 4_000;

/// The distance from the last sequence number of a previous connection: more than an unscaled window, as in Linux.
const PAST_PREVIOUS: u32 = 65_535 + 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demux::Transport;
    use proptest::prelude::*;

    fn flow(remote: u16, local: u16) -> Flow {
        Flow {
            transport: Transport::Tcp,
            remote: ("192.0.2.1".parse().unwrap(), remote),
            local: ("192.0.2.2".parse().unwrap(), local),
        }
    }

    proptest! {
        #[test]
        fn a_new_connection_begins_behind_the_previous_one(
            key in any::<[u64; 2]>(),
            ns in any::<u64>(),
            previous in any::<u32>().prop_map(Seq),
        ) {
            let secrets = FlowSecrets::new(HashKey(key));
            let now = Instant::from_ns(ns);
            let next = secrets.initial_sequence_after(&flow(1, 2), now, previous);
            prop_assert!(previous.is_before(next));
        }
    }

    #[test]
    fn each_flow_and_each_purpose_has_numbers_of_its_own() {
        let secrets = FlowSecrets::new(HashKey([1, 2]));
        let now = Instant::ORIGIN;
        let flows = [flow(1, 2), flow(2, 1), flow(1, 3)];
        let sequences = flows.map(|flow| secrets.initial_sequence(&flow, now).0);
        let offsets = flows.map(|flow| secrets.timestamp_offset(&flow));
        let mut all = [sequences, offsets].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
        let others = FlowSecrets::new(HashKey([1, 3]));
        assert_ne!(others.initial_sequence(&flow(1, 2), now).0, sequences[0]);
    }

    #[test]
    fn the_clock_of_time_stamps_has_its_unit() {
        let now = Instant::from_ns(5_000_000_000);
        assert_eq!(TimestampUnit::Millisecond.reading(now), 5_000);
        assert_eq!(TimestampUnit::Microsecond.reading(now), 5_000_000);
    }
}
