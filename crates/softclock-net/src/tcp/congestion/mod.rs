//! Congestion control: how many bytes may be in flight.
//!
//! A [`Controller`] learns of segments sent, acknowledged and lost, and gives the congestion window (cwnd) and the slow
//! start threshold (ssthresh). It neither detects losses nor sends: both are the sender's, as is the window during fast
//! recovery (proportional rate reduction, RFC 9937).
//!
//! - [`new_reno`]: congestion avoidance by RFC 5681. [`cubic`]: by RFC 9438.
//! - [`hystart`]: the exit from slow start by rising round-trip times (RFC 9406).
//! - [`validation`]: the use of the window, and the response to pauses (RFC 7661).
//! - [`rate_sample`]: measurements of the rate of delivery.

pub mod cubic;
pub mod hystart;
pub mod new_reno;
pub mod rate_sample;
mod settings;
pub mod validation;

pub use rate_sample::{DeliveredSegments, RateSample, RateSampler, Snapshot};
pub use settings::{Algorithm, CongestionSettings, IdlePolicy};

use core::time::Duration;

use softclock_core::Instant;

use super::seq::Seq;
use cubic::{Cubic, Curve};
use hystart::HyStart;
use new_reno::NewReno;
use validation::Validation;

/// An acknowledgment, as far as it concerns congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CongestionAck {
    /// The time at which it is processed.
    pub now: Instant,
    /// The time at which it arrived.
    pub arrived: Instant,
    /// The bytes that it newly reports as delivered, by number or by SACK.
    pub acked: u32,
    /// The bytes in flight before it: sent and not acknowledged (FlightSize of RFC 5681).
    pub in_flight: u32,
    /// The round-trip time of a segment that it acknowledges, if one is known (not of a retransmission, by Karn).
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time (RFC 6298), with this acknowledgment.
    pub srtt: Option<Duration>,
    /// The least round-trip time of late.
    pub min_rtt: Option<Duration>,
    /// The retransmission timeout, without backoff (RFC 6298).
    pub rto: Duration,
    /// Whether the application or the peer's window, and not the congestion window, limited what is in flight.
    pub is_app_limited: bool,
    /// The first byte that is not acknowledged, after this acknowledgment (SND.UNA).
    pub una: Seq,
    /// The next byte to send (SND.NXT).
    pub next: Seq,
    /// Whether the sender is in fast recovery, where the window does not grow. False in the slow start after a timeout.
    pub is_in_recovery: bool,
}

/// The congestion control of a connection.
///
/// The sender calls it in this order: [`on_ack`](Self::on_ack) for each acknowledgment, then
/// [`on_ecn`](Self::on_ecn) if that carries ECE, then [`on_loss`](Self::on_loss) if it shows a loss. While it is in fast
/// recovery it sends by its own window, towards [`slow_start_threshold`](Self::slow_start_threshold). At the end it
/// calls [`set_window_after_recovery`](Self::set_window_after_recovery) and [`on_recovered`](Self::on_recovered).
/// Windows are in bytes. No call loops, allocates or fails.
///
/// # Example
/// ```
/// use softclock_core::Instant;
/// use softclock_net::tcp::congestion::{Algorithm, CongestionSettings, Controller};
/// use softclock_net::tcp::seq::Seq;
///
/// let mut control = Controller::new(Algorithm::Cubic, &CongestionSettings::default(), 1_460);
/// assert_eq!(control.window(), 14_600);
/// assert!(control.is_in_slow_start());
///
/// // A loss reduces the window to 70 %.
/// let now = Instant::from_ns(50_000_000);
/// control.on_loss(now, 14_600, Seq(14_600));
/// assert_eq!((control.window(), control.slow_start_threshold()), (10_220, 10_220));
/// // The segment arrives after all: the reduction is taken back.
/// control.undo();
/// assert_eq!((control.window(), control.slow_start_threshold()), (14_600, u32::MAX));
/// ```
#[derive(Clone, Debug)]
pub struct Controller {
    window: u32,
    threshold: u32,
    /// Until this position is acknowledged, no further reduction takes place. Valid in `Phase::Reduced`.
    reduced_until: Seq,
    /// Bytes sent again in the present recovery.
    retransmitted: u32,
    /// When the last segment was sent, in milliseconds modulo 2^32.
    sent_ms: u32,
    validation: Validation,
    avoidance: Avoidance,
    history: History,
    mss: u16,
    /// The retransmission timeout in units of `RTO_UNIT_MS`.
    rto: u16,
    initial_segments: u8,
    byte_counting_limit: u8,
    hystart_limit: u8,
    has_hystart: bool,
    converges: bool,
    idle: IdlePolicy,
    phase: Phase,
    /// Whether the window was not in use when the present recovery began (RFC 7661, 4.4.1).
    is_from_unused: bool,
}

const _: () = assert!(size_of::<Controller>() <= 128);

/// The algorithm of congestion avoidance and its state.
#[derive(Clone, Copy, Debug)]
enum Avoidance {
    NewReno(NewReno),
    Cubic(Cubic),
}

/// What precedes the present window.
#[derive(Clone, Copy, Debug)]
enum History {
    /// No loss: the initial slow start, with HyStart++.
    Initial(HyStart),
    /// A reduction that can be taken back.
    Reduction(Undo),
    /// Nothing of use.
    None,
}

