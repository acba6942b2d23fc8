//! The state of a connection's congestion control, and its responses to events.

use core::time::Duration;

use softclock_core::Instant;

use super::cubic::{Cubic, Curve};
use super::hystart::{CONSERVATIVE_DIVISOR, Growth, HyStart};
use super::new_reno::NewReno;
use super::validation::Validation;
use super::{Algorithm, CongestionAck, CongestionSettings, IdlePolicy};
use crate::tcp::seq::Seq;

/// The congestion control of a connection.
///
/// The sender calls it in this order: [`on_ack`](Self::on_ack) for each acknowledgment, then
/// [`on_ecn`](Self::on_ecn) if that carries ECE, or [`on_ecn_in_recovery`](Self::on_ecn_in_recovery), then
/// [`on_loss`](Self::on_loss) if it shows a loss. While it is in fast recovery it sends by its own window, towards
/// [`slow_start_threshold`](Self::slow_start_threshold). At the end it calls
/// [`set_window_after_recovery`](Self::set_window_after_recovery) and [`on_recovered`](Self::on_recovered). Windows are
/// in bytes. No call loops, allocates or fails.
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
/// assert!(control.undo());
/// assert_eq!((control.window(), control.slow_start_threshold()), (14_600, u32::MAX));
/// ```
#[derive(Clone, Debug)]
pub struct Controller {
    window: u32,
    threshold: u32,
    /// SND.NXT at the last reduction, or timeout. In `Phase::Reduced`, no further one takes place until it is acknowledged.
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
    /// Whether the last reduction was a timeout.
    is_after_timeout: bool,
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
            is_after_timeout: false,
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

    /// Reduces the window to one segment, since SYN or its answer was lost (RFC 5681, 3.1). Call it before data
    /// is sent.
    pub fn on_handshake_loss(&mut self) {
        self.window = self.mss.into();
    }

    /// Records that `bytes` are sent. `in_flight` are those before it. With none in flight, the window is adjusted to
    /// the pause that ends here, so ask for [`window`](Self::window) again.
    pub fn on_sent(&mut self, now: Instant, bytes: u32, in_flight: u32) {
        if in_flight == 0 && bytes > 0 {
            self.after_pause(now);
        }
        self.sent_ms = milliseconds(now);
    }

    /// Records that some of the bytes sent were sent before. Call it beside [`on_sent`](Self::on_sent) in recovery.
    pub fn on_retransmitted(&mut self, bytes: u32) {
        self.retransmitted = self.retransmitted.saturating_add(bytes);
    }

    /// Grows the window by an acknowledgment, unless the sender is in recovery or does not use the window. Call it for
    /// acknowledgments in recovery, too: they show which bytes are in use.
    pub fn on_ack(&mut self, ack: &CongestionAck) {
        self.rto = rto_units(ack.rto);
        let ends_round =
            self.validation
                .on_ack(ack.arrived, ack.acked, ack.una, ack.next, ack.srtt);
        self.leave_reduction(ack);
        // RFC 7661, 4.4: a window that is not in use does not grow, and expires after a while.
        let is_validated = self.validation.is_validated(self.window, ack.in_flight);
        if is_validated {
            self.validation.on_validated(ack.arrived);
        }
        let may_grow = is_validated && !ack.is_app_limited && !ack.is_in_recovery;
        if let Avoidance::Cubic(cubic) = &mut self.avoidance {
            cubic.advance(ack.arrived, may_grow);
        }
        // The times of all rounds count for HyStart++, also of those in which the window does not grow.
        let growth = self.observe(ack.rtt, ends_round);
        if !may_grow {
            return;
        }
        let left = match self.is_in_slow_start() {
            true => self.grow_in_slow_start(ack.acked, growth),
            false => ack.acked,
        };
        if left > 0 && !self.is_in_slow_start() {
            self.grow_in_avoidance(left, ack.srtt.unwrap_or_default());
        }
    }

    /// Ends the time in which no further reduction takes place.
    fn leave_reduction(&mut self, ack: &CongestionAck) {
        let is_over = match self.phase {
            Phase::Open => false,
            // RFC 3168, 6.1.2: one reduction for each window of bytes.
            Phase::Reduced => self.reduced_until.is_at_or_before(ack.una),
            // RFC 5681, 3.1: the threshold is held only while the same segment is sent again and again.
            Phase::TimedOut => ack.acked > 0,
        };
        if is_over {
            self.phase = Phase::Open;
        }
    }

    /// Shows an acknowledgment to HyStart++, in the initial slow start. Returns how the window grows.
    fn observe(&mut self, rtt: Option<Duration>, ends_round: bool) -> Growth {
        let History::Initial(hystart) = &mut self.history else {
            return Growth::Full;
        };
        let growth = hystart.on_ack(rtt, ends_round);
        if growth == Growth::Ended {
            self.threshold = self.window;
            self.history = History::None;
        }
        growth
    }

