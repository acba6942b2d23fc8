//! When acknowledgments are sent.

use core::time::Duration;

use softclock_core::Instant;

use super::settings::ReceiveSettings;

/// Whether an acknowledgment must be sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum AckNeed {
    /// Nothing has arrived that must be acknowledged.
    #[default]
    None,
    /// An acknowledgment is due at [`next_ack_at`](super::Receiver::next_ack_at), unless a segment is sent before.
    Delayed,
    /// An acknowledgment is due now.
    Now,
}

/// The state of delayed acknowledgments (RFC 9293, 3.8.6.3; RFC 5681, 4.2).
#[derive(Clone, Debug)]
pub(super) struct AckState {
    /// When a delayed acknowledgment is due. It counts from the arrival of the segment.
    due: Instant,
    /// The delay and the least delay, in microseconds.
    delay_us: u32,
    least_delay_us: u32,
    /// The round trip, in microseconds; the largest value if it is not known.
    round_trip_us: u32,
    /// The segments that are still acknowledged at once.
    quick: u8,
    need: AckNeed,
}

impl AckState {
    pub(super) fn new(settings: &ReceiveSettings) -> Self {
        Self {
            due: Instant::FAR_FUTURE,
            delay_us: micros(settings.ack_delay),
            least_delay_us: micros(settings.least_ack_delay),
            round_trip_us: u32::MAX,
            quick: settings.quick_acks,
            need: AckNeed::None,
        }
    }

    pub(super) const fn need(&self) -> AckNeed {
        self.need
    }

    /// When an acknowledgment is due that waits.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.need == AckNeed::Delayed).then_some(self.due)
    }

    pub(super) fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip_us = micros(round_trip);
    }

    /// The round trip, if it is known.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        let round_trip = Duration::from_micros(u64::from(self.round_trip_us));
        (self.round_trip_us != u32::MAX).then_some(round_trip)
    }

    /// Bytes have arrived in order, without a gap before or behind them. The first segment is acknowledged with the
    /// second one, whatever their size; one that is longer than `mss` stands for several.
    pub(super) fn on_in_order(&mut self, arrived: Instant, bytes: usize, mss: u16) {
        if self.need != AckNeed::None || bytes > usize::from(mss) || self.quick > 0 {
            self.quick = self.quick.saturating_sub(1);
            self.need = AckNeed::Now;
        } else {
            let delay_us = (self.round_trip_us / 4)
                .max(self.least_delay_us)
                .min(self.delay_us);
            self.due = arrived + Duration::from_micros(u64::from(delay_us));
            self.need = AckNeed::Delayed;
        }
    }

    /// An acknowledgment must not wait.
    pub(super) const fn hurry(&mut self) {
        self.need = AckNeed::Now;
    }

    pub(super) const fn on_sent(&mut self) {
        self.need = AckNeed::None;
        self.due = Instant::FAR_FUTURE;
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}
