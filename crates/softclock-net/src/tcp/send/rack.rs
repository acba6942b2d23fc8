//! RACK: losses found by the times of sending (RFC 8985, 6).

use core::time::Duration;

use softclock_core::Instant;

use super::delivery::{Delivery, is_sent_after};
use super::scoreboard::{Record, RecordState, Scoreboard};
use crate::tcp::seq::Seq;

/// The newest transmission that is known to have arrived. It lives as long as a flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rack {
    newest: Option<(Instant, Seq)>,
    /// The round trip of the newest transmission.
    rtt: Duration,
    /// The highest position delivered (RACK.fack).
    pub(super) forward: Seq,
}

/// What a look for losses finds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Detection {
    /// The segments newly marked as lost.
    pub(super) segments: u32,
    /// The highest end of these.
    pub(super) end: Option<Seq>,
    /// When to look again, as a segment may still be late rather than lost.
    pub(super) again_at: Option<Instant>,
}

impl Rack {
    pub(super) fn new(una: Seq) -> Self {
        Self {
            newest: None,
            rtt: Duration::ZERO,
            forward: una,
        }
    }

    /// RFC 8985, 6.2, steps 2 and 3.
    pub(super) fn on_delivery(&mut self, delivery: &Delivery, arrived: Instant) {
        if let Some(newest) = delivery.newest {
            // The round trip is that of the last delivered, even if an older transmission was newer.
            self.rtt = arrived.since(newest.0);
            if self
                .newest
                .is_none_or(|before| is_sent_after(newest, before))
            {
                self.newest = Some(newest);
            }
        }
        self.forward = self.forward.max(delivery.forward);
    }

    /// RFC 8985, 6.2, step 5: marks segments that were sent before one that has arrived, and are late by more than
    /// `window`. Originals are looked at in the order of their numbers, which is that of their sending, and
    /// retransmissions in the order of their list, so each search ends at the first that may still come.
    pub(super) fn detect(
        &self,
        board: &mut Scoreboard,
        window: Duration,
        now: Instant,
    ) -> Detection {
        let mut found = Detection::default();
        self.detect_originals(board, window, now, &mut found);
        self.detect_retransmissions(board, window, now, &mut found);
        found
    }

    fn detect_originals(
        &self,
        board: &mut Scoreboard,
        window: Duration,
        now: Instant,
        found: &mut Detection,
    ) {
        let mut index = board.index_of(board.settled);
        while let Some(&record) = board.records.get(index) {
            let is_candidate = record.state == RecordState::InFlight && record.transmissions == 1;
            if is_candidate && !self.judge(board, &record, index, window, now, found) {
                break;
            }
            board.settled = record.end();
            index += 1;
        }
    }

    fn detect_retransmissions(
        &self,
        board: &mut Scoreboard,
        window: Duration,
        now: Instant,
        found: &mut Detection,
    ) {
        while let Some(&(seq, sent)) = board.resent.front() {
            let index = board.index_of(seq);
            if let Some(&record) = board.records.get(index) {
                let is_current = record.seq.is_at_or_before(seq)
                    && record.sent == sent
                    && record.state == RecordState::InFlight;
                if is_current && !self.judge(board, &record, index, window, now, found) {
                    return;
                }
            }
            board.resent.pop_front();
        }
    }

    /// Marks a record as lost if it is late; returns whether it is.
    fn judge(
        &self,
        board: &mut Scoreboard,
        record: &Record,
        index: usize,
        window: Duration,
        now: Instant,
        found: &mut Detection,
    ) -> bool {
        let is_overtaken = self
            .newest
            .is_some_and(|newest| is_sent_after(newest, (record.sent, record.end())));
        if !is_overtaken {
            return false;
        }
        let late_at = self.late_at(record, window);
        if now < late_at {
            let again_at = found.again_at.map_or(late_at, |at| at.min(late_at));
            found.again_at = Some(again_at);
            return false;
        }
        board.mark_lost(index);
        found.segments += 1;
        found.end = Some(found.end.map_or(record.end(), |end| end.max(record.end())));
        true
    }

    /// When a record counts as lost, if a later transmission has arrived.
    pub(super) fn late_at(&self, record: &Record, window: Duration) -> Instant {
        record.sent + self.rtt + window
    }
}