    /// Grows the window by acknowledged bytes (RFC 5681, 3.1; RFC 3465; RFC 9406, 4.2). Returns the bytes that are left
    /// when the window reaches the threshold: they count for congestion avoidance.
    fn grow_in_slow_start(&mut self, acked: u32, growth: Growth) -> u32 {
        let limit = match (&self.history, self.is_after_timeout) {
            (History::Initial(_), _) => self.hystart_limit,
            // RFC 3465, 2.3: after a timeout, an acknowledgment may cover segments that arrived long before.
            (_, true) => self.byte_counting_limit.min(1),
            (_, false) => self.byte_counting_limit,
        };
        let counted = match limit {
            0 => acked,
            segments => acked.min(u32::from(segments) * u32::from(self.mss)),
        };
        let more = match growth {
            Growth::Full => counted,
            Growth::Quarter => counted / CONSERVATIVE_DIVISOR,
            Growth::Ended => 0,
        };
        let room = self.threshold.saturating_sub(self.window);
        self.set_window(self.window.saturating_add(more.min(room)));
        more.saturating_sub(room)
    }

    fn grow_in_avoidance(&mut self, acked: u32, srtt: Duration) {
        let window = match &mut self.avoidance {
            Avoidance::NewReno(reno) => reno.on_ack(self.window, acked, self.mss),
            Avoidance::Cubic(cubic) => cubic.on_ack(self.window, acked, srtt, self.mss),
        };
        self.set_window(window);
    }

    /// Adjusts the window to a pause of the sender, in which all bytes were acknowledged.
    fn after_pause(&mut self, now: Instant) {
        if let Avoidance::Cubic(cubic) = &mut self.avoidance {
            cubic.advance(now, false);
        }
        match self.idle {
            // RFC 7661, 4.4.3: the window is halved for each period in which it was not in use.
            IdlePolicy::Validate => {
                for _ in 0..self.validation.expired(now).min(u32::BITS) {
                    self.shrink(self.window / 2);
                }
            }
            // RFC 5681, 4.1: nothing was sent for longer than a retransmission timeout.
            IdlePolicy::Restart => {
                let idle_ms = milliseconds(now).wrapping_sub(self.sent_ms);
                if idle_ms > u32::from(self.rto) * RTO_UNIT_MS {
                    self.shrink(0);
                }
            }
        }
    }

    /// Reduces the window for a pause, not below the initial one. The threshold keeps most of what the path could
    /// carry.
    fn shrink(&mut self, window: u32) {
        if self.window > self.initial_window() {
            if self.threshold != u32::MAX {
                self.threshold = self.threshold.max(self.window / 4 * 3);
            }
            self.window = window.max(self.initial_window());
        }
    }

    /// Reduces the window for a loss: once for all losses of one window. `in_flight` are the bytes sent and not
    /// acknowledged (FlightSize of RFC 5681, the lost ones included), `next` is SND.NXT. With ECN the sender sets CWR
    /// after this reduction as well, and after a timeout (RFC 3168, 6.1.2).
    pub fn on_loss(&mut self, _now: Instant, in_flight: u32, next: Seq) {
        if self.phase != Phase::Open {
            return;
        }
        self.save();
        self.reduce(in_flight, next);
    }

    /// Stores the values before a reduction.
    fn save(&mut self) {
        let curve = match &self.avoidance {
            Avoidance::NewReno(_) => Curve::default(),
            Avoidance::Cubic(cubic) => cubic.curve(),
        };
        self.history = History::Reduction(Undo {
            window: self.window,
            threshold: self.threshold,
            curve,
        });
    }

    /// Reduces threshold and window, and remembers that this window of bytes has been answered.
    fn reduce(&mut self, in_flight: u32, next: Seq) {
        let used = self.reduce_threshold(in_flight);
        if let Avoidance::Cubic(cubic) = &mut self.avoidance {
            cubic.on_reduction(used, self.converges);
        }
        self.set_window(self.threshold);
        (self.phase, self.reduced_until) = (Phase::Reduced, next);
        self.is_after_timeout = false;
    }

    /// Reduces the threshold. Returns the bytes from which it is computed.
    fn reduce_threshold(&mut self, in_flight: u32) -> u32 {
        let was_validated = self.validation.is_validated(self.window, in_flight);
        // The bytes in flight (RFC 5681, equation 4), or more if more were in use recently: then a pause of the
        // application happens to coincide with the loss (RFC 7661, 4.4.1). Never more than the window allowed.
        let in_use = in_flight.max(self.validation.in_use().unwrap_or(0));
        let in_use = in_use.min(self.window);
        let reduced = match &mut self.avoidance {
            // A window that was not in use is not known to fit the path, so the answer is the stronger one.
            _ if !was_validated => NewReno::reduced(in_use),
            Avoidance::NewReno(reno) => {
                reno.reset();
                NewReno::reduced(in_use)
            }
            Avoidance::Cubic(_) => Cubic::reduced(in_use),
        };
        self.threshold = reduced.max(self.least_threshold());
        self.is_from_unused = !was_validated;
        self.retransmitted = 0;
        self.validation.reset();
        in_use
    }

