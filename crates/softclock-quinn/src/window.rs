//! The rate of a connection, learnt from its congestion window and round trip.
//!
//! The source is the congestion controller, which quinn calls with both on every acknowledgment:
//!
//! - `Connection::stats` has the same numbers, but locks the connection, which is locked while it sends.
//! - The socket sees only datagrams. It would have to guess the rate from bursts that it should not see in the first
//!   place.
//!
//! A controller does not know its connection, and a socket does not know which connection sends. But quinn
//! makes the three calls that belong to one transmission one after the other on one thread: `Controller::on_sent`,
//! `UdpPoller::poll_writable`, `AsyncUdpSocket::try_send`. Each connection has a poller of its own. So the controller
//! leaves its rate in a variable of the thread, from which the poller takes it.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;
use softclock_tokio::Rate;

/// Makes the controllers of `factory` report their rates to [`paced_by_window`](crate::paced_by_window) sockets. Their
/// decisions stay the same. Pass the result to [`quinn::TransportConfig::congestion_controller_factory`].
///
/// The rate of a connection is 5/4 of its congestion window for each smoothed round trip, the rate at which quinn's own
/// pacing hands datagrams over (RFC 9002, section 7.7). A connection without a sample of its round trip has no rate,
/// and is not paced.
pub fn observed(factory: impl ControllerFactory + Send + Sync + 'static) -> Arc<Observed> {
    Arc::new(Observed {
        factory: Arc::new(factory),
    })
}

/// A factory of controllers that report their rates, created by [`observed`].
pub struct Observed {
    factory: Arc<dyn ControllerFactory + Send + Sync>,
}

impl ControllerFactory for Observed {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Reporter {
            controller: self.factory.clone().build(now, current_mtu),
            rate: Arc::default(),
            round_trip: None,
        })
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").finish_non_exhaustive()
    }
}

/// The rate of one connection in bits per second. 0 stands for an unknown rate.
#[derive(Debug, Default)]
pub(crate) struct LearntRate(AtomicU64);

impl LearntRate {
    /// Returns the rate, or `None` while it is unknown.
    pub(crate) fn get(&self) -> Option<Rate> {
        Rate::from_bps(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, window: u64, round_trip: Duration) {
        let bits = u128::from(window) * 8 * 5 / 4 * 1_000_000_000;
        let rate = bits.checked_div(round_trip.as_nanos()).unwrap_or(0);
        self.0
            .store(rate.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

thread_local! {
    /// The rate of the connection that has just made a packet on this thread.
    static SENDING: Cell<Option<Arc<LearntRate>>> = const { Cell::new(None) };
}

/// Takes the rate of the connection that has just made a packet on this thread.
pub(crate) fn take_sending() -> Option<Arc<LearntRate>> {
    SENDING.take()
}

/// A controller, and the rate that it reports.
struct Reporter {
    controller: Box<dyn Controller>,
    rate: Arc<LearntRate>,
    round_trip: Option<Duration>,
}

impl Reporter {
    fn report(&self) {
        if let Some(round_trip) = self.round_trip {
            self.rate.set(self.controller.window(), round_trip);
        }
    }
}

impl Controller for Reporter {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.controller.on_sent(now, bytes, last_packet_number);
        SENDING.set(Some(self.rate.clone()));
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.controller.on_ack(now, sent, bytes, app_limited, rtt);
        self.round_trip = Some(rtt.get());
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.controller
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        self.report();
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.controller
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
        self.report();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.controller.on_mtu_update(new_mtu);
        self.report();
    }

    fn window(&self) -> u64 {
        self.controller.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.controller.metrics()
    }

    /// A connection that moves to another path continues with a copy.
    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            controller: self.controller.clone_box(),
            rate: self.rate.clone(),
            round_trip: self.round_trip,
        })
    }

    fn initial_window(&self) -> u64 {
        self.controller.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self.controller.into_any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_window_for_each_round_trip_and_a_quarter_more() {
        let rate = LearntRate::default();
        assert_eq!(rate.get(), None);
        rate.set(125_000, Duration::from_millis(100));
        assert_eq!(rate.get(), Rate::from_bps(12_500_000));
        rate.set(125_000, Duration::ZERO);
        assert_eq!(rate.get(), None);
        rate.set(u64::MAX, Duration::from_nanos(1));
        assert_eq!(rate.get(), Rate::from_bps(u64::MAX));
    }
}
