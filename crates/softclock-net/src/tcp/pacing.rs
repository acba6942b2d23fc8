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
    /// Whether segments are paced by the window and the round-trip time. A stated rate holds in any case. Default:
    /// true.
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
    /// The rate by window and round-trip time, in bytes per second. 0: not known, or not wanted.
    of_window: u64,
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
    /// Whether the sender had nothing to send since the last segment.
    has_no_data: bool,
}

const _: () = assert!(size_of::<Pacer>() <= 128);

impl Pacer {
    /// Creates a pacer without a rate.
    pub fn new(settings: &PacingSettings) -> Self {
        let mut clock = RateClock::new(Duration::from_nanos(1), Duration::ZERO);
        clock.set_most_behind(settings.most_behind);
        let percent = |percent: u16| if settings.is_enabled { percent } else { 0 };
        Self {
            clock,
            stated: 0,
            of_window: 0,
            carry: 0,
            srtt_us: 0,
            slack_ns: u32::try_from(saturating_ns(settings.slack)).unwrap_or(u32::MAX),
            slow_start_percent: percent(settings.slow_start_percent),
            avoidance_percent: percent(settings.avoidance_percent),
            initial_burst: settings.initial_burst,
            burst: settings.burst.max(1),
            unpaced: settings.initial_burst,
            together: 0,
            has_no_data: false,
        }
    }

    /// States a rate that limits the one of the window, or removes it. A rate of 0 counts as 1. The wait for the next
    /// segment is rescaled.
    pub fn set_rate(&mut self, bytes_per_second: Option<u64>) {
        let before = self.rate();
        self.stated = bytes_per_second.map_or(0, |rate| rate.clamp(1, MOST_RATE));
        self.carry = 0;
        if let (Some(before), Some(after)) = (before, self.rate())
            && before != after
        {
            let ns = saturating_ns(self.clock.target());
            let (target, minimum) = intervals(scaled(ns, before, after));
            self.clock.set_rates(target, minimum);
        }
    }

    /// Returns the rate at which segments are sent, in bytes per second. `None` if they are not paced.
    pub fn rate(&self) -> Option<u64> {
        match (self.stated, self.of_window) {
            (0, 0) => None,
            (0, rate) | (rate, 0) => Some(rate),
            (stated, of_window) => Some(stated.min(of_window)),
        }
    }

    /// Computes the rate from the window and the smoothed round-trip time. Call it when either has changed. The next
    /// segment's wait, which has begun, stays.
    pub fn update(&mut self, window: u32, srtt: Option<Duration>, is_in_slow_start: bool) {
        let percent = match is_in_slow_start {
            true => self.slow_start_percent,
            false => self.avoidance_percent,
        };
        let Some(srtt) = srtt.filter(|_| percent > 0) else {
            self.of_window = 0;
            return;
        };
        self.srtt_us = u32::try_from(srtt.as_micros()).unwrap_or(u32::MAX);
        let sent = u64::from(window) * u64::from(percent);
        let rate = scaled(sent, NS_PER_SECOND / 100, saturating_ns(srtt).max(1));
        let rate = rate.clamp(1, MOST_RATE);
        if rate != self.of_window {
            (self.of_window, self.carry) = (rate, 0);
        }
    }

    /// Returns when the next segment may be sent: `now` or earlier if it may be sent at once.
    pub fn next_send(&self, now: Instant) -> Instant {
        if self.rate().is_none()
            || !self.is_at_stated_rate() && (self.unpaced > 0 || self.together > 0)
        {
            return now;
        }
        let due = self.clock.next_send(now);
        // A timer would be later than the segment is due. While catching up only the rate clock decides, since the
        // slack would otherwise lift its limit of the burst rate.
        let is_behind = !self.has_no_data && !self.clock.behind(now).is_zero();
        match !is_behind && due.ns_since(now) <= self.slack_ns.into() {
            true => now,
            false => due,
        }
    }

    /// Records that a segment of `bytes` was sent, after [`next_send`](Self::next_send) had allowed it. A write that
    /// the device cuts into segments counts as one.
    pub fn on_sent(&mut self, now: Instant, bytes: u32) {
        self.resume(now);
        let Some(rate) = self.rate() else {
            // Without pacing there is no schedule to be behind.
            self.unpaced = self.unpaced.saturating_sub(1);
            self.has_no_data = true;
            return;
        };
        // Each unpaced segment begins another train, so that the last one begins the schedule. Later ones are sent in
        // pairs, or by the setting.
        (self.unpaced, self.together) =
            match (self.is_at_stated_rate(), self.unpaced, self.together) {
                (true, ..) => (0, 0),
                (false, 0, 0) => (0, self.burst - 1),
                (false, 0, left) => (0, left - 1),
                (false, unpaced, _) => {
                    self.clock.end();
                    (unpaced - 1, 0)
                }
            };
        // Each interval is rounded down to nanoseconds, and the rest is added to the next one.
        let bytes = bytes.max(1);
        let rest = u64::from(bytes) * NS_PER_SECOND + self.carry;
        self.carry = rest % rate;
        let (target, minimum) = intervals(rest / rate);
        self.clock.set_intervals(target, minimum);
        self.clock
            .on_transmit_bytes(now, bytes.into(), bytes.into());
    }

    /// Records that the sender has nothing that it may send: no data, or no room in a window. The time from here to the
    /// next segment is not made up for.
    pub fn on_no_data(&mut self) {
        self.has_no_data = true;
        self.together = 0;
    }

    /// Begins another train if the sender had nothing to send, and the last segment's time has passed. If it has not,
    /// the schedule goes on, so that pauses of the sender do not raise the rate.
    fn resume(&mut self, now: Instant) {
        if !self.has_no_data {
            return;
        }
        self.has_no_data = false;
        let scheduled = self.clock.next_send(Instant::ORIGIN);
        if self.clock.is_in_train() && now > scheduled {
            self.clock.end();
            // After a round trip, no segment of this connection waits in a queue any more.
            if now.ns_since(scheduled) >= u64::from(self.srtt_us.max(1)) * 1_000 {
                self.unpaced = self.initial_burst;
            }
        }
    }

    /// Whether the stated rate is the limit, and not the window. It holds segment by segment: none are sent together.
    pub fn is_at_stated_rate(&self) -> bool {
        self.stated != 0 && (self.of_window == 0 || self.stated <= self.of_window)
    }
}

/// Returns the interval of a segment and the least one when catching up, at twice the rate.
fn intervals(ns: u64) -> (Duration, Duration) {
    (Duration::from_nanos(ns), Duration::from_nanos(ns / 2))
}

/// Returns `value * part / whole`, at most `u64::MAX`.
fn scaled(value: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(part) / u128::from(whole);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

const NS_PER_SECOND: u64 = 1_000_000_000;

/// The highest rate, a terabyte per second: with it and any number of bytes, an interval is computed in 64 bits.
const MOST_RATE: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests;