/// The values before a reduction.
#[derive(Clone, Copy, Debug)]
struct Undo {
    window: u32,
    threshold: u32,
    curve: Curve,
}

/// Whether the window was reduced of late, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// By a loss or a mark.
    Reduced,
    /// By a timeout, after which nothing was acknowledged yet.
    TimedOut,
}

impl Controller {
    /// Creates the state of a connection that may send the initial window (RFC 6928). The algorithm is an argument
    /// since a connection may choose it; `settings.algorithm` is a listener's default.
    pub fn new(algorithm: Algorithm, settings: &CongestionSettings, mss: u16) -> Self {
        let mut controller = Self {
            window: 0,
            threshold: u32::MAX,
            reduced_until: Seq(0),
            retransmitted: 0,
            sent_ms: 0,
            validation: Validation::new(settings.non_validated),
            avoidance: match algorithm {
                Algorithm::NewReno => Avoidance::NewReno(NewReno::default()),
                Algorithm::Cubic => Avoidance::Cubic(Cubic::default()),
            },
            history: History::None,
            mss: mss.max(1),
            rto: u16::MAX,
            initial_segments: settings.initial_segments.max(1),
            byte_counting_limit: settings.byte_counting_limit,
            hystart_limit: settings.hystart_limit,
            has_hystart: settings.hystart,
            converges: settings.fast_convergence,
            idle: settings.idle,
            phase: Phase::Open,
            is_from_unused: false,
        };
        controller.window = controller.initial_window();
        controller.begin_initial_slow_start();
        controller
    }

    /// Returns the congestion window.
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// Returns the slow start threshold: `u32::MAX` until the first loss or exit from slow start.
    pub const fn slow_start_threshold(&self) -> u32 {
        self.threshold
    }

    /// Returns whether the window is below the threshold.
    pub const fn is_in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Returns the algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        match self.avoidance {
            Avoidance::NewReno(_) => Algorithm::NewReno,
            Avoidance::Cubic(_) => Algorithm::Cubic,
        }
    }

    /// Reduces the window to one segment, since SYN or its answer was lost (RFC 5681, 3.1). Call it before data is sent.
    pub fn on_handshake_loss(&mut self) {
        self.window = self.mss.into();
    }

    /// Records that `bytes` are sent. `in_flight` are those before it. With none in flight, the window is adjusted to
    /// the pause that ends here, so ask for [`window`](Self::window) again.
    pub fn on_sent(&mut self, now: Instant, bytes: u32, in_flight: u32) {
        let _ = (now, bytes, in_flight);
    }

    /// Records that some of the bytes sent were sent before. Call it beside [`on_sent`](Self::on_sent) in recovery.
    pub fn on_retransmitted(&mut self, bytes: u32) {
        self.retransmitted = self.retransmitted.saturating_add(bytes);
    }

    /// Grows the window by an acknowledgment, unless the sender is in recovery or does not use the window.
    pub fn on_ack(&mut self, ack: &CongestionAck) {
        let _ = ack;
    }

    /// Reduces the window for a loss: once for all losses of one window. `in_flight` are the bytes sent and not
    /// acknowledged (FlightSize of RFC 5681, the lost ones included), `next` is SND.NXT.
    pub fn on_loss(&mut self, now: Instant, in_flight: u32, next: Seq) {
        let _ = (now, in_flight, next);
    }

    /// Reduces the window for a mark of congestion (ECE, RFC 3168, 6.1.2): once a round trip, and not if a loss has
    /// reduced it in this round trip. Returns whether it is reduced now, so that the sender sets CWR.
    pub fn on_ecn(&mut self, now: Instant, in_flight: u32, next: Seq) -> bool {
        let _ = (now, in_flight, next);
        false
    }

    /// Ends a fast recovery, or the recovery from a timeout.
    pub fn on_recovered(&mut self, now: Instant) {
        let _ = now;
    }

    /// Reduces the window to one segment for a retransmission timeout. Timeouts in a row reduce the threshold once.
    pub fn on_timeout(&mut self, now: Instant, in_flight: u32) {
        let _ = (now, in_flight);
    }

    /// Takes back the last reduction, since it was spurious (RFC 4015, RFC 5682, RFC 9438 4.9). A window that has grown
    /// beyond the former one meanwhile is kept. Has no effect after a mark of congestion, or if nothing was reduced.
    pub fn undo(&mut self) {}

    /// Sets the window at the end of a fast recovery, to at most the threshold.
    pub fn set_window_after_recovery(&mut self, window: u32) {
        let _ = window;
    }

    /// Changes the size of segments. The window keeps its bytes, except for an initial one (RFC 6928).
    pub fn set_mss(&mut self, mss: u16) {
        let _ = mss;
    }

    /// Returns the initial window (RFC 6928, 2).
    fn initial_window(&self) -> u32 {
        let mss = u32::from(self.mss);
        let segments = u32::from(self.initial_segments) * mss;
        match u32::from(self.initial_segments) == DEFAULT_SEGMENTS {
            true => segments.min((2 * mss).max(DEFAULT_BYTES)),
            false => segments,
        }
    }

    fn begin_initial_slow_start(&mut self) {
        self.history = match self.has_hystart {
            true => History::Initial(HyStart::default()),
            false => History::None,
        };
    }
}

/// The initial window in segments and in bytes (RFC 6928, 2).
const DEFAULT_SEGMENTS: u32 = 10;
const DEFAULT_BYTES: u32 = 14_600;
