//! Round-trip times and the retransmission timeout (RFC 6298).

use core::time::Duration;

use softclock_core::Instant;

use super::settings::Limits;

/// The smoothed round-trip time, its variation, and its minimum over the last minutes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    /// In units of 1/8 µs. 0 before the first sample.
    smoothed: u32,
    /// In units of 1/4 µs.
    variation: u32,
    minimum: Minimum,
}

impl RoundTrip {
    /// Takes a sample that the timeout depends on.
    pub(super) fn on_sample(&mut self, rtt: Duration) {
        let sample = to_us(rtt);
        if self.smoothed == 0 {
            self.smoothed = sample << 3;
            self.variation = sample << 1;
            return;
        }
        // RFC 6298, 2.3: the variation first, with the old mean. The shifts keep the fractions.
        let difference = sample.abs_diff(self.smoothed >> 3);
        self.variation = self.variation - (self.variation >> 2) + difference;
        self.smoothed = self.smoothed - (self.smoothed >> 3) + sample;
    }

    /// Takes a sample that only the minimum depends on.
    pub(super) fn on_least(&mut self, rtt: Duration, now: Instant) {
        self.minimum.on_sample(to_us(rtt), now);
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        (self.smoothed > 0).then(|| Duration::from_nanos(u64::from(self.smoothed) * 125))
    }

    /// The minimum over the last minutes.
    pub(super) fn least(&self) -> Option<Duration> {
        self.minimum.value()
    }

    /// The retransmission timeout before any backing off: the smoothed time, and four times the variation, but at least
    /// the minimum, so that a steady path of any length keeps the allowance for delayed acknowledgments.
    pub(super) fn timeout(&self, limits: &Limits) -> Duration {
        let Some(smoothed) = self.smoothed() else {
            return limits.initial_timeout();
        };
        let variation = Duration::from_micros(self.variation.into());
        let timeout = smoothed + variation.max(limits.minimum_timeout());
        timeout.min(limits.maximum_timeout())
    }
}

/// A minimum over a sliding window of time, in two halves.
#[derive(Clone, Copy, Debug, Default)]
struct Minimum {
    /// In µs; 0 for none.
    current: u32,
    previous: u32,
    /// When the current half began, in s.
    began: u32,
}

impl Minimum {
    fn on_sample(&mut self, us: u32, now: Instant) {
        let second = (now.as_ns() / 1_000_000_000) as u32;
        if second.wrapping_sub(self.began) >= HALF_WINDOW_SECONDS {
            self.previous = self.current;
            self.current = us;
            self.began = second;
        }
        if self.current == 0 || us < self.current {
            self.current = us;
        }
    }

    fn value(&self) -> Option<Duration> {
        let both = [self.current, self.previous];
        let least = both.into_iter().filter(|&us| us > 0).min()?;
        Some(Duration::from_micros(least.into()))
    }
}

/// Together 5 minutes, as in Linux: long enough to outlast standing queues, short enough to follow a change of route.
const HALF_WINDOW_SECONDS: u32 = 150;

/// At least 1 µs, at most 60 s.
fn to_us(rtt: Duration) -> u32 {
    rtt.as_micros().clamp(1, 60_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::super::settings::SendSettings;
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_timeout_follows_the_samples() {
        let limits = Limits::new(&SendSettings::default(), true);
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.timeout(&limits), ms(1000));
        rtt.on_sample(ms(100));
        assert_eq!(rtt.smoothed(), Some(ms(100)));
        assert_eq!(rtt.timeout(&limits), ms(300));
        rtt.on_sample(ms(900));
        // The mean moves by an eighth, the variation by a quarter of the difference: 200 ms + 4 * 237.5 ms.
        assert_eq!(rtt.timeout(&limits), ms(200 + 950));
        for _ in 0..100 {
            rtt.on_sample(ms(200));
        }
        assert_eq!(rtt.timeout(&limits).as_millis(), 400);
    }

    #[test]
    fn the_minimum_forgets_an_old_route() {
        let mut rtt = RoundTrip::default();
        let at = |seconds| Instant::ORIGIN + Duration::from_secs(seconds);
        rtt.on_least(ms(10), at(1));
        rtt.on_least(ms(30), at(100));
        assert_eq!(rtt.least(), Some(ms(10)));
        rtt.on_least(ms(30), at(160));
        assert_eq!(rtt.least(), Some(ms(10)));
        rtt.on_least(ms(31), at(311));
        assert_eq!(rtt.least(), Some(ms(30)));
    }
}
