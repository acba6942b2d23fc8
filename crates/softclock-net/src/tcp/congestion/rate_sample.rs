//! Samples of the rate at which the peer receives (draft-cheng-iccrg-delivery-rate-estimation).
//!
//! For each segment the sender stores what had been delivered when it was sent (a [`Snapshot`]). When the segment is
//! acknowledged, the bytes delivered since then, divided by the time, are a sample. The time is the longer one of the
//! time to send and the time to acknowledge, so that neither bursts of segments nor of acknowledgments raise the rate.

use core::time::Duration;

use softclock_core::Instant;

/// What had been delivered when a segment was sent. The sender stores it with the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// When the last acknowledgment before had arrived (P.delivered_time).
    delivered_at: Instant,
    /// When the first segment of this flight was sent (P.first_sent_time).
    first_sent_at: Instant,
    /// The bytes delivered before, modulo 2^32 (P.delivered).
    delivered: u32,
    /// Whether the application limited the rate (P.is_app_limited).
    is_app_limited: bool,
}

const _: () = assert!(size_of::<Snapshot>() <= 24);

/// The segments that one acknowledgment delivers, as far as a rate sample needs them.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveredSegments {
    /// The one that was sent last, and when.
    newest: Option<(Instant, Snapshot)>,
    bytes: u32,
}

/// A sample of the rate of delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateSample {
    /// The bytes delivered in the interval.
    pub delivered: u32,
    /// The interval, never zero.
    pub interval: Duration,
    /// Whether the application limited the rate, so that the path may be faster.
    pub is_app_limited: bool,
}

/// Measures the rate of delivery of a connection.
///
/// ```
/// use core::time::Duration;
/// use softclock_core::Instant;
/// use softclock_net::tcp::congestion::{DeliveredSegments, RateSampler};
///
/// let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
/// let mut sampler = RateSampler::default();
/// // Ten segments of 1000 bytes, one each millisecond; each is acknowledged 20 ms later.
/// let snapshots: Vec<_> = (0..10).map(|ms| sampler.on_sent(at(ms), ms as u32 * 1_000)).collect();
/// let mut rate = 0;
/// for (ms, snapshot) in (0..10).zip(&snapshots) {
///     let mut segments = DeliveredSegments::default();
///     segments.add(at(ms), snapshot, 1_000);
///     let sample = sampler.on_ack(at(ms + 20), segments, Some(Duration::from_millis(20)));
///     rate = sample.map_or(rate, |sample| sample.bytes_per_second());
/// }
/// // 10 000 bytes in 29 ms: before the first acknowledgment, a round trip passed.
/// assert_eq!(rate, 10_000 * 1_000 / 29);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSampler {
    /// The bytes delivered so far, modulo 2^32 (C.delivered).
    delivered: u32,
    /// When the last of them were acknowledged (C.delivered_time).
    delivered_at: Instant,
    /// When the segment was sent that was acknowledged last (C.first_sent_time).
    first_sent_at: Instant,
    /// The value of `delivered` beyond which samples are not limited by the application (C.app_limited).
    app_limited_until: Option<u32>,
}

impl DeliveredSegments {
    /// Adds a segment that was last sent at `sent_at` and is delivered now for the first time, by number or by SACK.
    pub fn add(&mut self, sent_at: Instant, snapshot: &Snapshot, bytes: u32) {
        self.bytes = self.bytes.wrapping_add(bytes);
        // The segment sent last gives the shortest interval, and so the freshest rate.
        if self.newest.is_none_or(|(newest, _)| sent_at >= newest) {
            self.newest = Some((sent_at, *snapshot));
        }
    }
}

