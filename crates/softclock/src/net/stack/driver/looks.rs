//! The driver's part in looks: other threads take the frames that they receive before this one judges a timeout, and
//! this one does so for them.
//!
//! Looks are numbered for all threads of the stack ([`Shared::ask_for_look`]). A driver begins the last one at the
//! start of a turn, and reads its devices even if the poller has reported nothing. It has made the look when they were
//! empty, or must have given all that they had when it began.

use std::cell::Cell;
use std::time::Duration;

use softclock_core::{Clock, Instant};

use super::Driver;
use super::backlog::Backlog;
use crate::net::stack::lane::LaneEnd;
use crate::net::stack::shared::Shared;

/// The look of this thread for others, and that of others for this one.
#[derive(Default)]
pub(super) struct Looks {
    /// The last look that this thread has begun.
    begun: Cell<u32>,
    /// The frames that are left to take for it.
    backlog: Backlog,
    /// The look of others that this thread waits for, and until when at most.
    awaited: Cell<Option<(u32, Instant)>>,
}

impl Looks {
    /// The end of the wait for others, if this thread waits.
    pub(super) fn end_of_wait(&self) -> Option<Instant> {
        self.awaited.get().map(|(_, until)| until)
    }
}

impl Driver {
    /// Asks the other threads that receive from the interface for a look, if there are any.
    pub(super) fn ask_others(&self) {
        let group = self.group();
        let look = group.and_then(|group| group.ask_for_look(self.number()));
        let until = self.interface.runtime().clock.now() + MOST_WAIT;
        self.looks.awaited.set(look.map(|look| (look, until)));
    }

    /// Whether the others have made the look, or the wait for them is over. Then the driver begins to take the frames
    /// that they have handed over. Until then, the look and the end of the wait wake it.
    pub(super) fn have_others_looked(&self) -> bool {
        let (Some((look, until)), Some(group)) = (self.looks.awaited.get(), self.group()) else {
            return true;
        };
        let is_over = self.interface.runtime().clock.now() >= until;
        if !group.lanes().has_waited(self.number(), look, is_over) {
            return false;
        }
        self.looks.awaited.set(None);
        self.backlog.begin();
        self.wake();
        true
    }

    /// Begins the last look that was asked for, unless an earlier one goes on: this turn reads the devices.
    pub(super) fn begin_look(&self, group: &Shared) {
        let Looks { begun, backlog, .. } = &self.looks;
        let last = group.last_look();
        if backlog.is_taken() && begun.replace(last) != last {
            backlog.begin();
        }
    }

    /// Whether the frames that came before timeouts, of this thread or others, are taken. Until then each turn looks.
    pub(super) fn is_caught_up(&self) -> bool {
        self.backlog.is_taken() && self.looks.backlog.is_taken()
    }

    /// Records the end of a driver's turn, in which the frames of other threads were handed over. `is_empty`: the turn
    /// left no work.
    pub(super) fn on_turn(&self, is_empty: bool) {
        self.backlog.on_turn(is_empty);
        let Some(group) = self.group() else {
            return;
        };
        let Looks { begun, backlog, .. } = &self.looks;
        if !backlog.is_taken() {
            backlog.on_turn(is_empty);
            if backlog.is_taken() {
                group.on_look(self.number(), begun.get());
            }
        }
        // Asked for after this turn began, or during an earlier look.
        if backlog.is_taken() && group.last_look() != begun.get() {
            self.wake();
        }
    }

    /// The number of this thread's stack.
    fn number(&self) -> u32 {
        self.interface.lane().map_or(0, LaneEnd::number)
    }
}

/// The longest wait for other threads: one that computes for longer would delay the timeouts of all.
const MOST_WAIT: Duration = Duration::from_millis(100);
