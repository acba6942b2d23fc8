//! The segments in flight, and what became of each.

use alloc::collections::VecDeque;

use softclock_core::Instant;

use super::delivery::{Delivery, How};
use crate::tcp::congestion::Snapshot;
use crate::tcp::segment::{SackBlock, SackBlocks};
use crate::tcp::seq::Seq;

/// One transmitted segment that is not yet acknowledged cumulatively.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) seq: Seq,
    /// The sequence numbers that it takes, that of FIN included.
    pub(super) length: u32,
    /// When it was last sent.
    pub(super) sent: Instant,
    /// The state of delivery when it was last sent.
    pub(super) snapshot: Snapshot,
    pub(super) state: RecordState,
    /// How often it was sent, at most 255.
    pub(super) transmissions: u8,
    pub(super) has_fin: bool,
}

impl Record {
    pub(super) fn end(&self) -> Seq {
        self.seq + self.length
    }

    /// Its bytes, without FIN.
    pub(super) fn payload(&self) -> u32 {
        self.length - u32::from(self.has_fin)
    }

    /// Takes bytes from the front of the record behind it until it has a payload of `most` bytes, and FIN if that comes
    /// next. What is known of the transmissions is that of the later and the more frequent one.
    fn take_from(&mut self, behind: &mut Self, most: u32) {
        let room = most.saturating_sub(self.payload());
        let payload = behind.payload().min(room);
        let has_fin = behind.has_fin && payload == behind.payload();
        let taken = payload + u32::from(has_fin);
        if taken == 0 {
            return;
        }
        self.length += taken;
        self.has_fin |= has_fin;
        self.transmissions = self.transmissions.max(behind.transmissions);
        if self.sent < behind.sent {
            (self.sent, self.snapshot) = (behind.sent, behind.snapshot);
        }
        behind.seq += taken;
        behind.length -= taken;
        behind.has_fin &= !has_fin;
    }
}

/// What is known of the last transmission of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordState {
    /// It is presumed to be under way.
    InFlight,
    /// It is presumed to be lost, and waits for its retransmission.
    Lost,
    /// It has arrived (RFC 2018).
    Sacked,
}

/// The records from SND.UNA to SND.NXT without a gap, in the order of their sequence numbers, with sums by state.
///
/// Acknowledgments, loss detection and the choice of retransmissions take time in proportion to the records that change
/// their state, not to those in flight: cursors remember how far each search has come, and blocks that were seen before
/// are skipped.
#[derive(Debug)]
pub(super) struct Scoreboard {
    pub(super) records: VecDeque<Record>,
    in_flight: u32,
    lost: u32,
    sacked: u32,
    sacked_segments: u32,
    /// The blocks of the last acknowledgment that had any, as far as they lie ahead of SND.UNA.
    seen: SackBlocks,
    /// No lost record lies before this position.
    lost_from: Seq,
    /// Every record before this position is sacked, lost, or was retransmitted.
    pub(super) settled: Seq,
    /// Retransmissions in the order of their sending; obsolete entries are dropped when they are met. Empty without
    /// SACK, as nothing looks for losses by time then.
    pub(super) resent: VecDeque<(Seq, Instant)>,
    has_sack: bool,
}

impl Scoreboard {
    pub(super) fn new(una: Seq, has_sack: bool) -> Self {
        Self {
            records: VecDeque::new(),
            in_flight: 0,
            lost: 0,
            sacked: 0,
            sacked_segments: 0,
            seen: SackBlocks::default(),
            lost_from: una,
            settled: una,
            resent: VecDeque::new(),
            has_sack,
        }
    }

    /// The bytes that are presumed to be under way.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The bytes that wait for their retransmission.
    pub(super) fn lost(&self) -> u32 {
        self.lost
    }

    /// Whether segments that were taken for lost have not arrived: they wait for their retransmission, or it is under way.
    /// O(records).
    pub(super) fn misses_losses(&self) -> bool {
        self.records.iter().any(|record| match record.state {
            RecordState::Lost => true,
            RecordState::InFlight => record.transmissions > 1,
            RecordState::Sacked => false,
        })
    }

    /// The bytes that have arrived beyond SND.UNA.
    pub(super) fn sacked(&self) -> u32 {
        self.sacked
    }

