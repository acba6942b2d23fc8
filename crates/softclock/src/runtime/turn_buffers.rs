//! Memory for the events of a turn.

use std::task::Waker;

use softclock_linux::readiness::ReadyEvent;

/// The events that a turn finds, and the wakers of the tasks that wait for them. Both are empty between turns, and kept
/// for their memory.
#[derive(Default)]
pub(super) struct TurnBuffers {
    pub(super) events: Vec<ReadyEvent>,
    pub(super) wakers: Vec<Waker>,
}
