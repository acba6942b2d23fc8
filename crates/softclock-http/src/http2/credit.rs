//! What the client of a connection may still send for what it gets, for all parts of the connection that see either.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;

use super::meter::Meter;
use crate::carrier::Peer;
use crate::connection::ConnectionOptions;
use crate::limit::Limit;

/// The credit of one connection.
pub(super) struct Credit {
    peer: Peer,
    meter: RefCell<Meter>,
    fields: usize,
    /// The limit that was reached, for which the connection ends.
    overdrawn: Cell<Option<Limit>>,
}

impl Credit {
    pub(super) fn new(peer: Peer, options: &ConnectionOptions) -> Rc<Self> {
        let fields = options.head.fields;
        let meter = Meter::new(options.control_frames, fields, softclock::now());
        Rc::new(Self {
            peer,
            meter: RefCell::new(meter),
            fields,
            overdrawn: Cell::new(None),
        })
    }

    /// A request with so many fields has come on this stream. One with too many is refused, which costs as much as reading them did.
    pub(super) fn on_request(&self, stream: u32, fields: usize) {
        let mut meter = self.meter.borrow_mut();
        meter.on_request(stream);
        if fields > self.fields {
            meter.on_refused(fields);
        }
    }

    /// Weighs what has come; false if it is not to be looked at, because the credit does not cover it.
    pub(super) fn covers(&self, received: &[u8]) -> bool {
        let weighed = (self.meter.borrow_mut()).on_received(received, softclock::now());
        self.overdrawn.set(weighed.err());
        weighed.is_ok()
    }

    /// The first `written` bytes of `buffers` were sent.
    pub(super) fn on_sent(&self, written: usize, buffers: &[IoSlice<'_>]) {
        let mut meter = self.meter.borrow_mut();
        let mut left = written;
        for buffer in buffers {
            let now = buffer.len().min(left);
            for _ in 0..meter.on_sent(&buffer[..now]) {
                Limit::RequestHead.reached(self.peer, "answered 431");
            }
            left -= now;
        }
    }

    /// The limit for which the connection is to end, if there is one.
    pub(super) fn overdrawn(&self) -> Option<Limit> {
        self.overdrawn.get()
    }
}