    /// The segments that have arrived beyond SND.UNA.
    pub(super) fn sacked_segments(&self) -> u32 {
        self.sacked_segments
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn push(&mut self, record: Record) {
        self.in_flight += record.length;
        self.records.push_back(record);
    }

    /// The index of the record that contains a position, or of the first behind it.
    pub(super) fn index_of(&self, seq: Seq) -> usize {
        self.records
            .partition_point(|record| record.end().is_at_or_before(seq))
    }

    /// Removes what lies before `una`.
    pub(super) fn acknowledge(&mut self, una: Seq, delivery: &mut Delivery) {
        while let Some(first) = self.records.front_mut() {
            if una.is_at_or_before(first.seq) {
                break;
            }
            if first.transmissions > 1 {
                delivery.add_retransmitted();
            }
            // A part of a record is acknowledged if the path has cut it. The rest stays as it is.
            let covered = una.since(first.seq).min(first.length);
            let mut gone = *first;
            gone.length = covered;
            first.seq += covered;
            first.length -= covered;
            let is_whole = first.length == 0;
            if is_whole {
                self.records.pop_front();
            }
            match gone.state {
                RecordState::InFlight => self.in_flight -= covered,
                RecordState::Lost => self.lost -= covered,
                RecordState::Sacked => {
                    self.sacked -= covered;
                    self.sacked_segments -= u32::from(is_whole);
                }
            }
            if gone.state != RecordState::Sacked {
                delivery.add(&gone, How::Cumulatively);
            }
        }
        self.settled = self.settled.max(una);
        self.lost_from = self.lost_from.max(una);
        // After 2^31 bytes, blocks behind would seem to lie ahead.
        let mut ahead = SackBlocks::default();
        for &seen in self.seen.as_slice() {
            if una.is_before(seen.end) {
                ahead.push(seen);
            }
        }
        self.seen = ahead;
    }

    /// Marks the records that lie in blocks entirely. Blocks beyond `next` or before `una` are ignored.
    pub(super) fn apply(
        &mut self,
        blocks: &[SackBlock],
        una: Seq,
        next: Seq,
        delivery: &mut Delivery,
    ) {
        let mut valid = SackBlocks::default();
        for &block in blocks {
            let is_valid = una.is_before(block.start)
                && block.start.is_before(block.end)
                && block.end.is_at_or_before(next);
            if is_valid {
                self.apply_block(block, delivery);
                valid.push(block);
            }
        }
        if !valid.as_slice().is_empty() {
            self.seen = valid;
        }
    }

    /// Marks what of a block the acknowledgment before did not name already.
    fn apply_block(&mut self, block: SackBlock, delivery: &mut Delivery) {
        let mut from = block.start;
        while from.is_before(block.end) {
            let seen = self.seen.as_slice().iter();
            let over = seen
                .clone()
                .find(|seen| from.is_within(seen.start, seen.end));
            if let Some(over) = over {
                from = over.end;
                continue;
            }
            let ahead = seen
                .map(|seen| seen.start)
                .filter(|&start| from.is_before(start));
            let to = ahead.fold(block.end, Seq::min);
            self.apply_range(block, from, to, delivery);
            from = to;
        }
    }

    /// Marks the records that touch a range and lie in `block` entirely.
    fn apply_range(&mut self, block: SackBlock, from: Seq, to: Seq, delivery: &mut Delivery) {
        let first = self.index_of(from);
        for record in self.records.range_mut(first..) {
            if to.is_at_or_before(record.seq) {
                break;
            }
            let is_covered =
                block.start.is_at_or_before(record.seq) && record.end().is_at_or_before(block.end);
            if !is_covered || record.state == RecordState::Sacked {
                continue;
            }
            match record.state {
                RecordState::Lost => self.lost -= record.length,
                _ => self.in_flight -= record.length,
            }
            self.sacked += record.length;
            self.sacked_segments += 1;
            record.state = RecordState::Sacked;
            delivery.add(record, How::Selectively);
        }
    }

    /// Marks a record in flight as lost; returns its length, 0 if it is not in flight.
    pub(super) fn mark_lost(&mut self, index: usize) -> u32 {
        match self.records.get_mut(index) {
            Some(record) if record.state == RecordState::InFlight => {
                record.state = RecordState::Lost;
                self.in_flight -= record.length;
                self.lost += record.length;
                self.lost_from = self.lost_from.min(record.seq);
                record.length
            }
            _ => 0,
        }
    }

    /// The index of the first lost record.
    pub(super) fn next_lost(&mut self) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        let first = self.index_of(self.lost_from);
        let ahead = self
            .records
            .range(first..)
            .position(|record| record.state == RecordState::Lost)?;
        let index = first + ahead;
        self.lost_from = self
            .records
            .get(index)
            .map_or(self.lost_from, |record| record.seq);
        Some(index)
    }

    /// Notes that a record, lost or in flight, is sent again. Returns it as it is sent.
    pub(super) fn resend(
        &mut self,
        index: usize,
        now: Instant,
        snapshot: Snapshot,
    ) -> Option<Record> {
        let record = self.records.get_mut(index)?;
        debug_assert!(record.state != RecordState::Sacked, "it has arrived");
        if record.state == RecordState::Lost {
            self.lost -= record.length;
            self.in_flight += record.length;
        }
        record.state = RecordState::InFlight;
        record.sent = now;
        record.snapshot = snapshot;
        record.transmissions = record.transmissions.saturating_add(1);
        if self.has_sack {
            self.resent.push_back((record.seq, now));
        }
        Some(*record)
    }

