//! The pacing of a stream as its user has it: none, a pacer's, or one of its own.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use super::{Paced, Pacer};
use crate::net::carrier::TcpIo;

/// Which pacer a stream follows, and what paces it once that has begun: a stream that is never paced pays for neither
/// a buffer nor a clock.
///
/// Dropping it lets what was written be sent, unless closing is to reset the connection.
#[derive(Default)]
pub(crate) struct StreamPacing {
    pacer: RefCell<Option<Pacer>>,
    paced: OnceCell<Rc<Paced>>,
    /// Closing resets the connection.
    resets: Cell<bool>,
}

impl StreamPacing {
    /// `pacer` has the stream from the next piece on.
    pub(crate) fn set_pacer(&self, pacer: &Pacer) {
        if let Some(paced) = self.paced() {
            paced.set_pacer(pacer);
        }
        self.pacer.replace(Some(pacer.clone()));
    }

    /// Whether what is written now is paced.
    pub(crate) fn is_on(&self) -> bool {
        let pacer = self.pacer.borrow();
        pacer.as_ref().is_some_and(|pacer| pacer.pacing().is_some())
    }

    /// What was paced before, and perhaps is no longer.
    pub(crate) fn paced(&self) -> Option<&Rc<Paced>> {
        self.paced.get()
    }

    /// What takes the writes of the stream: nothing as long as none was to be paced.
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
