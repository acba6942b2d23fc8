//! What the congestion controller and the sender of a connection tell each other.
//!
//! A controller does not know its connection, and a socket does not know which connection sends. But quinn makes the
//! three calls that belong to one transmission one after the other on one thread: `Controller::on_sent`,
//! `UdpPoller::poll_writable`, `AsyncUdpSocket::try_send`. Each connection has a poller of its own. So the controller
//! leaves what it has learnt in a variable of the thread, from which the poller takes it. Probes of the path and of its
//! MTU lack the first call, so that the bytes of both are compared.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use softclock_tokio::Rate;

use crate::trains::{TRAIN, Trains};

/// What is learnt of one connection.
#[derive(Debug, Default)]
pub(crate) struct Learnt {
    /// The rate for its sender in bits per second. 0 stands for an unknown rate.
    rate: AtomicU64,
    /// Whether the path is measured.
    is_measured: AtomicBool,
    /// Whether datagrams leave in trains for it.
    in_trains: AtomicBool,
    trains: Mutex<Trains>,
}

impl Learnt {
    /// Of a connection whose path is measured from its beginning on, or never.
    pub(crate) fn new(is_measured: bool) -> Self {
        Self {
            is_measured: AtomicBool::new(is_measured),
            in_trains: AtomicBool::new(is_measured),
            ..Self::default()
        }
    }

    /// Returns the rate, or `None` while it is unknown.
    pub(crate) fn rate(&self) -> Option<Rate> {
        Rate::from_bps(self.rate.load(Ordering::Relaxed))
    }

    /// Sets the rate to a share of the window for each round trip, and at most to that of the path in bytes a second.
    /// The window and the path's rate count the payload of datagrams, and the rate the headers of IP and UDP, too.
    pub(crate) fn set_rate(
        &self,
        window: u64,
        (part, whole): (u8, u8),
        round_trip: Duration,
        path: Option<u64>,
    ) {
        let bytes = u128::from(window) * 1_000_000_000 * u128::from(part) / u128::from(whole);
        let bytes = bytes.checked_div(round_trip.as_nanos()).unwrap_or(0);
        let bytes = path.map_or(bytes, |path| bytes.min(u128::from(path)));
        let bits = bytes * 8 * (DATAGRAM + HEADERS) / DATAGRAM;
        self.rate
            .store(bits.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the number of datagrams that leave together at least.
    pub(crate) fn joined(&self) -> u32 {
        match self.in_trains.load(Ordering::Relaxed) {
            true => TRAIN,
            false => 1,
        }
    }

    /// Sets whether datagrams leave in trains, for more measurements.
    pub(crate) fn set_in_trains(&self, in_trains: bool) {
        self.in_trains.store(in_trains, Ordering::Relaxed);
    }

    pub(crate) fn is_measured(&self) -> bool {
        self.is_measured.load(Ordering::Relaxed)
    }

    /// Ends the measurement, and frees its memory.
    pub(crate) fn end_measuring(&self) {
        self.is_measured.store(false, Ordering::Relaxed);
        self.set_in_trains(false);
        *self.trains() = Trains::default();
    }

    /// Records that datagrams are handed over to the sender, the last of which has this packet number.
    pub(crate) fn on_queued(&self, datagrams: usize, bytes: usize, last: Option<u64>) {
        if self.is_measured() && !self.trains().queue(datagrams, bytes, last) {
            self.end_measuring();
        }
    }

    /// Takes back [`Self::on_queued`]: the sender had no room.
    pub(crate) fn on_refused(&self) {
        if self.is_measured() {
            self.trains().cancel();
        }
    }

    /// Records that datagrams have left by one call, or have been dropped.
    pub(crate) fn on_left(&self, datagrams: usize, is_train: bool) {
        if self.is_measured() {
            self.trains().leave(datagrams, is_train);
        }
    }

    /// Records an acknowledgment of packets up to `largest`.
    pub(crate) fn on_acknowledged(&self, now: Instant, largest: u64) {
        self.trains().acknowledge(now, largest);
    }

    /// Returns the rate of the path in bytes a second, if it is known, and whether trains may tell more of it.
    pub(crate) fn path(&self) -> (Option<u64>, More) {
        let trains = self.trains();
        let more = match (trains.are_in_vain(), trains.is_settled()) {
            (true, _) => More::Never,
            (false, false) => More::Needed,
            (false, true) => More::Welcome,
        };
        (trains.bytes_per_second(), more)
    }

    fn trains(&self) -> MutexGuard<'_, Trains> {
        self.trains.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether further trains are of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum More {
    Needed,
    Welcome,
    Never,
}

/// The datagrams that a connection has just made.
pub(crate) struct Sending {
    pub(crate) learnt: Arc<Learnt>,
    pub(crate) made: Made,
}

/// The number of the last packet, and the bytes of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) packet_number: u64,
    pub(crate) bytes: u64,
}

thread_local! {
    /// What a connection has made last on this thread.
    static SENDING: Cell<Option<Sending>> = const { Cell::new(None) };
}

/// Leaves what a connection has made on this thread.
pub(crate) fn set_sending(learnt: Arc<Learnt>, made: Made) {
    SENDING.set(Some(Sending { learnt, made }));
}

/// Takes what a connection has made last on this thread.
pub(crate) fn take_sending() -> Option<Sending> {
    SENDING.take()
}

/// The datagrams that QUIC sends at least where there is enough data (RFC 9000, section 14), and their headers of IPv4
/// and UDP. Larger ones need less of the rate for headers, by 0.4 % at most.
const DATAGRAM: u128 = 1200;
const HEADERS: u128 = 28;

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    #[test]
    fn the_rate_is_a_share_of_the_window_for_each_round_trip() {
        let learnt = Learnt::default();
        assert_eq!(learnt.rate(), None);
        learnt.set_rate(120_000, (5, 4), RTT, None);
        assert_eq!(learnt.rate(), Rate::from_bps(12_280_000));
        learnt.set_rate(120_000, (26, 25), RTT, None);
        assert_eq!(learnt.rate(), Rate::from_bps(10_216_960));
        learnt.set_rate(120_000, (5, 4), Duration::ZERO, None);
        assert_eq!(learnt.rate(), None);
        learnt.set_rate(u64::MAX, (5, 4), Duration::from_nanos(1), None);
        assert_eq!(learnt.rate(), Rate::from_bps(u64::MAX));
    }

    #[test]
    fn the_rate_is_at_most_that_of_the_path() {
        let learnt = Learnt::default();
        learnt.set_rate(120_000, (5, 4), RTT, Some(1_200_000));
        assert_eq!(learnt.rate(), Rate::from_bps(9_824_000));
        learnt.set_rate(120_000, (5, 4), RTT, Some(u64::MAX));
        assert_eq!(learnt.rate(), Rate::from_bps(12_280_000));
    }

    #[test]
    fn a_sender_that_loses_datagrams_silently_ends_the_measurement() {
        let learnt = Learnt::new(true);
        for number in 0..2000 {
            learnt.on_queued(1, 1200, Some(number));
        }
        assert!(!learnt.is_measured());
        assert_eq!(learnt.joined(), 1);
    }
}
