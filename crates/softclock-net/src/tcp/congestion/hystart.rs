//! HyStart++: the exit from the initial slow start when round-trip times rise (RFC 9406).

use core::time::Duration;

/// The state of an initial slow start: its round-trip times, by rounds of one window each.
///
/// A round in which the least round-trip time has risen by an eighth (within 4 and 16 ms) is a sign that a queue has
/// built up. Growth then continues at a quarter of the speed (conservative slow start, CSS). If the times fall again,
/// the sign was wrong, and slow start resumes; after five rounds the slow start ends.
///
/// ```
/// use core::time::Duration;
/// use softclock_net::tcp::congestion::hystart::{Growth, HyStart};
///
/// let mut hystart = HyStart::default();
/// for _ in 0..8 {
///     assert_eq!(hystart.on_ack(Some(Duration::from_millis(40)), false), Growth::Full);
/// }
/// hystart.on_ack(None, true);
/// for _ in 0..7 {
///     assert_eq!(hystart.on_ack(Some(Duration::from_millis(50)), false), Growth::Full);
/// }
/// assert_eq!(hystart.on_ack(Some(Duration::from_millis(50)), false), Growth::Quarter);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HyStart {
    /// The least round-trip time of the last round in microseconds (lastRoundMinRTT). `UNKNOWN` before the first.
    last_round_us: u32,
    /// That of the present round (currentRoundMinRTT).
    this_round_us: u32,
    /// That of the round that began CSS (cssBaselineMinRtt). `UNKNOWN` outside CSS.
    baseline_us: u32,
    /// The number of round-trip times in this round, at most `ENOUGH_SAMPLES`.
    samples: u8,
    /// The rounds of CSS, the one in which it began included.
    rounds: u8,
}

/// How the window grows in slow start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// By the acknowledged bytes.
    Full,
    /// By a quarter of them, in conservative slow start.
    Quarter,
    /// Slow start is over: the present window becomes the threshold.
    Ended,
}

impl HyStart {
    /// Processes an acknowledgment and its round-trip time, if it has one. `ends_round` says whether it acknowledges
    /// the last byte that was sent when the round began.
    pub fn on_ack(&mut self, rtt: Option<Duration>, ends_round: bool) -> Growth {
        if let Some(rtt) = rtt {
            let us = u32::try_from(rtt.as_micros()).unwrap_or(UNKNOWN - 1);
            self.this_round_us = self.this_round_us.min(us);
            self.samples = (self.samples + 1).min(ENOUGH_SAMPLES);
        }
        if self.samples == ENOUGH_SAMPLES {
            self.judge();
        }
        if ends_round && self.end_round() {
            return Growth::Ended;
        }
        match self.is_conservative() {
            true => Growth::Quarter,
            false => Growth::Full,
        }
    }

    /// Returns whether growth is slowed down since round-trip times rose.
    pub const fn is_conservative(&self) -> bool {
        self.baseline_us != UNKNOWN
    }

    /// Enters or leaves CSS by the least round-trip time of this round (RFC 9406, 4.2).
    fn judge(&mut self) {
        if self.is_conservative() {
            // The times are below those that began CSS: they had not risen for good.
            if self.this_round_us < self.baseline_us {
                (self.baseline_us, self.rounds) = (UNKNOWN, 0);
            }
        } else if self.last_round_us != UNKNOWN {
            let rise = (self.last_round_us / RISE_DIVISOR).clamp(LEAST_RISE_US, MOST_RISE_US);
            if self.this_round_us >= self.last_round_us.saturating_add(rise) {
                (self.baseline_us, self.rounds) = (self.this_round_us, 0);
            }
        }
    }

    /// Begins another round. Returns whether CSS has lasted for its number of rounds.
    fn end_round(&mut self) -> bool {
        self.last_round_us = self.this_round_us;
        (self.this_round_us, self.samples) = (UNKNOWN, 0);
        if self.is_conservative() {
            self.rounds += 1;
        }
        self.rounds >= CONSERVATIVE_ROUNDS
    }
}

impl Default for HyStart {
    /// The state at the beginning of a connection.
    fn default() -> Self {
        Self {
            last_round_us: UNKNOWN,
            this_round_us: UNKNOWN,
            baseline_us: UNKNOWN,
            samples: 0,
            rounds: 0,
        }
    }
}

/// The infinite round-trip time of RFC 9406.
const UNKNOWN: u32 = u32::MAX;

/// N_RTT_SAMPLE.
const ENOUGH_SAMPLES: u8 = 8;
/// MIN_RTT_DIVISOR.
const RISE_DIVISOR: u32 = 8;
/// MIN_RTT_THRESH.
const LEAST_RISE_US: u32 = 4_000;
/// MAX_RTT_THRESH.
const MOST_RISE_US: u32 = 16_000;
/// CSS_ROUNDS.
const CONSERVATIVE_ROUNDS: u8 = 5;
/// CSS_GROWTH_DIVISOR.
pub const CONSERVATIVE_DIVISOR: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes a round of ten acknowledgments with the same round-trip time. Returns the growth after the last one.
    fn round(hystart: &mut HyStart, ms: u64) -> Growth {
        for _ in 0..9 {
            hystart.on_ack(Some(Duration::from_millis(ms)), false);
        }
        hystart.on_ack(Some(Duration::from_millis(ms)), true)
    }

    #[test]
    fn steady_round_trip_times_never_end_slow_start() {
        let mut hystart = HyStart::default();
        for _ in 0..50 {
            assert_eq!(round(&mut hystart, 40), Growth::Full);
        }
    }

    #[test]
    fn five_rounds_of_risen_times_end_slow_start() {
        let mut hystart = HyStart::default();
        assert_eq!(round(&mut hystart, 40), Growth::Full);
        // The round in which the rise is seen counts.
        for _ in 0..4 {
            assert_eq!(round(&mut hystart, 45), Growth::Quarter);
        }
        assert_eq!(round(&mut hystart, 45), Growth::Ended);
    }

    #[test]
    fn times_that_fall_again_resume_slow_start() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 40);
        assert_eq!(round(&mut hystart, 50), Growth::Quarter);
        assert_eq!(round(&mut hystart, 42), Growth::Full);
        // 42 ms are the base now, and a rise is recognized again.
        assert_eq!(round(&mut hystart, 50), Growth::Quarter);
        assert_eq!(hystart.rounds, 1);
    }

    #[test]
    fn a_rise_is_at_least_4_and_at_most_16_milliseconds() {
        for (before, after, growth) in [
            (1, 4, Growth::Full),
            (1, 5, Growth::Quarter),
            (80, 89, Growth::Full),
            (80, 90, Growth::Quarter),
            (400, 415, Growth::Full),
            (400, 416, Growth::Quarter),
        ] {
            let mut hystart = HyStart::default();
            round(&mut hystart, before);
            assert_eq!(round(&mut hystart, after), growth, "{before} to {after} ms");
        }
    }

    #[test]
    fn fewer_than_eight_samples_are_no_sign() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 40);
        for _ in 0..7 {
            let growth = hystart.on_ack(Some(Duration::from_secs(10)), false);
            assert_eq!(growth, Growth::Full);
        }
        assert_eq!(hystart.on_ack(None, true), Growth::Full);
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        let mut hystart = HyStart::default();
        for ms in [0, u64::MAX, 0, u64::MAX] {
            round(&mut hystart, ms);
        }
        assert!(hystart.rounds <= CONSERVATIVE_ROUNDS);
    }
}