    /// Makes two records of one whose payload is longer than `most`, as after a fall of the path MTU: the first has
    /// `first` bytes. Not for one that was received. Returns whether it did.
    pub(super) fn cut(&mut self, index: usize, first: u32, most: u32) -> bool {
        let Some(record) = self.records.get_mut(index) else {
            return false;
        };
        let payload = record.payload();
        if payload <= most || first == 0 || payload <= first {
            return false;
        }
        let mut rest = *record;
        rest.seq += first;
        rest.length -= first;
        record.length = first;
        record.has_fin = false;
        self.records.insert(index + 1, rest);
        true
    }

    /// Divides what is lost anew, without regard to how it was sent before: into payloads of `most` bytes, and a
    /// shorter one in front of each gap and at the end. Takes time in proportion to all records.
    pub(super) fn divide_lost(&mut self, most: u32) {
        let mut divided = VecDeque::with_capacity(self.records.len());
        for mut rest in core::mem::take(&mut self.records) {
            if rest.state != RecordState::Lost {
                divided.push_back(rest);
                continue;
            }
            let last = divided.back_mut();
            if let Some(last) = last.filter(|last: &&mut Record| last.state == RecordState::Lost) {
                last.take_from(&mut rest, most);
            }
            while rest.length > 0 {
                let mut piece = Record {
                    length: 0,
                    has_fin: false,
                    ..rest
                };
                piece.take_from(&mut rest, most);
                divided.push_back(piece);
            }
        }
        self.records = divided;
    }

    /// Takes every loss back: what waits for its retransmission is presumed to be under way after all.
    pub(super) fn unmark_lost(&mut self) {
        for record in &mut self.records {
            if record.state == RecordState::Lost {
                record.state = RecordState::InFlight;
            }
        }
        self.in_flight += self.lost;
        self.lost = 0;
        self.rewind();
    }

    /// Forgets all selective acknowledgments, as the receiver has dropped what it had acknowledged (RFC 2018, 8).
    pub(super) fn forget_sacked(&mut self) {
        for record in &mut self.records {
            if record.state == RecordState::Sacked {
                record.state = RecordState::InFlight;
            }
        }
        self.in_flight += self.sacked;
        self.sacked = 0;
        self.sacked_segments = 0;
        self.seen = SackBlocks::default();
        self.rewind();
    }

    /// Lets the searches begin at the front again. Retransmissions are found by their own list.
    fn rewind(&mut self) {
        if let Some(first) = self.records.front() {
            self.settled = first.seq;
            self.lost_from = first.seq;
        }
        // A retransmission that was marked lost has left the list, so it is listed again.
        self.resent.clear();
        if !self.has_sack {
            return;
        }
        let again = self
            .records
            .iter()
            .filter(|record| record.transmissions > 1 && record.state == RecordState::InFlight);
        self.resent
            .extend(again.map(|record| (record.seq, record.sent)));
        self.resent
            .make_contiguous()
            .sort_by_key(|&(_, sent)| sent.as_ns());
    }

    /// Checks the sums and the order of the records. Takes time in proportion to all of them.
    #[cfg(test)]
    pub(super) fn check(&self, una: Seq, next: Seq) {
        let sum = |state| -> u32 {
            let in_state = self.records.iter().filter(|record| record.state == state);
            in_state.map(|record| record.length).sum()
        };
        assert_eq!(self.in_flight, sum(RecordState::InFlight));
        assert_eq!(self.lost, sum(RecordState::Lost));
        assert_eq!(self.sacked, sum(RecordState::Sacked));
        let end = self.records.iter().fold(una, |at, record| {
            assert_eq!(record.seq, at);
            assert!(record.length > 0);
            if at.is_before(self.settled) {
                let is_settled = record.state != RecordState::InFlight || record.transmissions > 1;
                assert!(is_settled, "{record:?} before {:?}", self.settled);
            }
            assert!(record.state != RecordState::Lost || self.lost_from.is_at_or_before(at));
            record.end()
        });
        assert_eq!(end, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::send::ClockUnit;
    use crate::tcp::send::delivery::Facts;

    #[test]
    fn a_block_counts_though_an_earlier_one_had_its_numbers_before_they_wrapped() {
        let facts = Facts {
            arrived: Instant::ORIGIN,
            least_rtt: Default::default(),
            echo: None,
            clock: ClockUnit::default(),
            forward: Seq(0),
            recovery_point: Seq(0),
        };
        let mut board = Scoreboard::new(Seq(0), true);
        let mut next = Seq(0);
        // Data is always in flight.
        for round in 0..9 {
            let mut delivery = Delivery::new(facts);
            for length in [1000, (1 << 29) - 1000] {
                board.push(Record {
                    seq: next,
                    length,
                    sent: Instant::ORIGIN,
                    snapshot: Snapshot::default(),
                    state: RecordState::InFlight,
                    transmissions: 1,
                    has_fin: false,
                });
                next += length;
            }
            let una = next - (1 << 29);
            board.acknowledge(una, &mut delivery);
            // The numbers of the first round come again in the last one.
            if round % 8 == 0 {
                let block = SackBlock {
                    start: una + 1000,
                    end: next,
                };
                board.apply(&[block], una, next, &mut delivery);
                assert_eq!(board.sacked(), (1 << 29) - 1000);
            }
            board.check(una, next);
        }
    }
}