/// The reordering that a connection has seen, and the window that it leads to (RFC 8985, 6.2, step 4). It outlives
/// flights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reordering {
    /// SND.NXT when the window last grew, until that is acknowledged: it grows once in a round trip.
    round: Seq,
    has_grown_in_round: bool,
    /// The window in quarters of the least round trip.
    multiplier: u8,
    /// The recoveries after which the window is reset.
    persist: u8,
    is_seen: bool,
}

/// What the window depends on at present.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    /// Whether a fast recovery or a recovery after a timeout is under way.
    pub(super) is_in_recovery: bool,
    /// Whether at least three segments were acknowledged selectively.
    pub(super) has_duplicates: bool,
    pub(super) least_rtt: Option<Duration>,
    pub(super) smoothed: Option<Duration>,
}

impl Reordering {
    pub(super) const fn new() -> Self {
        Self {
            round: Seq(0),
            has_grown_in_round: false,
            multiplier: 1,
            persist: 0,
            is_seen: false,
        }
    }

    /// An original arrived behind a later segment.
    pub(super) fn on_reordered(&mut self) {
        self.is_seen = true;
    }

    /// The peer reports a duplicate: a retransmission was needless, so the window was too short. The original was late,
    /// which is reordering, although RFC 8985 counts only segments that were not sent again: without this, three
    /// duplicates would close the window again and again. Returns whether the window has grown.
    pub(super) fn on_duplicate(&mut self, una: Seq, next: Seq) -> bool {
        self.is_seen = true;
        let is_new_round = !self.has_grown_in_round || self.round.is_at_or_before(una);
        if is_new_round {
            self.round = next;
            self.has_grown_in_round = true;
            self.multiplier = self.multiplier.saturating_add(1);
            self.persist = PERSIST;
        }
        is_new_round
    }

    /// The round of the last growth is over: later positions are compared afresh, also after 2^31 bytes.
    pub(super) fn on_advance(&mut self, una: Seq) {
        self.has_grown_in_round &= una.is_before(self.round);
    }

    /// A recovery has ended.
    pub(super) fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }

    /// How late a segment can be, compared with one sent after it, without being taken for lost.
    pub(super) fn window(&self, situation: &Situation) -> Duration {
        if !self.is_seen && (situation.is_in_recovery || situation.has_duplicates) {
            return Duration::ZERO;
        }
        let least = situation.least_rtt.unwrap_or_default();
        let window = least / 4 * u32::from(self.multiplier);
        window.min(situation.smoothed.unwrap_or_default())
    }
}

/// The recoveries for which a grown window is kept (RFC 8985, 6.2).
const PERSIST: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn situation() -> Situation {
        Situation {
            is_in_recovery: false,
            has_duplicates: false,
            least_rtt: Some(ms(40)),
            smoothed: Some(ms(50)),
        }
    }

    #[test]
    fn the_window_is_a_quarter_of_the_least_round_trip() {
        let reordering = Reordering::new();
        assert_eq!(reordering.window(&situation()), ms(10));
    }

    #[test]
    fn without_reordering_three_duplicates_or_a_recovery_close_the_window() {
        let mut reordering = Reordering::new();
        let duplicates = Situation {
            has_duplicates: true,
            ..situation()
        };
        let recovery = Situation {
            is_in_recovery: true,
            ..situation()
        };
        assert_eq!(reordering.window(&duplicates), ms(0));
        assert_eq!(reordering.window(&recovery), ms(0));
        reordering.on_reordered();
        assert_eq!(reordering.window(&duplicates), ms(10));
        assert_eq!(reordering.window(&recovery), ms(10));
    }

    #[test]
    fn duplicates_grow_the_window_once_a_round_trip_up_to_the_smoothed_time() {
        let mut reordering = Reordering::new();
        reordering.on_duplicate(Seq(100), Seq(200));
        reordering.on_duplicate(Seq(150), Seq(300));
        assert_eq!(reordering.window(&situation()), ms(20));
        reordering.on_duplicate(Seq(200), Seq(300));
        assert_eq!(reordering.window(&situation()), ms(30));
        for round in 3..20 {
            reordering.on_duplicate(Seq(round * 100), Seq(round * 100 + 100));
        }
        assert_eq!(reordering.window(&situation()), ms(50));
    }

    #[test]
    fn sixteen_recoveries_without_duplicates_reset_the_window() {
        let mut reordering = Reordering::new();
        reordering.on_duplicate(Seq(100), Seq(200));
        for _ in 0..15 {
            reordering.on_recovered();
        }
        assert_eq!(reordering.window(&situation()), ms(20));
        reordering.on_recovered();
        assert_eq!(reordering.window(&situation()), ms(10));
    }
}
