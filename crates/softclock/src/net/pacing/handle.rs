//! A paced stream as its user has it.

use std::mem;
use std::rc::Rc;

use super::Paced;
use super::state::Waits;

/// Dropping it lets what was written be sent, unless closing is to reset the connection.
#[derive(Debug)]
pub(crate) struct PacedHandle(pub(crate) Rc<Paced>);

impl Drop for PacedHandle {
    fn drop(&mut self) {
        let stream = &self.0;
        stream.is_dropped.set(true);
        let mut state = stream.state.borrow_mut();
        let writers = mem::take(&mut state.writers);
        let mut event = None;
        if stream.resets.get() {
            stream.discard(&mut state);
            if let Waits::Event(key) = state.waits {
                stream.source.runtime().pacing.on_waited();
                event = stream.source.runtime().timers.borrow_mut().cancel(key);
            }
        }
        // Both may own what owns the stream.
        drop(state);
        drop((writers, event));
    }
}
