//! The use of the congestion window (RFC 7661).
//!
//! A window that the sender does not use says nothing about the path at present. The bytes acknowledged in a round trip
//! (pipeACK) show what is in use; a window is *validated* while that is at least half of it. Others do not grow, are
//! halved after a while, and do not count when a loss is answered.

use core::time::Duration;

use softclock_core::Instant;

use crate::tcp::seq::Seq;

/// Measures the use of the window, in rounds of one window of bytes each.
///
/// ```
/// use core::time::Duration;
/// use softclock_core::Instant;
/// use softclock_net::tcp::congestion::validation::Validation;
/// use softclock_net::tcp::seq::Seq;
///
/// let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
/// let mut validation = Validation::new(Duration::from_secs(300));
/// validation.on_ack(at(0), 0, Seq(0), Seq(2_000), None);
/// // A round of 2000 bytes.
/// assert!(validation.on_ack(at(50), 2_000, Seq(2_000), Seq(4_000), None));
/// assert_eq!(validation.in_use(), Some(2_000));
/// assert!(validation.is_validated(4_000, 0) && !validation.is_validated(10_000, 0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validation {
    /// The position whose acknowledgment ends the round.
    round_end: Seq,
    /// The bytes acknowledged in this round.
    acked: u32,
    /// The most bytes acknowledged in one round of this period. 0: none is complete.
    most: u32,
    /// The same for the period before.
    most_before: u32,
    /// When this period began, in milliseconds modulo 2^32.
    period_ms: u32,
    /// When the window was in use for the last time, in seconds.
    validated_s: u32,
    /// The time that a window not in use is kept.
    kept_s: u16,
    /// Whether the times are set.
    has_begun: bool,
    /// Whether `round_end` is set. The times are set sooner, by the first segment that is sent.
    has_round: bool,
}

impl Validation {
    /// Creates the state of a new connection, which keeps a window that is not in use for `kept`.
    pub fn new(kept: Duration) -> Self {
        Self {
            round_end: Seq(0),
            acked: 0,
            most: 0,
            most_before: 0,
            period_ms: 0,
            validated_s: 0,
            kept_s: u16::try_from(kept.as_secs()).unwrap_or(u16::MAX),
            has_begun: false,
            has_round: false,
        }
    }

    /// Counts acknowledged bytes. Returns whether the acknowledgment ends a round.
    pub fn on_ack(
        &mut self,
        at: Instant,
        acked: u32,
        una: Seq,
        next: Seq,
        srtt: Option<Duration>,
    ) -> bool {
        let ms = milliseconds(at);
        if !self.has_begun {
            self.begin(at);
        }
        if !self.has_round {
            (self.round_end, self.has_round) = (next, true);
        }
        self.acked = self.acked.saturating_add(acked);
        if una.is_before(self.round_end) {
            return false;
        }
        self.end_round(ms, srtt.unwrap_or_default());
        self.round_end = next;
        true
    }

    /// Takes the bytes of a round as a sample. The greatest of a sampling period counts (RFC 7661, 4.2).
    fn end_round(&mut self, ms: u32, srtt: Duration) {
        let round_trips = u32::try_from(srtt.as_millis()).unwrap_or(u32::MAX);
        let period = round_trips.saturating_mul(3).max(LEAST_PERIOD_MS);
        let since = since(ms, self.period_ms);
        if since >= period {
            // A period without a round ages both values.
            self.most_before = match since >= period.saturating_mul(2) {
                true => 0,
                false => self.most,
            };
            (self.most, self.period_ms) = (0, ms);
        }
        self.most = self.most.max(self.acked);
        self.acked = 0;
    }

    /// Returns the most bytes that were acknowledged in a recent round trip (pipeACK). `None` before the first round
    /// and after a loss.
    pub fn in_use(&self) -> Option<u32> {
        let most = self.most.max(self.most_before);
        (most > 0).then_some(most)
    }

    /// Returns whether the sender uses at least half of the window (RFC 7661, 4.3). Bytes in flight count before they
    /// are acknowledged: in slow start, acknowledgments lag behind the window by half of it.
    pub fn is_validated(&self, window: u32, in_flight: u32) -> bool {
        let used = |bytes: u32| bytes >= window / 2;
        used(in_flight)
            || self
                .in_use()
                .is_none_or(|bytes| used(bytes.max(self.acked)))
    }

    /// Records that the window is in use.
    pub fn on_validated(&mut self, at: Instant) {
        self.validated_s = seconds(at);
    }

