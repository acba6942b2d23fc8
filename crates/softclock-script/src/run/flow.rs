//! The connection between the host and the remote end, as both the script and the wire number it.
//!
//! The remote end's sequence numbers are the script's. The host chooses its initial sequence number itself, and the
//! script's numbers are relative to it: the first SYN of the host tells by how much they differ. The same holds for
//! time stamps, whose values are taken from the packets that matched the script's.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use softclock_net::tcp::segment::Flags;

/// A connection, and the difference between the numbers of the script and those of the wire.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// The host's address; the port is 0 until the host has sent a packet.
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// What is added to the script's sequence numbers of the host.
    local_offset: Option<u32>,
    /// The sequence number of the host's SYN in the script.
    local_initial: u32,
    /// The remote end's SYN.
    remote_initial: Option<u32>,
    /// The wire's time stamps of the host, by the script's.
    timestamps: BTreeMap<u32, u32>,
    /// Whether the connection has begun to end, so that a SYN may begin another.
    is_ending: bool,
    /// Whether a SYN has arrived since then, so that the host may choose another initial sequence number.
    is_renewing: bool,
    /// The positions and the flags of the latest segment of the host, in the script's numbers.
    pub(super) latest: Option<(u32, u32)>,
}

impl Flow {
    pub(super) fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local,
            remote,
            local_offset: None,
            local_initial: 0,
            remote_initial: None,
            timestamps: BTreeMap::new(),
            is_ending: false,
            is_renewing: false,
            latest: None,
        }
    }

    /// A sequence number of the host: from the script's to the wire's.
    pub(super) fn to_wire(&self, sequence: u32) -> u32 {
        sequence.wrapping_add(self.local_offset.unwrap_or(0))
    }

    /// A sequence number of the host: from the wire's to the script's.
    pub(super) fn to_script(&self, sequence: u32) -> u32 {
        sequence.wrapping_sub(self.local_offset.unwrap_or(0))
    }

    /// A time stamp of the host: from the script's to the wire's. One that no packet of the host had is as far from the
    /// nearest one before as the script says.
    pub(super) fn timestamp_to_wire(&self, timestamp: u32) -> u32 {
        let before = self.timestamps.range(..=timestamp).next_back();
        match before.or_else(|| self.timestamps.iter().next()) {
            Some((script, wire)) => wire.wrapping_add(timestamp.wrapping_sub(*script)),
            None => timestamp,
        }
    }

    /// The first time stamp of the host, in the script and on the wire.
    pub(super) fn first_timestamp(&self) -> Option<(u32, u32)> {
        let (script, wire) = self.timestamps.iter().next()?;
        Some((*script, *wire))
    }

    /// Notes that the host sent `wire` where the script has `script`.
    pub(super) fn learn_timestamp(&mut self, script: u32, wire: u32) {
        self.timestamps.insert(script, wire);
    }

    /// Takes note of a segment to the host, in the script's numbers.
    pub(super) fn on_inbound(&mut self, flags: Flags, sequence: u32) {
        if flags.contains(Flags::SYN) {
            self.is_renewing = self.is_ending;
            self.remote_initial = match self.remote_initial {
                Some(known) if !self.is_ending => Some(known),
                _ => Some(sequence),
            };
        }
        self.is_ending |= flags.intersects(Flags::FIN | Flags::RST);
    }

    /// Learns the host's initial sequence number from a SYN that it has sent, if it may be a new one.
    pub(super) fn learn_initial(&mut self, script: Option<u32>, wire: u32) {
        let is_any = script.is_none();
        if self.local_offset.is_none() || self.is_renewing || is_any {
            self.local_initial = script.unwrap_or(0);
            self.local_offset = Some(wire.wrapping_sub(self.local_initial));
            self.is_renewing = false;
            self.is_ending = false;
        }
    }

    /// Takes note of a segment of the host, in the script's numbers.
    pub(super) fn on_outbound(&mut self, flags: Flags, sequence: u32, length: u32) {
        self.latest = Some((sequence, length));
        self.is_ending |= flags.intersects(Flags::FIN | Flags::RST);
    }

    /// The place in the remote end's stream of the first byte of a segment, in the script's numbers.
    pub(super) fn inbound_place(&self, flags: Flags, sequence: u32) -> u32 {
        let first = sequence.wrapping_add(u32::from(flags.contains(Flags::SYN)));
        first.wrapping_sub(self.remote_initial.unwrap_or(0).wrapping_add(1))
    }

    /// The place in the host's stream of the first byte of a segment, in the script's numbers.
    pub(super) fn outbound_place(&self, flags: Flags, sequence: u32) -> u32 {
        let first = sequence.wrapping_add(u32::from(flags.contains(Flags::SYN)));
        first.wrapping_sub(self.local_initial.wrapping_add(1))
    }
}

/// The bytes of a stream from a place on. They repeat after a prime number, so a shift by any power of two shows.
pub(super) fn pattern(place: u32, length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|index| (place.wrapping_add(index) % 251) as u8)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_relative_to_the_first_syn_of_the_host() {
        let mut flow = Flow::new(
            "192.168.0.1:8080".parse().unwrap(),
            "192.0.2.1:5".parse().unwrap(),
        );
        assert_eq!(flow.to_wire(7), 7);
        flow.learn_initial(Some(0), 1000);
        assert_eq!((flow.to_wire(1), flow.to_script(1001)), (1001, 1));
        flow.learn_initial(Some(0), 2000);
        assert_eq!(flow.to_wire(1), 1001, "another SYN of the same connection");
        flow.on_inbound(Flags::RST, 1);
        flow.on_inbound(Flags::SYN, 0);
        flow.learn_initial(Some(0), 3000);
        assert_eq!(flow.to_wire(1), 3001);
    }

    #[test]
    fn unseen_time_stamps_keep_their_distance() {
        let mut flow = Flow::new(
            "192.168.0.1:8080".parse().unwrap(),
            "192.0.2.1:5".parse().unwrap(),
        );
        assert_eq!(flow.timestamp_to_wire(5), 5);
        flow.learn_timestamp(100, 90_100);
        flow.learn_timestamp(200, 90_207);
        assert_eq!(flow.timestamp_to_wire(100), 90_100);
        assert_eq!(flow.timestamp_to_wire(210), 90_217);
        assert_eq!(flow.timestamp_to_wire(90), 90_090);
    }
}
