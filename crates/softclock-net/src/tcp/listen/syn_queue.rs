//! Half-open connections: a SYN has arrived, and the SYN-ACK is not acknowledged yet (RFC 4987, 3.3).

use core::time::Duration;

use softclock_core::Instant;

use crate::demux::{Flow, HashKey};
use crate::tcp::challenge::LastChallenge;
use crate::tcp::flow_map::{FlowMap, Place, Record, Slot};
use crate::tcp::peer::{Ecn, PeerOptions};
use crate::tcp::seq::Seq;

/// A half-open connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HalfOpen {
    /// The time of the next retransmission.
    deadline: Instant,
    /// The initial sequence number of this end (ISS).
    pub(super) local_initial: Seq,
    /// The initial sequence number of the peer (IRS).
    pub(super) remote_initial: Seq,
    /// TS.Recent, if the flag says so.
    timestamp: u32,
    pub(super) last_challenge: LastChallenge,
    mss: u16,
    window_scale: u8,
    flags: u8,
    /// The number of retransmissions that the timer has made.
    retries: u8,
}

impl HalfOpen {
    pub(super) fn new(local_initial: Seq, remote_initial: Seq, peer: &PeerOptions) -> Self {
        let mut half_open = Self {
            deadline: Instant::ORIGIN,
            local_initial,
            remote_initial,
            timestamp: 0,
            last_challenge: LastChallenge::default(),
            mss: 0,
            window_scale: NO_SCALE,
            flags: 0,
            retries: 0,
        };
        half_open.set_peer(peer);
        half_open
    }

    pub(super) fn peer(&self) -> PeerOptions {
        let has = |flag| self.flags & flag != 0;
        PeerOptions {
            mss: self.mss,
            window_scale: (self.window_scale != NO_SCALE).then_some(self.window_scale),
            is_sack_permitted: has(SACK),
            timestamps: has(TIMESTAMPS).then_some(self.timestamp),
            ecn: if has(ECN) { Ecn::Classic } else { Ecn::Off },
        }
    }

    pub(super) fn set_peer(&mut self, peer: &PeerOptions) {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        self.mss = peer.mss;
        self.window_scale = peer.window_scale.unwrap_or(NO_SCALE);
        self.timestamp = peer.timestamps.unwrap_or(0);
        self.flags = self.flags & RETRANSMITTED
            | flag(peer.is_sack_permitted, SACK)
            | flag(peer.timestamps.is_some(), TIMESTAMPS)
            | flag(peer.ecn == Ecn::Classic, ECN);
    }

    /// Notes that the SYN-ACK was sent again, so its acknowledgment tells no round-trip time (RFC 6298, 3).
    pub(super) fn set_retransmitted(&mut self) {
        self.flags |= RETRANSMITTED;
    }

    pub(super) fn is_retransmitted(&self) -> bool {
        self.flags & RETRANSMITTED != 0
    }
}

impl Record for HalfOpen {
    const LISTS: usize = MOST_RETRIES as usize + 1;

    fn list(&self) -> usize {
        self.retries.into()
    }
}

/// The half-open connections of a listener.
///
/// Those with the same number of retransmissions are in one list, and have the same timeout, so each list is in the
/// order of deadlines: timers take constant time.
pub(super) struct SynQueue {
    map: FlowMap<HalfOpen>,
    initial_timeout: Duration,
    retries: u8,
}

/// The result of a deadline.
pub(super) enum Expired {
    /// The SYN-ACK must be sent again.
    Retransmit(Flow, HalfOpen),
    /// All retransmissions were in vain, and the record is removed.
    GivenUp,
}

impl SynQueue {
    pub(super) fn new(key: HashKey, initial_timeout: Duration, retries: u8) -> Self {
        Self {
            map: FlowMap::new(key),
            initial_timeout,
            retries: retries.min(MOST_RETRIES),
        }
    }

    pub(super) const fn initial_timeout(&self) -> Duration {
        self.initial_timeout
    }

    pub(super) const fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn find(&self, flow: &Flow) -> Option<(Place, HalfOpen)> {
        let place = self.map.find(flow)?;
        Some((place, *self.map.get(place)))
    }

    /// Adds a connection whose SYN-ACK is sent now, and whose flow has none.
    pub(super) fn insert(&mut self, now: Instant, flow: &Flow, half_open: HalfOpen) -> bool {
        let deadline = now + self.initial_timeout;
        self.map.insert(
            flow,
            HalfOpen {
                deadline,
                ..half_open
            },
        )
    }

    /// Changes a connection, but not its deadline.
    pub(super) fn replace(&mut self, place: Place, half_open: HalfOpen) {
        self.map.replace(place, half_open);
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.map.remove(place);
    }

    /// Removes the connection whose SYN-ACK was retransmitted most often, of these the oldest.
    pub(super) fn remove_oldest(&mut self) -> bool {
        let oldest = (0..HalfOpen::LISTS)
            .rev()
            .find_map(|list| self.map.first(list));
        oldest.map(|place| self.map.remove(place)).is_some()
    }

    /// The time between the only SYN-ACK of a connection and its acknowledgment. `None` if there were several.
    pub(super) fn round_trip(&self, half_open: &HalfOpen, arrived: Instant) -> Option<Duration> {
        let sent = half_open.deadline - self.initial_timeout;
        (!half_open.is_retransmitted()).then(|| arrived.since(sent))
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.next_place().map(|place| self.map.get(place).deadline)
    }

    /// Deals with the earliest deadline, if it has come.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Expired> {
        let place = self.next_place()?;
        let mut half_open = *self.map.get(place);
        if half_open.deadline > now {
            return None;
        }
        if half_open.retries >= self.retries {
            self.map.remove(place);
            return Some(Expired::GivenUp);
        }
        half_open.retries += 1;
        half_open.set_retransmitted();
        half_open.deadline = now + self.initial_timeout * (1 << half_open.retries);
        self.map.requeue(place, half_open);
        Some(Expired::Retransmit(self.map.flow(place), half_open))
    }

    fn next_place(&self) -> Option<Place> {
        let firsts = (0..HalfOpen::LISTS).filter_map(|list| self.map.first(list));
        firsts.min_by_key(|place| self.map.get(*place).deadline)
    }
}

/// The most retransmissions that a setting can ask for: the last is then sent 8.5 minutes after the first, at the
/// default timeout.
pub(super) const MOST_RETRIES: u8 = 8;

const NO_SCALE: u8 = u8::MAX;

const SACK: u8 = 1;
const TIMESTAMPS: u8 = 1 << 1;
const ECN: u8 = 1 << 2;
const RETRANSMITTED: u8 = 1 << 3;

// With its share of the index, a half-open connection takes at most 91 bytes.
const _: () = assert!(size_of::<Slot<HalfOpen>>() <= 80);