    /// Returns how many times a window that is not in use is to be halved by now: once for each time that it is kept.
    pub fn expired(&mut self, now: Instant) -> u32 {
        if !self.has_begun {
            self.begin(now);
        }
        let kept = u32::from(self.kept_s.max(1));
        let times = seconds(now).saturating_sub(self.validated_s) / kept;
        self.validated_s += times * kept;
        times
    }

    /// Forgets the samples, since a loss shows that the path has changed (RFC 7661, 4.4.1).
    pub fn reset(&mut self) {
        (self.most, self.most_before, self.acked) = (0, 0, 0);
    }

    fn begin(&mut self, at: Instant) {
        (self.period_ms, self.validated_s) = (milliseconds(at), seconds(at));
        self.has_begun = true;
    }
}

fn milliseconds(at: Instant) -> u32 {
    (at.as_ns() / 1_000_000) as u32
}

fn seconds(at: Instant) -> u32 {
    u32::try_from(at.as_ns() / 1_000_000_000).unwrap_or(u32::MAX)
}

/// Returns the milliseconds from `earlier` to `later`, 0 if it is the later one: an interval of 2^31 ms or more.
fn since(later: u32, earlier: u32) -> u32 {
    match later.wrapping_sub(earlier) {
        ms if ms <= i32::MAX as u32 => ms,
        _ => 0,
    }
}

/// The shortest sampling period (RFC 7661, 4.2: the larger of three round trips and one second).
const LEAST_PERIOD_MS: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    /// Acknowledges one round of `bytes`. `una` is its end, and all bytes that were sent.
    fn round(validation: &mut Validation, ms: u64, una: u32, bytes: u32) {
        let srtt = Some(Duration::from_millis(100));
        let ended = validation.on_ack(at(ms), bytes, Seq(una), Seq(una), srtt);
        assert!(ended);
    }

    #[test]
    fn the_first_round_ends_wherever_sequence_numbers_begin() {
        for first in [0, 5, 1 << 31, u32::MAX - 5] {
            let mut validation = Validation::new(Duration::from_secs(300));
            // The first segment is sent before there is a round.
            assert_eq!(validation.expired(at(0)), 0);
            let (una, next) = (Seq(first) + 1, Seq(first) + 10);
            assert!(!validation.on_ack(at(100), 1, una, next, None));
            assert!(validation.on_ack(at(100), 9, next, next, None));
        }
    }

    #[test]
    fn the_greatest_round_of_two_periods_is_in_use() {
        let mut validation = Validation::new(Duration::from_secs(300));
        assert_eq!(validation.in_use(), None);
        round(&mut validation, 0, 0, 8_000);
        round(&mut validation, 100, 8_000, 2_000);
        assert_eq!(validation.in_use(), Some(8_000));
        // The first period ends after a second, the second after another one.
        round(&mut validation, 1_100, 10_000, 2_000);
        assert_eq!(validation.in_use(), Some(8_000));
        round(&mut validation, 2_200, 12_000, 2_000);
        assert_eq!(validation.in_use(), Some(2_000));
        validation.reset();
        assert_eq!(validation.in_use(), None);
    }

    #[test]
    fn a_window_is_validated_while_half_of_it_is_in_use() {
        let mut validation = Validation::new(Duration::from_secs(300));
        assert!(validation.is_validated(100_000, 0));
        round(&mut validation, 0, 0, 8_000);
        assert!(validation.is_validated(16_000, 0));
        assert!(!validation.is_validated(16_002, 0));
        assert!(validation.is_validated(16_002, 8_001));
    }

    #[test]
    fn a_window_expires_once_for_each_period_in_which_it_is_not_in_use() {
        let mut validation = Validation::new(Duration::from_secs(300));
        assert_eq!(validation.expired(at(5)), 0);
        assert_eq!(validation.expired(at(299_999)), 0);
        assert_eq!(validation.expired(at(300_005)), 1);
        assert_eq!(validation.expired(at(300_006)), 0);
        assert_eq!(validation.expired(at(900_005)), 2);
        validation.on_validated(at(900_005));
        assert_eq!(validation.expired(at(1_199_999)), 0);
    }

    proptest! {
        #[test]
        fn any_acknowledgments_are_accepted(
            acks in prop::collection::vec((any::<u64>(), any::<u32>(), any::<[u32; 2]>()), 1..50),
            kept in any::<u64>(), srtt in any::<u64>(),
        ) {
            let mut validation = Validation::new(Duration::from_secs(kept));
            for (ns, acked, [una, next]) in acks {
                let srtt = Some(Duration::from_nanos(srtt));
                validation.on_ack(Instant::from_ns(ns), acked, Seq(una), Seq(next), srtt);
                validation.expired(Instant::from_ns(ns));
                validation.is_validated(acked, una);
            }
        }
    }
}
