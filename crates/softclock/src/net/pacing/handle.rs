//! The pacing of a stream, as its owner sees it: none, that of a shared pacer, or that of the stream alone.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use super::{Paced, Pacer};
use crate::net::carrier::TcpIo;

/// The pacer that a stream follows, and its paced stream once pacing has begun. A stream that is never paced needs
/// neither a buffer nor a clock.
///
/// Dropping it lets the written data be sent, unless closing is to reset the connection.
#[derive(Default)]
pub(crate) struct StreamPacing {
    pacer: RefCell<Option<Pacer>>,
    paced: OnceCell<Rc<Paced>>,
    /// Whether closing resets the connection.
    resets: Cell<bool>,
}

impl StreamPacing {
    /// Lets `pacer` pace the stream from the next piece on.
    pub(crate) fn set_pacer(&self, pacer: &Pacer) {
        if let Some(paced) = self.paced() {
            paced.set_pacer(pacer);
        }
        self.pacer.replace(Some(pacer.clone()));
    }

    /// Returns whether writes are currently paced.
    pub(crate) fn is_on(&self) -> bool {
        let pacer = self.pacer.borrow();
        pacer.as_ref().is_some_and(|pacer| pacer.pacing().is_some())
    }

    /// Returns the paced stream, if writes were ever paced.
    pub(crate) fn paced(&self) -> Option<&Rc<Paced>> {
        self.paced.get()
    }

    /// Returns the paced stream that takes the writes, or `None` until writes are first paced.
    #[inline]
    pub(crate) fn writer(&self, io: &Rc<TcpIo>) -> Option<&Rc<Paced>> {
        self.paced.get().or_else(|| {
            let pacer = self.pacer.borrow();
            let pacer = pacer.as_ref().filter(|pacer| pacer.pacing().is_some())?;
            let begin = || Paced::new(Rc::clone(io), pacer);
            Some(self.paced.get_or_init(begin))
        })
    }

    pub(crate) fn set_resets(&self, resets: bool) {
        self.resets.set(resets);
    }
}

impl Drop for StreamPacing {
    fn drop(&mut self) {
        if let Some(paced) = self.paced.get() {
            paced.on_dropped(self.resets.get());
        }
    }
}
