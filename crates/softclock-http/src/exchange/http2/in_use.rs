//! Counts a stream as in use for as long as its request's body.

use std::rc::Rc;

use crate::client::by_address::StreamPermit;
use crate::exchange::session::Session;

/// A stream whose request has a body. Held by the task that sends the response and by the body, which may be read for
/// longer: an upstream may answer before the upload ends. Until both have dropped it, the connection is not idle, and
/// the stream counts for its client's address.
pub(super) struct StreamInUse {
    session: Rc<Session>,
    _permit: StreamPermit,
}

impl StreamInUse {
    pub(super) fn new(session: &Rc<Session>, permit: StreamPermit) -> Rc<Self> {
        session.on_begun();
        Rc::new(Self {
            session: Rc::clone(session),
            _permit: permit,
        })
    }
}

impl Drop for StreamInUse {
    fn drop(&mut self) {
        self.session.on_ended();
    }
}