impl RateSampler {
    /// Returns the snapshot for a segment that is sent now, also again. `in_flight` are the bytes in flight before.
    pub fn on_sent(&mut self, now: Instant, in_flight: u32) -> Snapshot {
        if in_flight == 0 {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        Snapshot {
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            delivered: self.delivered,
            is_app_limited: self.app_limited_until.is_some(),
        }
    }

    /// Records that the application has no data to send although the window has room. Samples of the segments that
    /// are now in flight, and of those sent until these are delivered, are limited by the application.
    pub fn on_app_limited(&mut self, in_flight: u32) {
        self.app_limited_until = Some(self.delivered.wrapping_add(in_flight.max(1)));
    }

    /// Processes the segments that an acknowledgment delivers. Returns a sample unless it delivers none, or in less
    /// than the least round-trip time, since then it acknowledges a segment that was sent again.
    pub fn on_ack(
        &mut self,
        arrived: Instant,
        segments: DeliveredSegments,
        min_rtt: Option<Duration>,
    ) -> Option<RateSample> {
        let (sent_at, snapshot) = segments.newest?;
        self.delivered = self.delivered.wrapping_add(segments.bytes);
        self.delivered_at = self.delivered_at.max(arrived);
        self.first_sent_at = sent_at;
        // The bubble of an idle application has left the path once all bytes from before it are delivered.
        let is_past = |until: u32| (self.delivered.wrapping_sub(until) as i32) > 0;
        if self.app_limited_until.is_some_and(is_past) {
            self.app_limited_until = None;
        }
        let sending = sent_at.since(snapshot.first_sent_at);
        let acknowledging = self.delivered_at.since(snapshot.delivered_at);
        let interval = sending.max(acknowledging);
        if interval.is_zero() || min_rtt.is_some_and(|least| interval < least) {
            return None;
        }
        Some(RateSample {
            delivered: self.delivered.wrapping_sub(snapshot.delivered),
            interval,
            is_app_limited: snapshot.is_app_limited,
        })
    }
}

impl RateSample {
    /// Returns the rate, at most `u64::MAX`.
    pub fn bytes_per_second(&self) -> u64 {
        let bytes = u128::from(self.delivered) * 1_000_000_000;
        u64::try_from(bytes / self.interval.as_nanos().max(1)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    const SEGMENT: u32 = 1_000;

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    /// Sends a segment each `gap_us`, acknowledged `rtt_us` later in batches. Returns the last sample.
    fn last_sample(gap_us: u64, rtt_us: u64, batch: usize, segments: u64) -> RateSample {
        let mut sampler = RateSampler::default();
        let mut flight: VecDeque<(u64, Snapshot)> = VecDeque::new();
        let mut last = None;
        for number in 0..segments {
            let sent = number * gap_us;
            while flight.len() >= batch && flight[batch - 1].0 + rtt_us <= sent {
                let arrived = at(flight[batch - 1].0 + rtt_us);
                let mut delivered = DeliveredSegments::default();
                for (sent, snapshot) in flight.drain(..batch) {
                    delivered.add(at(sent), &snapshot, SEGMENT);
                }
                let least = Some(Duration::from_micros(rtt_us));
                last = sampler.on_ack(arrived, delivered, least).or(last);
            }
            let snapshot = sampler.on_sent(at(sent), flight.len() as u32 * SEGMENT);
            flight.push_back((sent, snapshot));
        }
        last.expect("some segments are acknowledged")
    }

    #[test]
    fn a_steady_train_is_sampled_at_its_rate() {
        for batch in [1, 2, 7] {
            let sample = last_sample(100, 20_000, batch, 5_000);
            let rate = sample.bytes_per_second() as f64;
            assert!(
                (rate / 1e7 - 1.0).abs() < 0.05,
                "{rate} in batches of {batch}"
            );
            assert!(!sample.is_app_limited);
        }
    }

    #[test]
    fn samples_after_a_pause_are_limited_by_the_application_until_it_is_delivered() {
        let mut sampler = RateSampler::default();
        let ack = |sampler: &mut RateSampler, sent: u64, snapshot: &Snapshot| {
            let mut segments = DeliveredSegments::default();
            segments.add(at(sent), snapshot, SEGMENT);
            sampler
                .on_ack(at(sent + 100), segments, None)
                .expect("a sample")
                .is_app_limited
        };
        let before = sampler.on_sent(at(0), 0);
        sampler.on_app_limited(SEGMENT);
        let within = sampler.on_sent(at(50), SEGMENT);
        assert!(!ack(&mut sampler, 0, &before));
        // More than the bytes in flight at the pause are delivered: the next segment is not limited.
        assert!(ack(&mut sampler, 50, &within));
        let after = sampler.on_sent(at(200), 0);
        assert!(!ack(&mut sampler, 200, &after));
    }

    #[test]
    fn compressed_acknowledgments_do_not_raise_the_rate() {
        let mut sampler = RateSampler::default();
        let snapshots: [Snapshot; 10] =
            core::array::from_fn(|n| sampler.on_sent(at(n as u64 * 1_000), n as u32 * SEGMENT));
        for (n, snapshot) in snapshots.iter().enumerate() {
            let mut segments = DeliveredSegments::default();
            segments.add(at(n as u64 * 1_000), snapshot, SEGMENT);
            // All arrive within ten microseconds.
            let sample = sampler.on_ack(at(20_000 + n as u64), segments, None);
            assert!(sample.expect("a sample").bytes_per_second() <= 1_000_000);
        }
    }

    #[test]
    fn an_interval_below_the_least_round_trip_time_is_no_sample() {
        let mut sampler = RateSampler::default();
        let snapshot = sampler.on_sent(at(0), 0);
        let mut segments = DeliveredSegments::default();
        segments.add(at(0), &snapshot, SEGMENT);
        assert_eq!(
            sampler.on_ack(at(10), segments, Some(Duration::from_micros(11))),
            None
        );
        assert_eq!(
            sampler.on_ack(at(10), DeliveredSegments::default(), None),
            None
        );
    }

    proptest! {
        #[test]
        fn any_times_and_sizes_are_accepted(
            events in prop::collection::vec((any::<u64>(), any::<u32>(), any::<bool>()), 1..50),
        ) {
            let mut sampler = RateSampler::default();
            let mut snapshot = Snapshot::default();
            for (ns, bytes, sends) in events {
                let now = Instant::from_ns(ns);
                if sends {
                    snapshot = sampler.on_sent(now, bytes);
                    sampler.on_app_limited(bytes);
                } else {
                    let mut segments = DeliveredSegments::default();
                    segments.add(now, &snapshot, bytes);
                    if let Some(sample) = sampler.on_ack(now, segments, None) {
                        prop_assert!(!sample.interval.is_zero());
                        sample.bytes_per_second();
                    }
                }
            }
        }
    }
}
