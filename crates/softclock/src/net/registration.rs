//! A place in the runtime's table of sources: readiness, and the tasks that wait for it.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use softclock_core::{SourceId, TriggerState};
use softclock_linux::readiness::{Readiness, Token};

use crate::runtime::inner::Inner;
use crate::runtime::sources::Direction;

/// A source of events, whatever carries it. Dropping it gives its place back and forgets the tasks that wait.
pub(crate) struct Registration {
    runtime: Rc<Inner>,
    id: SourceId,
}

impl Registration {
    /// Adds a source to the current runtime that is `initially` ready so far.
    ///
    /// # Errors
    /// Outside a runtime.
    pub(crate) fn new(initially: Readiness) -> io::Result<Self> {
        let runtime = Inner::current()?;
        let id = runtime.sources.borrow_mut().insert(initially);
        Ok(Self { runtime, id })
    }

    pub(crate) fn runtime(&self) -> &Rc<Inner> {
        &self.runtime
    }

    /// The name by which events are [posted](Inner::post) to it.
    #[cfg(feature = "memory-net")]
    pub(crate) fn id(&self) -> SourceId {
        self.id
    }

    /// The same for the poller.
    pub(crate) fn token(&self) -> Token {
        Token(self.id.to_bits())
    }

    /// Makes `call` when the source is ready for it, until it is not interrupted and finds something; then passes a
    /// trigger state of the kind `state`. `call` reports [`io::ErrorKind::WouldBlock`] to the source itself.
    pub(crate) fn poll_call<R>(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        state: TriggerState,
        mut call: impl FnMut() -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            ready!(self.poll_ready(cx, direction));
            let result = call();
            self.runtime.trigger(state);
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Ready when a call in this direction may succeed, and the task may make one more; until then `cx` is woken by
    /// that.
    pub(crate) fn poll_ready(&self, cx: &Context<'_>, direction: Direction) -> Poll<()> {
        let mut sources = self.runtime.sources.borrow_mut();
        let is_ready = sources.poll_ready(self.id, direction, cx);
        drop(sources);
        self.poll_known(is_ready, cx)
    }

    /// Ready when the connection is known to be lost; until then `cx` is woken by that, and by what there is to read.
    pub(crate) fn poll_lost(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll_condition(cx, Readiness::WRITE_CLOSED | Readiness::ERROR)
    }

    /// As [`poll_lost`](Self::poll_lost), and ready too when the peer is known to send no more.
    pub(crate) fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        let ended = Readiness::READ_CLOSED | Readiness::WRITE_CLOSED | Readiness::ERROR;
        self.poll_condition(cx, ended)
    }

    fn poll_condition(&self, cx: &Context<'_>, conditions: Readiness) -> Poll<()> {
        let mut sources = self.runtime.sources.borrow_mut();
        let holds = sources.poll_condition(self.id, conditions, cx);
        drop(sources);
        self.poll_known(holds, cx)
    }

    /// Ready if `holds`, which is known without a call.
    fn poll_known(&self, holds: bool, cx: &Context<'_>) -> Poll<()> {
        match holds {
            true => self.runtime.poll_allowance(cx),
            false => Poll::Pending,
        }
    }

    /// Wakes none of the tasks that wait in this direction until they ask again.
    pub(crate) fn forget_waiters(&self, direction: Direction) {
        let waiters = self.runtime.sources.borrow_mut().forget(self.id, direction);
        drop(waiters);
    }

    /// Whether a call in this direction that is pending waits for the task's next turn only.
    pub(crate) fn is_ready(&self, direction: Direction) -> bool {
        let sources = self.runtime.sources.borrow();
        sources.is_ready(self.id, direction)
    }

    /// A call in this direction found nothing to do.
    pub(crate) fn on_would_block(&self, direction: Direction) {
        let mut sources = self.runtime.sources.borrow_mut();
        sources.on_would_block(self.id, direction);
    }

    /// A call in this direction took or gave less than it offered, so that the next would find nothing to do.
    pub(crate) fn on_short(&self, direction: Direction) {
        let mut sources = self.runtime.sources.borrow_mut();
        sources.on_short(self.id, direction);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Wakers are dropped outside the borrow: the last of a task drops the task.
        let waiters = self.runtime.sources.borrow_mut().remove(self.id);
        drop(waiters);
    }
}
