//! The streams of a connection whose responses h2 has completely, but has not written.
//!
//! Mostly h2 writes the rest of a response as soon as the connection's task runs. But a client may have no room for it,
//! even though its windows had before (RFC 9113, section 6.9.2), and must not keep it in memory for as long as it likes.

use std::cell::RefCell;
use std::rc::Rc;

use h2::{Reason, SendStream};

use super::flow::{Flow, Piece};
use super::in_use::StreamInUse;
use crate::client::by_address::StreamPermit;

/// The streams that end.
#[derive(Default)]
pub(super) struct Endings(RefCell<Vec<Ending>>);

/// A stream that ends once h2 has written its response.
struct Ending {
    stream: SendStream<Piece>,
    flow: Flow,
    /// Count the stream until then.
    _counts: (Option<StreamPermit>, Option<Rc<StreamInUse>>),
}

impl Endings {
    /// Adds a stream, which counts as in use by `permit` and `in_use` until its end.
    pub(super) fn add(
        &self,
        (stream, flow): (SendStream<Piece>, Flow),
        permit: Option<StreamPermit>,
        in_use: Option<Rc<StreamInUse>>,
    ) {
        self.0.borrow_mut().push(Ending {
            stream,
            flow,
            _counts: (permit, in_use),
        });
    }

    /// Removes the streams that h2 has written or dropped, and resets those that are stalled. Call it when h2 has had
    /// its turn to write: the others wait for the client from then on. O(streams that end).
    pub(super) fn sweep(&self) {
        self.0.borrow_mut().retain_mut(|ending| {
            let (stream, flow) = (&mut ending.stream, &ending.flow);
            if flow.is_stalled() {
                stream.send_reset(Reason::CANCEL);
            }
            let is_over = flow.is_written() || flow.is_stalled();
            flow.set_waiting(!is_over);
            !is_over
        });
    }
}
