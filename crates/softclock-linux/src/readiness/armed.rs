//! How a mechanism that reports states keeps the contract's edges.
//!
//! A condition that was reported is not looked for until the descriptor's owner says that it found the end of it
//! ([`rearm`](super::Poller::rearm)). Then it is looked for as a state, so nothing that happened between is lost.

use super::{Readiness, Token};

/// A descriptor, and which of its conditions are to be reported.
#[derive(Debug)]
pub(super) struct Armed {
    pub(super) token: Token,
    interest: Readiness,
    conditions: Readiness,
}

impl Armed {
    /// All of `interest` is to be reported.
    pub(super) fn new(token: Token, interest: Readiness) -> Self {
        Self {
            token,
            interest,
            conditions: interest,
        }
    }

    /// What is to be reported.
    pub(super) fn conditions(&self) -> Readiness {
        self.conditions
    }

    /// The owner has found that these no longer hold.
    pub(super) fn rearm(&mut self, readiness: Readiness) {
        let mut again = readiness;
        if readiness.intersects(Readiness::READABLE) {
            again |= Readiness::READ_CLOSED | Readiness::PRIORITY;
        }
        self.conditions |= again & self.interest;
    }

    /// These were reported.
    pub(super) fn on_reported(&mut self, readiness: Readiness) {
        self.conditions = self.conditions & !readiness;
        // The kernel reports these two as long as the descriptor is looked at for anything; and as they concern both
        // directions, the owner is going to find the end of both.
        if readiness.intersects(Readiness::ERROR | Readiness::WRITE_CLOSED) {
            self.conditions = Readiness::NONE;
        }
    }
}
