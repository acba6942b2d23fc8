//! Trains of datagrams: batches that the kernel segments, clocked by soft events.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use softclock_core::pacing::RateClock;
use softclock_core::{Clock, Instant};
use softclock_linux::socket::udp::MOST_SEGMENTS;

use super::{Estimator, Pacing, transmitted};
use crate::runtime::inner::Inner;

/// The pacing of a socket's trains.
pub(crate) struct DatagramPacing {
    pacing: Cell<Option<Pacing>>,
    clock: RefCell<RateClock>,
    /// The pacing and the bytes per batch for which the clock is set.
    clocked: Cell<(Option<Pacing>, usize)>,
    /// Whether the kernel segments batches, as far as is known.
    cuts: Cell<bool>,
}

/// A train that is being sent.
pub(crate) struct Train<'a>(&'a DatagramPacing);

impl Drop for Train<'_> {
    fn drop(&mut self) {
        self.0.clock.borrow_mut().end();
    }
}

/// The datagrams of a train.
#[derive(Clone, Copy)]
pub(crate) struct TrainShape {
    pub(crate) segment_bytes: usize,
    /// Whether they may be joined on the path of this train.
    pub(crate) is_joined: bool,
}

impl DatagramPacing {
    pub(crate) fn new() -> Self {
        Self {
            pacing: Cell::new(None),
            clock: RefCell::new(RateClock::new(Duration::ZERO, Duration::ZERO)),
            clocked: Cell::new((None, 0)),
            cuts: Cell::new(true),
        }
    }

    pub(crate) fn set(&self, pacing: Option<Pacing>) {
        self.pacing.set(pacing);
    }

    /// Records that the kernel does not segment batches, so that datagrams are sent one by one.
    pub(crate) fn on_uncut(&self) {
        self.cuts.set(false);
    }

    /// Whether datagrams may be joined for the kernel to segment them. Cleared once it cannot.
    pub(crate) const fn joins(&self) -> &Cell<bool> {
        &self.cuts
    }

    /// Returns the bytes of the next batch, and the time to send it.
    pub(crate) fn next_batch(&self, runtime: &Inner, shape: TrainShape) -> (usize, Instant) {
        let now = runtime.clock.now();
        let Some(pacing) = self.pacing.get() else {
            self.clocked.set((None, self.clocked.get().1));
            return (self.whole_segments(MOST_BATCH, shape), now);
        };
        let piece = pacing.piece(Estimator::of(runtime).trigger_interval(runtime, now));
        let batch = self.whole_segments(piece, shape);
        let mut clock = self.clock.borrow_mut();
        let (before, former) = self.clocked.replace((Some(pacing), batch));
        // Setting the clock takes divisions, and the batch seldom changes.
        if (before, former) != (Some(pacing), batch) {
            pacing.set_clock(&mut clock, before, former, batch);
        }
        (batch, clock.next_send(now))
    }

    /// Returns the bytes to send once a batch is due: more than the batch if the train is late by more.
    pub(crate) fn due(&self, runtime: &Inner, batch: usize, shape: TrainShape) -> usize {
        let now = runtime.clock.now();
        let batches = match self.pacing.get() {
            Some(_) => self.clock.borrow().due(now),
            None => 1,
        };
        let batches = usize::try_from(batches).unwrap_or(usize::MAX);
        let due = batch.saturating_mul(batches).min(MOST_BATCH);
        self.whole_segments(due, shape).max(batch)
    }

    pub(crate) fn on_sent(&self, runtime: &Inner, sent: usize, batch: usize) {
        let mut clock = self.clock.borrow_mut();
        runtime.pacing.on_piece(sent, !clock.is_in_train());
        let (pacing, now) = (self.pacing.get(), runtime.clock.now());
        let forgotten = transmitted(&mut clock, pacing, now, [sent, batch]);
        runtime.pacing.on_forgotten(forgotten);
    }

    /// Begins to send a train, which ends when the guard is dropped: its data is sent, or its sender has given up.
    pub(crate) fn train(&self) -> Train<'_> {
        Train(self)
    }

    fn whole_segments(&self, bytes: usize, shape: TrainShape) -> usize {
        let segment = shape.segment_bytes;
        let most = match self.cuts.get() && shape.is_joined {
            true => (MOST_BATCH / segment).clamp(1, MOST_SEGMENTS),
            false => 1,
        };
        (bytes / segment).clamp(1, most) * segment
    }
}

/// The payload limit of an IPv4 datagram, which also limits a batch.
const MOST_BATCH: usize = 65_507;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_whole_segments() {
        let pacing = DatagramPacing::new();
        let batch = |limit, segment_bytes, is_joined| {
            let shape = TrainShape {
                segment_bytes,
                is_joined,
            };
            pacing.whole_segments(limit, shape)
        };
        assert_eq!(batch(5_000, 1_472, true), 3 * 1_472);
        assert_eq!(batch(5_000, 1_472, false), 1_472);
        assert_eq!(batch(100, 1_472, true), 1_472);
        assert_eq!(batch(MOST_BATCH, 1_472, true), 44 * 1_472);
        assert_eq!(batch(MOST_BATCH, 100, true), 64 * 100);
        pacing.on_uncut();
        assert_eq!(batch(5_000, 1_472, true), 1_472);
    }
}
