//! The [`Meter`] of one connection, shared by its socket, which sees the bytes, and its task, which sees the requests.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;

use softclock::Instant;

use super::meter::Meter;
use crate::client::options::ConnectionOptions;
use crate::observe::limit::Limit;

/// The credit of one connection.
pub(super) struct Credit {
    meter: RefCell<Meter>,
    fields: usize,
    /// The number of heads that h2 has refused since the last call of [`take_refused`](Self::take_refused).
    refused: Cell<usize>,
    /// The limit that was exceeded; the connection ends because of it.
    overdrawn: Cell<Option<Limit>>,
    /// The time at which the window of the connection was last opened after it had been used up.
    opened: Cell<Option<Instant>>,
}

impl Credit {
    pub(super) fn new(options: &ConnectionOptions) -> Rc<Self> {
        let fields = options.head.fields;
        let meter = Meter::new(options.control_frames, fields, softclock::now());
        Rc::new(Self {
            meter: RefCell::new(meter),
            fields,
            refused: Cell::new(0),
            overdrawn: Cell::new(None),
            opened: Cell::new(None),
        })
    }

    /// Records a request with this many `fields`. Charges for it if it will be refused because of them.
    pub(super) fn on_request(&self, stream: u32, fields: usize) {
        let mut meter = self.meter.borrow_mut();
        meter.on_request(stream);
        if fields > self.fields {
            meter.on_refused(fields);
        }
    }

    /// Charges for `received`. Returns false if the credit does not cover it; then h2 must not get these bytes, and
    /// [`overdrawn`](Self::overdrawn) says which limit was exceeded.
    pub(super) fn covers(&self, received: &[u8]) -> bool {
        let weighed = (self.meter.borrow_mut()).on_received(received, softclock::now());
        self.overdrawn.set(weighed.err());
        weighed.is_ok()
    }

    /// Gives credit for the first `written` bytes of `buffers`, which were sent.
    pub(super) fn on_sent(&self, written: usize, buffers: &[IoSlice<'_>]) {
        let mut meter = self.meter.borrow_mut();
        let was_used_up = meter.is_window_used_up();
        let mut left = written;
        for buffer in buffers {
            let now = buffer.len().min(left);
            let refused = meter.on_sent(&buffer[..now]);
            self.refused.set(self.refused.get() + refused);
            left -= now;
        }
        if was_used_up && !meter.is_window_used_up() {
            self.opened.set(Some(softclock::now()));
        }
    }

    /// Returns the number of heads that h2 has refused since the last call, and answered with 431.
    pub(super) fn take_refused(&self) -> usize {
        self.refused.take()
    }

    /// Returns the time until which the client could send no content, as the window of the connection was used up:
    /// `now` while it is; `None` if it never was.
    pub(super) fn held_back_until(&self, now: Instant) -> Option<Instant> {
        match self.meter.borrow().is_window_used_up() {
            true => Some(now),
            false => self.opened.get(),
        }
    }

    /// Returns the limit because of which the connection must end, if any.
    pub(super) fn overdrawn(&self) -> Option<Limit> {
        self.overdrawn.get()
    }
}
