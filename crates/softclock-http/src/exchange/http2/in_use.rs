//! Counts a stream as in use for as long as its request's body.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use softclock::Instant;

use super::credit::Credit;
use crate::client::by_address::StreamPermit;
use crate::client::request_body::BodyUse;
use crate::exchange::session::Session;

/// A stream whose request has a body. Held by the task that sends the response and by the body, which may be read for
/// longer: an upstream may answer before the upload ends. Until both have dropped it, the connection is not idle, and
/// the stream counts for its client's address.
pub(super) struct StreamInUse {
    /// Weak, as the session ends with its connection: it counts the connection for the client's address.
    session: Weak<Session>,
    /// Whether the body is read before it has arrived.
    is_awaited: Cell<bool>,
    credit: Rc<Credit>,
    _permit: StreamPermit,
}

impl StreamInUse {
    pub(super) fn new(
        session: &Rc<Session>,
        credit: &Rc<Credit>,
        permit: StreamPermit,
    ) -> Rc<Self> {
        session.on_begun();
        Rc::new(Self {
            session: Rc::downgrade(session),
            is_awaited: Cell::new(false),
            credit: Rc::clone(credit),
            _permit: permit,
        })
    }

    /// Returns whether the body is read before it has arrived.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited.get()
    }
}

impl BodyUse for StreamInUse {
    fn on_awaited(&self) {
        self.is_awaited.set(true);
    }

    fn held_back_until(&self, now: Instant) -> Option<Instant> {
        self.credit.held_back_until(now)
    }
}

impl Drop for StreamInUse {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.on_ended();
        }
    }
}
