//! Ranges of bytes that arrived beyond a gap.

use alloc::vec::Vec;
use core::ops::Deref;

use super::pieces::Pieces;
use crate::tcp::payload::Payload;
use crate::tcp::segment::{SackBlock, SackBlocks};
use crate::tcp::seq::Seq;

/// The bytes beyond a gap: ranges in the order of their sequence numbers, which neither overlap nor touch. Bytes that
/// arrived first stay.
///
/// An insertion is a search in the ranges and a move of those behind it: O(number of ranges), which is bounded.
pub(super) struct Reassembly<B> {
    ranges: Vec<Range<B>>,
    /// The number of insertions.
    insertions: u64,
}

struct Range<B> {
    start: Seq,
    end: Seq,
    /// The insertion that touched the range last.
    touched: u64,
    pieces: Pieces<B>,
}

/// The limit of ranges is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooManyRanges;

impl<B: Deref<Target = [u8]>> Reassembly<B> {
    pub(super) const fn new() -> Self {
        Self {
            ranges: Vec::new(),
            insertions: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The memory of all payloads and ranges, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let pieces = self.ranges.iter().map(|range| range.pieces.memory_bytes());
        pieces.sum::<usize>() + self.ranges.capacity() * size_of::<Range<B>>()
    }

    /// The position behind the last byte.
    pub(super) fn end(&self) -> Option<Seq> {
        self.ranges.last().map(|range| range.end)
    }

    /// The first contiguous part of the bytes from `start` to `end` that has arrived already.
    pub(super) fn first_overlap(&self, start: Seq, end: Seq) -> Option<SackBlock> {
        let behind = |range: &Range<B>| range.end.is_at_or_before(start);
        let range = self.ranges.get(self.ranges.partition_point(behind))?;
        range.start.is_before(end).then(|| SackBlock {
            start: range.start.max(start),
            end: range.end.min(end),
        })
    }

    /// Inserts a payload that is not empty, except for bytes that have arrived already. It begins another range, unless
    /// it touches one, or is at `next`, the position behind the bytes in order.
    pub(super) fn insert(
        &mut self,
        start: Seq,
        payload: Payload<B>,
        next: Seq,
        most_ranges: usize,
    ) -> Result<(), TooManyRanges> {
        let end = start + payload.len() as u32;
        let is_left = |range: &Range<B>| range.end.is_before(start);
        let touches = |range: &Range<B>| range.start.is_at_or_before(end);
        let first = self.ranges.partition_point(is_left);
        let touched = self
            .ranges
            .iter()
            .skip(first)
            .take_while(|r| touches(r))
            .count();
        if touched == 0 && start != next && self.ranges.len() >= most_ranges {
            return Err(TooManyRanges);
        }
        // The touched ranges and the payload become one range. Bytes of the ranges arrived first, so the payload only
        // fills the gaps between them.
        self.insertions += 1;
        let mut merged = Range {
            start,
            end: start,
            touched: self.insertions,
            pieces: Pieces::new(),
        };
        let mut payload = Some(payload);
        for range in self.ranges.drain(first..first + touched) {
            if range.start.is_before(start) {
                merged.start = range.start;
            }
            merged.fill(
                &mut payload,
                start,
                range.start,
                end.is_at_or_before(range.end),
            );
            merged.end = range.end;
            merged.pieces.append(range.pieces);
        }
        merged.fill(&mut payload, start, end, true);
        self.ranges.insert(first, merged);
        Ok(())
    }

    /// Removes the first range if it begins at `next`; returns its bytes and its end.
    pub(super) fn take_from(&mut self, next: Seq) -> Option<(Pieces<B>, Seq)> {
        let is_in_order = self.ranges.first()?.start == next;
        is_in_order.then(|| {
            let range = self.ranges.remove(0);
            (range.pieces, range.end)
        })
    }

    /// Appends ranges to `blocks` until it is full, the one that was touched last first (RFC 2018, 4).
    pub(super) fn report(&self, blocks: &mut SackBlocks) {
        let mut newest: [Option<&Range<B>>; SackBlocks::MOST] = [None; SackBlocks::MOST];
        for range in &self.ranges {
            // An insertion sort of the few that fit: the others drop out at the end.
            let mut candidate = Some(range);
            for place in &mut newest {
                if candidate.map(|range| range.touched) > place.map(|range| range.touched) {
                    core::mem::swap(place, &mut candidate);
                }
            }
        }
        for range in newest.into_iter().flatten() {
            let (start, end) = (range.start, range.end);
            blocks.push(SackBlock { start, end });
        }
    }

    /// Checks the invariants on which the other methods rely.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check(&self, next: Seq) {
        let mut left = next;
        for range in &self.ranges {
            assert!(left.is_before(range.start) && range.start.is_before(range.end));
            let bytes = range.end.since(range.start) as usize;
            assert_eq!(range.pieces.count_bytes(), bytes);
            left = range.end;
        }
    }
}

impl<B: Deref<Target = [u8]>> Range<B> {
    /// Appends the bytes of a payload, which begins at `start`, from the end of this range to `until`. The last part of
    /// a payload stays in its packet; others, between ranges that have arrived already, are copied.
    fn fill(&mut self, payload: &mut Option<Payload<B>>, start: Seq, until: Seq, is_last: bool) {
        if !self.end.is_before(until) {
            return;
        }
        let (from, to) = (self.end.since(start) as usize, until.since(start) as usize);
        let part = match is_last {
            true => payload.take().map(|mut payload| {
                payload.truncate(to);
                payload.advance(from);
                payload
            }),
            false => {
                let bytes = payload.as_ref().and_then(|payload| payload.get(from..to));
                bytes.map(Payload::copied)
            }
        };
        if let Some(part) = part {
            self.end += part.len() as u32;
            self.pieces.push(part);
        }
    }
}
