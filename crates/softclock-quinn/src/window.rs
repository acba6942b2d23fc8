//! Congestion controllers that report the rate of their connection.
//!
//! The source of the rate is the controller, which quinn calls with the window and the round trip on every
//! acknowledgment:
//!
//! - `Connection::stats` has the same numbers, but locks the connection, which is locked while it sends.
//! - The socket sees only datagrams. It would have to guess the rate from bursts that it should not see in the first
//!   place.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;

use crate::growth::{Growth, Window, capacity};
use crate::learnt::{Learnt, Made, More, set_sending};

/// Makes the controllers of `factory` report their rates to [`paced_by_window`](crate::paced_by_window) sockets, and
/// holds their windows back where growth only makes losses. Pass the result to
/// [`quinn::TransportConfig::congestion_controller_factory`].
///
/// The rate of a connection is 5/4 of its congestion window for each smoothed round trip, the rate at which quinn's own
/// pacing hands datagrams over (RFC 9002, section 7.7), and no more than the measured rate of the path. It is 26/25 of
/// a window that fills the measured path, and after slow start. A connection is not paced before its first
/// acknowledgment.
///
/// **In slow start, the window doubles up to the capacity of the path and no further**: the measured rate times the
/// least round trip. From there on it grows by one datagram in each round trip, after 32 of them by a sixteenth. For
/// the measurement, datagrams leave in trains of four, whose acknowledgments are as far apart as the slowest link
/// spreads them. The path is not measured if the [burst](softclock_tokio::Limits::burst) is below four, if it is faster
/// than about 250 Mbit/s, where wake-ups take as long as trains, or if the receiver acknowledges fewer than every
/// second datagram. The window then grows by half in each round trip from twice the initial window on.
///
/// **After the loss of a window that filled the measured path, it stays below that for as long as CUBIC's function
/// does** (RFC 9438, section 4.2), with any controller. CUBIC's Reno-friendly region (section 4.3) returns sooner, and
/// makes a loss several times a second where a path holds few datagrams. Then it grows by 1/64 in each round trip, or a
/// datagram, and by 1/16 when it is well above. A loss at a smaller window has another cause, such as other
/// connections, and one at more than twice the capacity tells of a long queue or a faster path: both change nothing.
///
/// All other decisions are those of `factory`. Controllers that report no slow start threshold, such as quinn's BBR,
/// make all of their decisions, and have a rate of 5/4.
///
/// [`observed_unchanged`] leaves the window as it is.
pub fn observed(factory: impl ControllerFactory + Send + Sync + 'static) -> Arc<Observed> {
    Arc::new(Observed {
        factory: Arc::new(factory),
        holds_back: true,
    })
}

/// Like [`observed`], without any change of the window, and without trains: for paths with long queues, where nothing
/// is gained.
pub fn observed_unchanged(
    factory: impl ControllerFactory + Send + Sync + 'static,
) -> Arc<Observed> {
    Arc::new(Observed {
        factory: Arc::new(factory),
        holds_back: false,
    })
}

/// A factory of controllers that report their rates, created by [`observed`] or [`observed_unchanged`].
pub struct Observed {
    factory: Arc<dyn ControllerFactory + Send + Sync>,
    holds_back: bool,
}

impl ControllerFactory for Observed {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let controller = self.factory.clone().build(now, current_mtu);
        Box::new(Reporter::new(controller, self.holds_back, current_mtu))
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").finish_non_exhaustive()
    }
}

/// A controller, what it has learnt, and where it is held back.
struct Reporter {
    controller: Box<dyn Controller>,
    /// `None` leaves the window as it is.
    growth: Option<Growth>,
    learnt: Arc<Learnt>,
    /// The bytes of a datagram.
    datagram: u64,
    round_trip: Option<Duration>,
    /// The least round trip.
    least: Duration,
    /// The rate of the path in bytes a second, once it has been measured.
    path: Option<u64>,
}

