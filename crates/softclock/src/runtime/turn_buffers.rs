//! Memory for the events of a turn.

use std::cell::Cell;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::task::Waker;

use softclock_linux::readiness::ReadyEvent;

/// The events that a turn finds, and the wakers of the tasks that wait for them. Both are empty between turns, and kept
/// for their memory, unless the code of the user has panicked: then they hold what was not passed on.
#[derive(Default)]
pub(super) struct TurnBuffers {
    pub(super) events: Vec<ReadyEvent>,
    pub(super) wakers: Vec<Waker>,
}

/// Buffers that go back to their place when this is dropped, also by a panic.
pub(super) struct TakenBuffers<'a> {
    place: &'a Cell<TurnBuffers>,
    buffers: TurnBuffers,
}

impl<'a> TakenBuffers<'a> {
    pub(super) fn of(place: &'a Cell<TurnBuffers>) -> Self {
        let buffers = place.take();
        Self { place, buffers }
    }
}

impl Deref for TakenBuffers<'_> {
    type Target = TurnBuffers;

    fn deref(&self) -> &TurnBuffers {
        &self.buffers
    }
}

impl DerefMut for TakenBuffers<'_> {
    fn deref_mut(&mut self) -> &mut TurnBuffers {
        &mut self.buffers
    }
}

impl Drop for TakenBuffers<'_> {
    fn drop(&mut self) {
        self.place.set(mem::take(&mut self.buffers));
    }
}
