//! What one acknowledgment delivers, gathered record by record.

use core::time::Duration;

use softclock_core::Instant;

use super::scoreboard::Record;
use super::settings::ClockUnit;
use crate::tcp::congestion::DeliveredSegments;
use crate::tcp::seq::Seq;

/// How a record was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    Cumulatively,
    Selectively,
}

/// The facts by which delivered records are judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// When the acknowledgment arrived.
    pub(super) arrived: Instant,
    pub(super) least_rtt: Duration,
    /// The reading of one's own clock that the acknowledgment echoes.
    pub(super) echo: Option<u32>,
    pub(super) clock: ClockUnit,
    /// The highest position delivered before (RACK.fack).
    pub(super) forward: Seq,
    /// The end of the data that was in flight when the last timeout happened.
    pub(super) recovery_point: Seq,
}

/// The sums over all records that one acknowledgment delivers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    facts: Facts,
    /// The bytes newly delivered.
    pub(super) bytes: u32,
    /// The newest transmission delivered, in the order of RACK, if it is certain that this transmission and not an
    /// earlier one of the same bytes was delivered.
    pub(super) newest: Option<(Instant, Seq)>,
    /// The same bytes, as the estimator of rates needs them.
    pub(super) segments: DeliveredSegments,
    /// The highest position delivered.
    pub(super) forward: Seq,
    /// Whether a record sent once arrived behind one sent after it.
    pub(super) is_reordered: bool,
    /// Whether a record sent more than once was acknowledged cumulatively.
    pub(super) has_retransmission: bool,
    /// Whether a record sent once, before the last timeout, was delivered.
    pub(super) has_original: bool,
    /// The earliest and the latest time of sending among cumulatively acknowledged records that were sent once.
    first_acked: Option<Instant>,
    first_sacked: Option<Instant>,
    latest: Option<Instant>,
}

impl Delivery {
    pub(super) fn new(facts: Facts) -> Self {
        Self {
            facts,
            bytes: 0,
            newest: None,
            segments: DeliveredSegments::default(),
            forward: facts.forward,
            is_reordered: false,
            has_retransmission: false,
            has_original: false,
            first_acked: None,
            first_sacked: None,
            latest: None,
        }
    }

    /// Adds a record that was not delivered before.
    pub(super) fn add(&mut self, record: &Record, how: How) {
        self.bytes += record.length;
        let sent = record.sent;
        let end = record.end();
        self.segments.add(sent, &record.snapshot, record.length);
        if record.transmissions == 1 {
            self.add_original(sent, end, how);
        }
        if self.is_certain(record)
            && self
                .newest
                .is_none_or(|newest| is_sent_after((sent, end), newest))
        {
            self.newest = Some((sent, end));
        }
        self.forward = self.forward.max(end);
    }

    /// Notes that a record sent more than once was acknowledged cumulatively, whether delivered now or before.
    pub(super) fn add_retransmitted(&mut self) {
        self.has_retransmission = true;
    }

    fn add_original(&mut self, sent: Instant, end: Seq, how: How) {
        // RFC 8985, 6.2, step 3. The highest position before this acknowledgment decides, so that the order of its
        // blocks does not matter.
        self.is_reordered |= end.is_before(self.facts.forward);
        self.has_original |= end.is_at_or_before(self.facts.recovery_point);
        let first = match how {
            How::Cumulatively => &mut self.first_acked,
            How::Selectively => &mut self.first_sacked,
        };
        *first = Some(first.map_or(sent, |first| first.min(sent)));
        self.latest = Some(self.latest.map_or(sent, |latest| latest.max(sent)));
    }

    /// RFC 8985, 6.2, step 2: an acknowledgment of bytes sent more than once can be for an earlier transmission. It is,
    /// if it echoes an earlier time, or comes sooner than any round trip takes.
    fn is_certain(&self, record: &Record) -> bool {
        let Facts {
            arrived,
            least_rtt,
            echo,
            clock,
            ..
        } = self.facts;
        let is_echo_of_earlier = echo.is_some_and(|echo| {
            let sent = clock.reading(record.sent);
            (echo.wrapping_sub(sent) as i32) < 0
        });
        // A short segment takes a little less than the least round trip of full ones.
        let is_too_soon = arrived.since(record.sent) < least_rtt / 8 * 7;
        record.transmissions == 1 || !(is_echo_of_earlier || is_too_soon)
    }

    /// The sample for the retransmission timeout: of bytes sent once (Karn), the longest, so that the delay of
    /// acknowledgments is part of it. Bytes behind a retransmitted hole say nothing, as they can have waited for it.
    pub(super) fn timeout_sample(&self) -> Option<Duration> {
        let first = match self.has_retransmission {
            true => self.first_sacked,
            false => self.first_acked.or(self.first_sacked),
        };
        first.map(|sent| self.facts.arrived.since(sent))
    }

    /// The sample for the minimum: the shortest.
    pub(super) fn least_sample(&self) -> Option<Duration> {
        let latest = self.latest.filter(|_| !self.has_retransmission)?;
        Some(self.facts.arrived.since(latest))
    }
}

/// The order of transmissions (RFC 8985, 6.2, `RACK_sent_after`).
pub(super) fn is_sent_after(one: (Instant, Seq), other: (Instant, Seq)) -> bool {
    one.0 > other.0 || (one.0 == other.0 && other.1.is_before(one.1))
}