impl Reporter {
    fn new(controller: Box<dyn Controller>, holds_back: bool, mtu: u16) -> Self {
        Self {
            controller,
            growth: holds_back.then(Growth::new),
            learnt: Arc::new(Learnt::new(holds_back)),
            datagram: u64::from(mtu),
            round_trip: None,
            least: Duration::ZERO,
            path: None,
        }
    }

    /// Passes the rate on to the sender.
    fn report(&self) {
        let Some(round_trip) = self.round_trip else {
            return;
        };
        let window = self.controller.window();
        let is_full = self.capacity().map(|capacity| window >= capacity);
        let (share, path) = match (is_full, self.is_in_slow_start()) {
            (Some(true), _) | (_, Some(false)) => (FULL, None),
            _ => (BELOW, self.path),
        };
        self.learnt.set_rate(window, share, round_trip, path);
    }

    /// Measures the path until slow start ends. Datagrams leave in trains up to half of the path's capacity.
    fn measure(&mut self, now: Instant, largest: Option<u64>) {
        if !self.learnt.is_measured() {
            return;
        }
        let is_starting = self.growth.as_ref().is_some_and(Growth::is_starting);
        if !is_starting || self.is_in_slow_start() != Some(true) {
            self.learnt.end_measuring();
            return;
        }
        if let Some(largest) = largest {
            self.learnt.on_acknowledged(now, largest);
        }
        let (path, more) = self.learnt.path();
        self.path = path;
        let is_far = |capacity| self.controller.window() < capacity / 2;
        self.learnt.set_in_trains(match more {
            More::Needed => true,
            More::Welcome => self.capacity().is_some_and(is_far),
            More::Never => false,
        });
    }

    /// Returns the window that fills the path and not its queue, if the path has been measured.
    fn capacity(&self) -> Option<u64> {
        self.path.map(|path| capacity(path, self.least))
    }

    /// Returns whether the connection is in slow start, unless its controller has no threshold for it.
    fn is_in_slow_start(&self) -> Option<bool> {
        let threshold = self.controller.metrics().ssthresh;
        threshold.map(|threshold| self.controller.window() < threshold)
    }
}

impl Controller for Reporter {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.controller.on_sent(now, bytes, last_packet_number);
        let made = Made {
            packet_number: last_packet_number,
            bytes,
        };
        set_sending(self.learnt.clone(), made);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        // The first samples of quinn's estimator follow after the first acknowledgment.
        let sample = now.saturating_duration_since(sent);
        self.round_trip = Some(match self.round_trip {
            Some(_) => rtt.get(),
            None => rtt.get().min(sample),
        });
        self.least = rtt.min().min(sample);
        let window = Window {
            bytes: self.controller.window(),
            initial: self.controller.initial_window(),
            datagram: self.datagram,
            round_trip: rtt.get(),
        };
        let (mut bytes, mut app_limited) = (bytes, app_limited);
        let in_slow_start = self.is_in_slow_start();
        let capacity = match in_slow_start {
            Some(true) => self.capacity(),
            Some(false) | None => None,
        };
        match (&mut self.growth, in_slow_start) {
            (Some(growth), Some(true)) => {
                bytes = growth.in_slow_start(now, bytes, window, capacity);
            }
            (Some(growth), Some(false)) => app_limited |= growth.is_held(now, window),
            (None, _) | (_, None) => {}
        }
        self.controller.on_ack(now, sent, bytes, app_limited, rtt);
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
        self.measure(now, largest_packet_num_acked);
        self.report();
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        let (before, capacity) = (self.controller.window(), self.capacity());
        self.controller
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
        if let Some(growth) = &mut self.growth
            && self.controller.window() < before
        {
            growth.on_loss(now, before, self.datagram, capacity);
        }
        self.measure(now, None);
        self.report();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.controller.on_mtu_update(new_mtu);
        self.datagram = u64::from(new_mtu);
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
            growth: self.growth.clone(),
            learnt: self.learnt.clone(),
            ..*self
        })
    }

    fn initial_window(&self) -> u64 {
        self.controller.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self.controller.into_any()
    }
}

