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
use crate::learnt::{Learnt, set_sending};

/// Makes the controllers of `factory` report their rates to [`paced_by_window`](crate::paced_by_window) sockets, and
/// holds their windows back where growth only makes losses. Pass the result to
/// [`quinn::TransportConfig::congestion_controller_factory`].
///
/// In slow start, the rate of a connection is 5/4 of its congestion window for each smoothed round trip, the rate at
/// which quinn's own pacing hands datagrams over (RFC 9002, section 7.7), and no more than the measured rate of the
/// path. Later it is 26/25 of the window. A connection without a sample of its round trip has no rate, and is not
/// paced.
///
/// **Slow start ends at the capacity of the path**, and not with the loss of half a window. Datagrams leave in trains
/// of four, as far as the [burst](softclock_tokio::Limits::burst) allows, until their acknowledgments have told the
/// rate of the path. A window that has reached that rate in a round trip grows by one datagram in each, for 32 of them;
/// then by a sixteenth. Without a measurement, it grows by half in each round trip from twice the initial window on. A
/// path is not measured if the burst is below four, and faster ones than 400 Mbit/s are not, where wake-ups take as
/// long as trains.
///
/// **After the loss of a window that filled the measured path, the window stays below it for as long as CUBIC's
/// function does** (RFC 9438, section 4.2), without the faster growth of its Reno-friendly region (section 4.3), which
/// makes a loss several times a second where a path holds few datagrams. A loss at a smaller window has another cause,
/// such as other connections, and changes nothing.
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

/// Like [`observed`], with the windows of `factory` as they are: for paths whose queues have room for a window, where
/// nothing is gained, or for the full share beside others.
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
        Box::new(Reporter {
            controller: self.factory.clone().build(now, current_mtu),
            growth: self.holds_back.then(Growth::new),
            learnt: Arc::new(Learnt::new(self.holds_back)),
            datagram: u64::from(current_mtu),
            round_trip: None,
            path: None,
            least: Duration::ZERO,
        })
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
        let (path, is_settled) = self.learnt.path();
        self.path = path;
        let is_far = |capacity| self.controller.window() < capacity / 2;
        let in_trains = !is_settled || self.capacity().is_none_or(is_far);
        self.learnt.set_in_trains(in_trains);
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
        set_sending(self.learnt.clone(), last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.round_trip = Some(rtt.get());
        self.least = rtt.min();
        let window = Window {
            bytes: self.controller.window(),
            initial: self.controller.initial_window(),
            datagram: self.datagram,
            round_trip: rtt.get(),
        };
        let (mut bytes, mut app_limited) = (bytes, app_limited);
        let (in_slow_start, capacity) = (self.is_in_slow_start(), self.capacity());
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
