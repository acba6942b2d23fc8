//! The state of a paced stream: its parameters, its pending data, and the event that it waits for.

use std::io;
use std::task::Waker;
use std::time::Duration;

use softclock_core::pacing::RateClock;
use softclock_core::{Instant, TimerKey};

use super::buffer::Buffer;
use super::{MOST_BYTES, PacedBy, Pacer, Pacing, TICK};

#[derive(Debug)]
pub(super) struct State {
    pub(super) pacer: Pacer,
    /// The pacer's parameters as of `version`.
    pub(super) pacing: Option<Pacing>,
    pub(super) version: Option<u32>,
    /// The time that `piece` covers.
    pub(super) turn: Duration,
    pub(super) clock: RateClock,
    pub(super) piece: usize,
    pub(super) room: usize,
    pub(super) pending: Buffer,
    pub(super) waits: Waits,
    /// The time that the total rate has reserved for the next piece.
    pub(super) reserved: Option<Instant>,
    /// The pacer's total rate as of this version.
    pub(super) total_version: u32,
    /// Tasks that wait for room or for all data to be sent.
    pub(super) writers: Vec<Waker>,
    /// Time at which the train ends unless its writer, which has been woken, writes again before.
    pub(super) ends_at: Option<Instant>,
    /// Whether to end the direction of writing when all data is sent.
    pub(super) end: bool,
    pub(super) error: Option<io::Error>,
}

/// The condition that the next piece waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    Nothing,
    Event(TimerKey),
    /// The place among the streams that the runtime keeps.
    Release(usize),
    Kernel,
}

impl State {
    pub(super) fn new(pacer: Pacer) -> Self {
        Self {
            pacer,
            pacing: None,
            version: None,
            turn: Duration::ZERO,
            clock: RateClock::new(Duration::ZERO, Duration::ZERO),
            piece: 0,
            room: 0,
            pending: Buffer::default(),
            waits: Waits::Nothing,
            reserved: None,
            total_version: 0,
            writers: Vec::new(),
            ends_at: None,
            end: false,
            error: None,
        }
    }

    pub(super) fn is_clocked(&self) -> bool {
        let by = self.pacing.map(|pacing| pacing.by);
        by == Some(PacedBy::SoftEvents)
    }

    /// Returns when the next piece may be sent, or `None` if it may be sent now.
    pub(super) fn may_send(&mut self, now: Instant) -> Option<Instant> {
        let own = self.clock.next_send(now);
        if own > now {
            return Some(own);
        }
        // The size of the next write is not known yet: reserve the time of a whole piece.
        let bytes = match self.pending.is_empty() {
            true => self.piece,
            false => self.pending.len().min(self.piece),
        };
        let reserve = || self.pacer.reserve(now, bytes);
        let reserved = *self.reserved.get_or_insert_with(reserve);
        // The total rate may change meanwhile.
        (reserved > now).then(|| reserved.min(now + LOOK_AT_TOTAL))
    }

    /// Returns the bytes to send together once a piece may be sent: one piece, or as many as are due and the total
    /// rate allows.
    pub(super) fn due(&self, now: Instant) -> usize {
        // Pieces that events cannot clock are sent one after the other anyway.
        if !self.is_clocked() || self.clock.target() < TICK {
            return self.piece;
        }
        let pieces = usize::try_from(self.clock.due(now)).unwrap_or(usize::MAX);
        let due = self.piece.saturating_mul(pieces).min(MOST_BYTES);
        let due = match self.pending.is_empty() {
            true => due,
            false => due.min(self.pending.len()),
        };
        // Each further piece needs the agreement of the total rate.
        let mut together = self.piece;
        while together < due && self.pacer.reserve_now(now, self.piece.min(due - together)) {
            together += self.piece.min(due - together);
        }
        together
    }

    /// Applies a new size of pieces, or parameters that replace `before`.
    pub(super) fn set_piece(&mut self, before: Option<Pacing>, pacing: &Pacing, piece: usize) {
        pacing.set_clock(&mut self.clock, before, self.piece, piece);
        self.piece = piece;
        self.room = pacing.buffer(piece);
    }

    pub(super) fn add_writer(&mut self, waker: &Waker) {
        if !self.writers.iter().any(|writer| writer.will_wake(waker)) {
            self.writers.push(waker.clone());
        }
    }
}

/// The longest wait for the total rate without a look whether it has changed.
const LOOK_AT_TOTAL: Duration = Duration::from_millis(100);