/// The rate as a share of the window for each round trip.
///
/// A window that does not fill the path is sent in a part of the round trip, and its acknowledgments return in the same
/// part of the next one. So the pattern lasts: at 5/4, the bottleneck is full from 4/5 of the path's capacity on, and
/// the excess of a window has to wait in its queue. A window that fills the path changes slowly, and a rate hardly
/// above it is enough to use it.
const BELOW: (u8, u8) = (5, 4);
const FULL: (u8, u8) = (26, 25);

#[cfg(test)]
mod tests {
    use quinn::congestion::{BbrConfig, CubicConfig};
    use softclock_tokio::Rate;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn reporter(observed: Arc<Observed>) -> Reporter {
        let Observed {
            factory,
            holds_back,
        } = &*observed;
        let controller = factory.clone().build(Instant::now(), 1200);
        let mut reporter = Reporter::new(controller, *holds_back, 1200);
        reporter.round_trip = Some(100 * MS);
        reporter.least = 100 * MS;
        reporter
    }

    /// Lets trains of four leave until they tell a rate: two packets in the time between two acknowledgments.
    fn measure(reporter: &mut Reporter, between: Duration) {
        let now = Instant::now();
        reporter.learnt.on_queued(1, 1200, Some(0));
        reporter.learnt.on_left(1, true);
        for last in (4..).step_by(4).take(8) {
            reporter.learnt.on_queued(4, 1200, Some(last));
            reporter.learnt.on_left(4, true);
            let at = now + MS * u32::try_from(last).unwrap();
            reporter.on_end_acks(at, 0, false, Some(last - 2));
            reporter.on_end_acks(at + between, 0, false, Some(last));
        }
    }

    #[test]
    fn the_rate_is_5_4_of_the_window_and_at_most_that_of_the_path() {
        let mut reporter = reporter(observed(CubicConfig::default()));
        reporter.report();
        // 12 000 bytes of payload.
        assert_eq!(reporter.learnt.rate(), Rate::from_bps(1_228_000));
        // 480 kB a second hold 48 kB in 100 ms, and 120 kB hold 12 kB, which the window fills.
        measure(&mut reporter, 5 * MS - Duration::from_micros(30));
        assert_eq!(reporter.capacity(), Some(46_500));
        assert_eq!(reporter.learnt.rate(), Rate::from_bps(1_228_000));
        reporter.path = Some(130_000);
        reporter.report();
        assert_eq!(reporter.learnt.rate(), Rate::from_bps(1_064_266));
        reporter.path = Some(120_000);
        reporter.report();
        assert_eq!(reporter.learnt.rate(), Rate::from_bps(1_021_696), "26/25");
    }

    #[test]
    fn trains_end_at_half_of_the_capacity_and_with_slow_start() {
        let mut far = reporter(observed(CubicConfig::default()));
        assert_eq!(far.learnt.joined(), 4);
        measure(&mut far, 5 * MS);
        assert_eq!(far.learnt.joined(), 4, "12 of 46 kB");
        let mut near = reporter(observed(CubicConfig::default()));
        measure(&mut near, 12 * MS);
        assert_eq!(near.learnt.joined(), 1, "12 of 20 kB");
        far.on_congestion_event(Instant::now(), Instant::now(), false, 1200);
        assert_eq!(far.learnt.joined(), 1);
        assert!(!far.learnt.is_measured() && far.capacity().is_some());
    }

    #[test]
    fn only_observed_controllers_with_a_threshold_are_measured() {
        let unchanged = reporter(observed_unchanged(CubicConfig::default()));
        assert_eq!(unchanged.learnt.joined(), 1);
        let mut bbr = reporter(observed(BbrConfig::default()));
        measure(&mut bbr, 5 * MS);
        assert_eq!((bbr.learnt.joined(), bbr.capacity()), (1, None));
    }
}