    /// Reduces the window for a mark of congestion (ECE, RFC 3168, 6.1.2): once a round trip, and not if a loss has
    /// reduced it in this round trip. `una` is SND.UNA. Returns whether it is reduced now, so that the sender sets CWR.
    pub fn on_ecn(&mut self, _now: Instant, in_flight: u32, una: Seq, next: Seq) -> bool {
        self.on_ecn_in_recovery();
        // The receiver sets ECE until CWR has arrived, which is on the first segment behind the reduction. Only a loss
        // of that one is another sign of congestion, so the phase is over.
        if self.phase != Phase::Open || una == self.reduced_until {
            return false;
        }
        self.history = History::None;
        self.reduce(in_flight, next);
        // Nothing is lost, so nothing is sent again.
        self.is_from_unused = false;
        true
    }

    /// Takes note of a mark of congestion during a recovery, which has reduced the window already: the reduction cannot
    /// be taken back, since congestion is certain (RFC 4015, 3).
    pub fn on_ecn_in_recovery(&mut self) {
        if matches!(self.history, History::Reduction(_)) {
            self.history = History::None;
        }
    }

    /// Ends a fast recovery, or the recovery from a timeout.
    pub fn on_recovered(&mut self, _now: Instant) {
        // RFC 7661, 4.4.2: after a loss in a window that was not in use, the bytes that had to be sent again are taken
        // off as well, as the path did not carry them.
        if self.is_from_unused {
            let carried = self.threshold.saturating_sub(self.retransmitted / 2);
            self.threshold = carried.max(self.least_threshold());
            self.window = self.window.min(self.threshold);
        }
        self.is_from_unused = false;
        self.phase = Phase::Open;
    }

    /// Reduces threshold and window for a retransmission timeout, the window to one segment. Timeouts in a row reduce the
    /// threshold once. `next` is SND.NXT.
    pub fn on_timeout(&mut self, _now: Instant, in_flight: u32, next: Seq) {
        if self.phase != Phase::TimedOut {
            // A timeout in a recovery ends it; both are taken back together.
            if self.phase == Phase::Open {
                self.save();
            }
            let used = self.reduce_threshold(in_flight);
            if let Avoidance::Cubic(cubic) = &mut self.avoidance {
                cubic.on_timeout(used, self.converges);
            }
            self.phase = Phase::TimedOut;
            self.is_from_unused = false;
        }
        self.on_timeout_in_recovery(next);
    }

    /// Reduces the window to one segment for a retransmission timeout during a recovery, which has reduced the threshold
    /// already (RFC 5681, 3.1). `next` is SND.NXT.
    pub fn on_timeout_in_recovery(&mut self, next: Seq) {
        if let Avoidance::Cubic(cubic) = &mut self.avoidance {
            cubic.on_timeout_in_recovery();
        }
        self.is_after_timeout = true;
        self.reduced_until = next;
        self.window = self.mss.into();
    }

    /// Takes back the last reduction, since it was spurious (RFC 4015, RFC 5682, RFC 9438 4.9). A window that has grown
    /// beyond the former one meanwhile is kept. Has no effect after a mark of congestion, or if nothing was reduced.
    /// Returns whether it has.
    pub fn undo(&mut self) -> bool {
        let History::Reduction(undo) = self.history else {
            return false;
        };
        self.set_window(self.window.max(undo.window));
        self.threshold = undo.threshold;
        match &mut self.avoidance {
            Avoidance::NewReno(reno) => reno.reset(),
            Avoidance::Cubic(cubic) => cubic.restore(undo.curve),
        }
        (self.phase, self.is_after_timeout, self.is_from_unused) = (Phase::Open, false, false);
        self.history = History::None;
        // The initial slow start goes on.
        if self.threshold == u32::MAX {
            self.begin_initial_slow_start();
        }
        true
    }

    /// Sets the window at the end of a fast recovery, to at most the threshold.
    pub fn set_window_after_recovery(&mut self, window: u32) {
        self.set_window(window.min(self.threshold));
    }

    /// Changes the size of segments. The window keeps its bytes, except for an initial one (RFC 6928).
    pub fn set_mss(&mut self, mss: u16) {
        let is_initial = self.threshold == u32::MAX && self.window == self.initial_window();
        self.mss = mss.max(1);
        match is_initial {
            true => self.window = self.initial_window(),
            false => self.set_window(self.window),
        }
    }

    /// Sets the window, to at least one segment and at most what the window field can express.
    fn set_window(&mut self, window: u32) {
        self.window = window.clamp(self.mss.into(), MOST_WINDOW);
    }

    /// The least threshold: two segments, which a receiver acknowledges without delay (RFC 5681, equation 4).
    fn least_threshold(&self) -> u32 {
        2 * u32::from(self.mss)
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

/// The largest window that a receiver can offer: 65 535 bytes scaled by 14 bits, rounded up (RFC 7323, 2.3).
const MOST_WINDOW: u32 = 1 << 30;

/// The unit of the stored timeout. 65 535 units are more than the greatest timeout, 120 s.
const RTO_UNIT_MS: u32 = 4;

fn rto_units(rto: Duration) -> u16 {
    u16::try_from(rto.as_millis() / u128::from(RTO_UNIT_MS)).unwrap_or(u16::MAX)
}

fn milliseconds(at: Instant) -> u32 {
    (at.as_ns() / 1_000_000) as u32
}
