//! Turns the states that `poll` and `select` report into edges, as the contract requires.
//!
//! A condition that was reported is disarmed: the mechanism does not ask the kernel for it until the descriptor's owner
//! finds that it no longer holds ([`rearm`](super::Poller::rearm)). From then on the kernel is asked for it as a state,
//! so a change in the meantime is not lost.

use super::{Readiness, Token};

/// A descriptor with the conditions that are to be reported.
#[derive(Debug)]
pub(super) struct Armed {
    pub(super) token: Token,
    interest: Readiness,
    conditions: Readiness,
}

impl Armed {
    /// Creates a descriptor for which all conditions of `interest` are to be reported.
    pub(super) fn new(token: Token, interest: Readiness) -> Self {
        Self {
            token,
            interest,
            conditions: interest,
        }
    }

    /// The conditions that are to be reported.
    pub(super) fn conditions(&self) -> Readiness {
        self.conditions
    }

    /// Makes these conditions reportable again, as far as they are of interest: the owner has found that they no longer
    /// hold.
    pub(super) fn rearm(&mut self, readiness: Readiness) {
        let mut again = readiness;
        // A reader that found the end of the data has also seen the end of the stream and urgent data, if any.
        if readiness.intersects(Readiness::READABLE) {
            again |= Readiness::READ_CLOSED | Readiness::PRIORITY;
        }
        self.conditions |= again & self.interest;
    }

    /// Disarms these conditions, since they have been reported.
    pub(super) fn on_reported(&mut self, readiness: Readiness) {
        self.conditions = self.conditions & !readiness;
        // The kernel reports these two in any case while it is asked for any condition, so all have to be disarmed. The
        // two concern both directions, so the owner will find the end of both and rearm them.
        if readiness.intersects(Readiness::ERROR | Readiness::WRITE_CLOSED) {
            self.conditions = Readiness::NONE;
        }
    }
}
