//! An entry in the runtime's table of sources: readiness, and the tasks that wait for it.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use softclock_core::{Instant, SourceId, TriggerState};
use softclock_linux::readiness::{Readiness, Token};

use crate::runtime::inner::Inner;
use crate::runtime::sources::{Direction, Sources};

/// A source of events, of any carrier. Dropping it removes the entry and the waiting tasks.
pub(crate) struct Registration {
    runtime: Rc<Inner>,
    id: SourceId,
}

impl Registration {
    /// Adds a source to the current runtime, in the state `initially`.
    ///
    /// # Errors
    /// Fails outside a runtime.
    pub(crate) fn new(initially: Readiness) -> io::Result<Self> {
        let runtime = Inner::current()?;
        let id = runtime.sources.borrow_mut().insert(initially);
        Ok(Self { runtime, id })
    }

    pub(crate) fn runtime(&self) -> &Rc<Inner> {
        &self.runtime
    }

    /// Returns the id for [posting](crate::runtime::sources::Sources::post) events to it.
    pub(crate) fn id(&self) -> SourceId {
        self.id
    }

    /// Returns the id as a token of the poller.
    pub(crate) fn token(&self) -> Token {
        Token(self.id.to_bits())
    }

    /// Waits until the source is ready and calls `call`, until the result is not [`io::ErrorKind::WouldBlock`].
    /// Passes a trigger state of the kind `state` after each call. `call` itself reports `WouldBlock` to the source.
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

    /// Ready when a call in this direction may succeed and the task may make one more. Otherwise `cx` is woken when
    /// it may.
    pub(crate) fn poll_ready(&self, cx: &Context<'_>, direction: Direction) -> Poll<()> {
        self.poll_known(self.await_ready(cx, direction), cx)
    }

    /// Returns whether a call in this direction may succeed. Otherwise `cx` is woken when it may. Unlike
    /// [`poll_ready`](Self::poll_ready), this charges nothing to the task.
    pub(crate) fn await_ready(&self, cx: &Context<'_>, direction: Direction) -> bool {
        self.wait(|sources, now, excess| sources.poll_ready(self.id, direction, cx, now, excess))
    }

    /// Calls `f`, which may add the task to those that wait, and wakes those that must then look again.
    fn wait(&self, f: impl FnOnce(&mut Sources, Instant, &mut Vec<Waker>) -> bool) -> bool {
        let mut excess = Vec::new();
        let now = self.runtime.timers.borrow().last_check();
        let holds = f(&mut self.runtime.sources.borrow_mut(), now, &mut excess);
        // After the borrow has ended, as this may run code of the user.
        excess.into_iter().for_each(Waker::wake);
        holds
    }

    /// Ready when the connection is known to be lost. Until then `cx` is woken by the loss and by data to read.
    pub(crate) fn poll_lost(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll_condition(cx, Readiness::WRITE_CLOSED | Readiness::ERROR)
    }

    /// Like [`poll_lost`](Self::poll_lost), and also ready when the peer is known to have ended its direction.
    pub(crate) fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        let ended = Readiness::READ_CLOSED | Readiness::WRITE_CLOSED | Readiness::ERROR;
        self.poll_condition(cx, ended)
    }

    fn poll_condition(&self, cx: &Context<'_>, conditions: Readiness) -> Poll<()> {
        let holds = self.wait(|sources, now, excess| {
            sources.poll_condition(self.id, conditions, cx, now, excess)
        });
        self.poll_known(holds, cx)
    }

    /// Returns whether a condition is known to hold.
    pub(crate) fn has(&self, condition: Readiness) -> bool {
        self.runtime.sources.borrow().is_known(self.id, condition)
    }

    /// Ready if `holds`, charging a call to the task's allowance, since this needed none.
    fn poll_known(&self, holds: bool, cx: &Context<'_>) -> Poll<()> {
        match holds {
            true => self.runtime.poll_allowance(cx),
            false => Poll::Pending,
        }
    }

    /// Removes the waiting tasks in this direction, so that they are not woken until they poll again.
    pub(crate) fn forget_waiters(&self, direction: Direction) {
        let waiters = self.runtime.sources.borrow_mut().forget(self.id, direction);
        drop(waiters);
    }

    /// Returns whether a pending call in this direction waits only for the task's next turn.
    pub(crate) fn is_ready(&self, direction: Direction) -> bool {
        let sources = self.runtime.sources.borrow();
        sources.is_ready(self.id, direction)
    }

    /// Records that a call in this direction would have blocked.
    pub(crate) fn on_would_block(&self, direction: Direction) {
        let mut sources = self.runtime.sources.borrow_mut();
        sources.on_would_block(self.id, direction);
    }

    /// Records that a call in this direction transferred less than requested, so that the next one would block.
    pub(crate) fn on_short(&self, direction: Direction) {
        let mut sources = self.runtime.sources.borrow_mut();
        sources.on_short(self.id, direction);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Dropped after the borrow has ended, since dropping the last waker of a task drops the task.
        let waiters = self.runtime.sources.borrow_mut().remove(self.id);
        drop(waiters);
    }
}
