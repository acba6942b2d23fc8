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

/// Makes the controllers of `factory` report their rates to [`paced_by_window`](crate::paced_by_window) sockets, and
/// lets their windows grow more slowly in the later part of slow start. Pass the result to
/// [`quinn::TransportConfig::congestion_controller_factory`].
///
/// In slow start, the rate of a connection is 5/4 of its congestion window for each smoothed round trip, the rate at
/// which quinn's own pacing hands datagrams over (RFC 9002, section 7.7). Later it is 26/25 of it. A connection without
/// a sample of its round trip has no rate, and is not paced.
///
/// From twice the initial window on, the controller is passed half of the acknowledged bytes in slow start: the window
/// grows by half in each round trip, and no longer doubles. It then exceeds a path with a short queue by half at most,
/// before the sender learns of the first loss. With quinn's default initial window, a transfer of 100 kB takes one
/// round trip longer for it, one of 1 MB two. All other decisions are those of `factory`. Controllers that report no
/// slow start threshold, such as quinn's BBR, make all of their decisions, and have a rate of 5/4.
///
/// [`observed_unchanged`] leaves slow start as it is.
pub fn observed(factory: impl ControllerFactory + Send + Sync + 'static) -> Arc<Observed> {
    Arc::new(Observed {
        factory: Arc::new(factory),
        slows_start: true,
    })
}

/// Like [`observed`], with windows that grow in slow start as those of `factory` do: for paths whose queues have room
/// for a window, where the slower growth gains nothing.
pub fn observed_unchanged(
    factory: impl ControllerFactory + Send + Sync + 'static,
) -> Arc<Observed> {
    Arc::new(Observed {
        factory: Arc::new(factory),
        slows_start: false,
    })
}

/// A factory of controllers that report their rates, created by [`observed`] or [`observed_unchanged`].
pub struct Observed {
    factory: Arc<dyn ControllerFactory + Send + Sync>,
    slows_start: bool,
}

impl ControllerFactory for Observed {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Reporter {
            controller: self.factory.clone().build(now, current_mtu),
            slows_start: self.slows_start,
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

    /// Sets the rate to a share of the window for each round trip. The window counts the payload of datagrams, and the
    /// rate the headers of IP and UDP, too.
    fn set(&self, window: u64, (part, whole): (u8, u8), round_trip: Duration) {
        let bytes = u128::from(window) * (DATAGRAM + HEADERS) / DATAGRAM;
        let bits = bytes * 8 * u128::from(part) / u128::from(whole) * 1_000_000_000;
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
    slows_start: bool,
    rate: Arc<LearntRate>,
    round_trip: Option<Duration>,
}

impl Reporter {
    fn report(&self) {
        if let Some(round_trip) = self.round_trip {
            let (window, threshold) = (self.controller.window(), self.threshold());
            self.rate.set(window, share(window, threshold), round_trip);
        }
    }

    fn threshold(&self) -> Option<u64> {
        self.controller.metrics().ssthresh
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
        let window = self.controller.window();
        let slows = self.slows_start && is_in_slow_start(window, self.threshold()) == Some(true);
        let bytes = match slows {
            true => growth(bytes, window, self.controller.initial_window()),
            false => bytes,
        };
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
            slows_start: self.slows_start,
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

/// Returns whether a connection is in slow start, unless its controller has no threshold for it.
fn is_in_slow_start(window: u64, threshold: Option<u64>) -> Option<bool> {
    threshold.map(|threshold| window < threshold)
}

/// Returns the rate as a share of the window for each round trip.
///
/// A window that does not fill the path is sent in a part of the round trip, and its acknowledgments return in the same
/// part of the next one. So the pattern lasts: at 5/4, the bottleneck is full from 4/5 of the path's capacity on, and
/// the excess of a window has to wait in its queue. After slow start, the window changes slowly, and a rate hardly
/// above it is enough to use it.
fn share(window: u64, threshold: Option<u64>) -> (u8, u8) {
    match is_in_slow_start(window, threshold) {
        Some(false) => (26, 25),
        Some(true) | None => (5, 4),
    }
}

/// Returns the acknowledged bytes by which slow start grows the window.
fn growth(bytes: u64, window: u64, initial_window: u64) -> u64 {
    match window < initial_window.saturating_mul(DOUBLING) {
        true => bytes,
        false => bytes / 2,
    }
}

/// The datagrams that QUIC sends at least where there is enough data (RFC 9000, section 14), and their headers of IPv4
/// and UDP. Larger ones need less of the rate for headers, by 0.4 % at most.
const DATAGRAM: u128 = 1200;
const HEADERS: u128 = 28;

/// The window, in initial windows, up to which slow start doubles it in each round trip.
const DOUBLING: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_a_share_of_the_window_for_each_round_trip() {
        let rate = LearntRate::default();
        assert_eq!(rate.get(), None);
        rate.set(120_000, (5, 4), Duration::from_millis(100));
        assert_eq!(rate.get(), Rate::from_bps(12_280_000));
        rate.set(120_000, (26, 25), Duration::from_millis(100));
        assert_eq!(rate.get(), Rate::from_bps(10_216_960));
        rate.set(120_000, (5, 4), Duration::ZERO);
        assert_eq!(rate.get(), None);
        rate.set(u64::MAX, (5, 4), Duration::from_nanos(1));
        assert_eq!(rate.get(), Rate::from_bps(u64::MAX));
    }

    #[test]
    fn the_rate_is_hardly_above_the_window_after_slow_start() {
        assert_eq!(share(20_000, Some(u64::MAX)), (5, 4));
        assert_eq!(share(20_000, Some(20_000)), (26, 25));
        assert_eq!(
            share(20_000, None),
            (5, 4),
            "a controller without slow start"
        );
    }

    #[test]
    fn slow_start_grows_by_half_in_its_later_part() {
        assert_eq!(growth(1000, 14_720, 14_720), 1000);
        assert_eq!(growth(1000, 2 * 14_720 - 1, 14_720), 1000);
        assert_eq!(growth(1000, 2 * 14_720, 14_720), 500);
        assert_eq!(growth(1000, u64::MAX, u64::MAX), 500);
    }
}
