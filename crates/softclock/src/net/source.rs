//! A kernel descriptor among the runtime's sources.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use softclock_core::{SourceId, TriggerState};
use softclock_linux::events::{Readiness, Token};

use crate::runtime::inner::Inner;
use crate::runtime::sources::Direction;

/// A nonblocking descriptor that the runtime watches. Closing it ends the watch.
pub(crate) struct Source<F: AsFd = OwnedFd> {
    runtime: Rc<Inner>,
    id: SourceId,
    fd: F,
    watch: Watch,
}

/// What the poller knows of a source.
#[derive(Clone, Copy)]
enum Watch {
    /// Nothing yet.
    None,
    /// A descriptor whose open file nobody else has.
    Own,
    /// Others may have the same open file, so that closing this descriptor does not end the watch.
    Duplicated,
}

impl<F: AsFd> Source<F> {
    pub(crate) fn new(fd: F) -> io::Result<Self> {
        let runtime = Inner::current()?;
        let id = runtime.sources.borrow_mut().insert();
        // From here on, an error drops the source and so removes it again.
        let mut source = Self {
            runtime,
            id,
            fd,
            watch: Watch::None,
        };
        source
            .runtime
            .poller
            .borrow_mut()
            .add(source.fd.as_fd(), Token(id.to_bits()))?;
        source.watch = Watch::Own;
        source.runtime.trigger(TriggerState::SystemCall);
        Ok(source)
    }

    /// As [`new`](Self::new), for an open file that others may have too.
    pub(crate) fn duplicated(fd: F) -> io::Result<Self> {
        let mut source = Self::new(fd)?;
        source.watch = Watch::Duplicated;
        Ok(source)
    }

    pub(crate) fn descriptor(&self) -> &F {
        &self.fd
    }

    pub(crate) fn runtime(&self) -> &Rc<Inner> {
        &self.runtime
    }

    /// Makes `call` when the descriptor is ready for it, as often as it is interrupted; then passes a trigger
    /// state of the kind `state`.
    pub(crate) fn poll_call<R>(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        state: TriggerState,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            let mut sources = self.runtime.sources.borrow_mut();
            if !sources.poll_ready(self.id, direction, cx) {
                return Poll::Pending;
            }
            drop(sources);
            ready!(self.runtime.poll_allowance(cx));
            match self.try_call(direction, state, &mut call) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
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

    /// Ready when a read may find something; until then `cx` is woken by that.
    pub(crate) fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        let mut sources = self.runtime.sources.borrow_mut();
        let is_ready = sources.poll_ready(self.id, Direction::Read, cx);
        drop(sources);
        self.poll_known(is_ready, cx)
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

    /// Wakes nobody who waits in this direction until he asks again.
    pub(crate) fn forget_waiters(&self, direction: Direction) {
        let waiters = self.runtime.sources.borrow_mut().forget(self.id, direction);
        drop(waiters);
    }

    /// Whether a call in this direction that is pending waits for the task's next turn only.
    pub(crate) fn is_ready(&self, direction: Direction) -> bool {
        let sources = self.runtime.sources.borrow();
        sources.is_ready(self.id, direction)
    }

    /// Makes `call` now, whether or not the descriptor is ready.
    pub(crate) fn try_call<R>(
        &self,
        direction: Direction,
        state: TriggerState,
        call: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        let result = self.quiet_call(direction, call);
        self.runtime.trigger(state);
        result
    }

    /// As [`try_call`](Self::try_call), without a trigger state: nothing else happens meanwhile.
    pub(crate) fn quiet_call<R>(
        &self,
        direction: Direction,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            let result = call(self.fd.as_fd());
            if let Err(error) = &result {
                match error.kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock => self.on_would_block(direction),
                    _ => {}
                }
            }
            return result;
        }
    }

    /// Tells how much of what it offered the last call took: less means that the next has to wait.
    pub(crate) fn on_transferred(&self, direction: Direction, bytes: usize, offered: usize) {
        self.runtime.take_bytes(bytes);
        if bytes < offered {
            self.runtime
                .sources
                .borrow_mut()
                .on_short(self.id, direction);
            self.rearm(direction);
        }
    }

    fn on_would_block(&self, direction: Direction) {
        self.runtime
            .sources
            .borrow_mut()
            .on_would_block(self.id, direction);
        self.rearm(direction);
    }

    /// The next readiness in this direction is to be an event.
    fn rearm(&self, direction: Direction) {
        let mut poller = self.runtime.poller.borrow_mut();
        poller.rearm(self.fd.as_fd(), direction.own());
    }

    /// Lends the runtime's buffer.
    pub(crate) fn with_buffer<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut buffer = self.runtime.buffer.take();
        buffer.resize(BUFFER_BYTES, 0);
        let result = f(&mut buffer);
        self.runtime.buffer.set(buffer);
        result
    }

    /// Makes a call that never waits, and passes a trigger state.
    pub(crate) fn call<R>(&self, call: impl FnOnce(BorrowedFd<'_>) -> R) -> R {
        let result = call(self.fd.as_fd());
        self.runtime.trigger(TriggerState::SystemCall);
        result
    }
}

/// As much as hyper reads at once by default, or a little more.
const BUFFER_BYTES: usize = 64 * 1024;

impl<F: AsFd> Drop for Source<F> {
    fn drop(&mut self) {
        let mut poller = self.runtime.poller.borrow_mut();
        // Nothing can be done about an error; a late event would find nobody.
        let _ = match self.watch {
            Watch::None => Ok(()),
            Watch::Own => poller.remove_closing(self.fd.as_fd()),
            Watch::Duplicated => poller.remove(self.fd.as_fd()),
        };
        drop(poller);
        // Wakers are dropped outside the borrow: the last of a task drops the task.
        let waiters = self.runtime.sources.borrow_mut().remove(self.id);
        drop(waiters);
    }
}
