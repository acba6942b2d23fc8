//! A descriptor as one of the runtime's sources.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use softclock_core::TriggerState;
use softclock_linux::readiness::{Readiness, current_state};

use crate::net::registration::Registration;
use crate::runtime::inner::Inner;
use crate::runtime::sources::Direction;

/// A nonblocking descriptor that the runtime watches. Dropping it ends the watch and closes the descriptor.
pub(crate) struct Kernel<F: AsFd = OwnedFd> {
    registration: Registration,
    /// `None` only after [`into_descriptor`](Self::into_descriptor).
    fd: Option<F>,
    file: Cell<OpenFile>,
    interest: Cell<Interest>,
    room: Room,
    /// Whether it is a Unix stream, whose messages may carry descriptors.
    pub(super) has_messages: bool,
    /// Whether the last read of a Unix stream may have ended before the data did.
    pub(super) is_cut: Cell<bool>,
}

/// When the poller reports room to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    /// Never, unless [`Watched::set_interest`] says so.
    Unreported,
    /// From the first call on that finds none. For sockets that seldom wait for room, but would have an event of each
    /// datagram that has left.
    OnceMissed,
    Always,
}

/// Whether closing a descriptor ends the poller's watch of its open file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenFile {
    /// It does: the open file has no other descriptor.
    Own,
    /// It may not: the open file may have other descriptors.
    Duplicated,
}

/// The conditions of a descriptor that the poller reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    Nothing,
    /// Data to read. For a device: room to write would be reported after each of its transmissions.
    Reading,
    /// Data to read, and room to write.
    Both,
}

/// A watched descriptor of any type.
pub(crate) trait Watched {
    fn registration(&self) -> &Registration;

    /// Sets the conditions that the poller reports; does nothing if these are set already. A condition that is not set
    /// does not wake the thread. If it holds, it is reported when it is set again.
    ///
    /// # Errors
    /// Those of the poller, such as a lack of memory. After an error, no condition is reported.
    fn set_interest(&self, interest: Interest) -> io::Result<()>;
}

impl<F: AsFd> Watched for Kernel<F> {
    fn registration(&self) -> &Registration {
        &self.registration
    }

    fn set_interest(&self, interest: Interest) -> io::Result<()> {
        // If a call below fails, the next one adds the descriptor anew.
        let before = self.interest.replace(Interest::Nothing);
        if before == interest {
            self.interest.set(interest);
            return Ok(());
        }
        let mut poller = self.runtime().poller.borrow_mut();
        let (fd, token) = (self.borrowed(), self.registration.token());
        if before != Interest::Nothing {
            poller.remove(fd)?;
        }
        match interest {
            Interest::Nothing => {}
            Interest::Reading => poller.add_for_reading(fd, token)?,
            Interest::Both => poller.add(fd, token)?,
        }
        self.interest.set(interest);
        Ok(())
    }
}

impl<F: AsFd> Kernel<F> {
    /// Watches the only descriptor of a stream socket.
    pub(crate) fn new(fd: F) -> io::Result<Self> {
        Self::watched(fd, OpenFile::Own, Room::Always)
    }

    /// Like [`new`](Self::new), for an open file that may have other descriptors.
    pub(crate) fn duplicated(fd: F) -> io::Result<Self> {
        Self::watched(fd, OpenFile::Duplicated, Room::Always)
    }

    /// Like [`duplicated`](Self::duplicated), for a device that is written to without waiting.
    pub(crate) fn for_reading(fd: F) -> io::Result<Self> {
        Self::watched(fd, OpenFile::Duplicated, Room::Unreported)
    }

    /// Like [`new`](Self::new), for a datagram socket.
    pub(crate) fn datagrams(fd: F) -> io::Result<Self> {
        Self::watched(fd, OpenFile::Own, Room::OnceMissed)
    }

    /// Like [`duplicated`](Self::duplicated), for a datagram socket or a descriptor of unknown kind.
    pub(crate) fn duplicated_lazily(fd: F) -> io::Result<Self> {
        Self::watched(fd, OpenFile::Duplicated, Room::OnceMissed)
    }

    /// Watches a descriptor, which counts as ready until a call would block.
    fn watched(fd: F, file: OpenFile, room: Room) -> io::Result<Self> {
        let kernel = Self {
            registration: Registration::new(Readiness::READABLE | Readiness::WRITABLE)?,
            fd: Some(fd),
            file: Cell::new(file),
            interest: Cell::new(Interest::Nothing),
            room,
            has_messages: false,
            is_cut: Cell::new(false),
        };
        kernel.set_interest(match room {
            Room::Always => Interest::Both,
            Room::OnceMissed | Room::Unreported => Interest::Reading,
        })?;
        kernel.runtime().trigger(TriggerState::SystemCall);
        Ok(kernel)
    }

    /// Makes it a Unix stream: a read may end before the data does.
    pub(crate) fn with_messages(mut self) -> Self {
        self.has_messages = true;
        self
    }

    pub(crate) fn descriptor(&self) -> &F {
        self.fd.as_ref().expect("only into_descriptor takes it")
    }

    /// Returns the descriptor to code that may duplicate it.
    pub(crate) fn lend(&self) -> BorrowedFd<'_> {
        self.file.set(OpenFile::Duplicated);
        self.borrowed()
    }

    /// Ends the watch and returns the descriptor, which stays open.
    pub(crate) fn into_descriptor(mut self) -> F {
        self.file.set(OpenFile::Duplicated);
        self.end_watch();
        self.fd.take().expect("only this function takes it")
    }

    fn borrowed(&self) -> BorrowedFd<'_> {
        self.descriptor().as_fd()
    }

    fn end_watch(&self) {
        if self.interest.replace(Interest::Nothing) == Interest::Nothing {
            return;
        }
        let mut poller = self.runtime().poller.borrow_mut();
        // An error cannot be handled here, and a late event would find no source.
        let _ = match self.file.get() {
            OpenFile::Own => poller.remove_closing(self.borrowed()),
            OpenFile::Duplicated => poller.remove(self.borrowed()),
        };
    }

    pub(crate) fn registration(&self) -> &Registration {
        &self.registration
    }

    pub(crate) fn runtime(&self) -> &Rc<Inner> {
        self.registration.runtime()
    }

    /// Waits until the descriptor is ready and makes `call`, repeating it while it is interrupted. Then passes a
    /// trigger state of the kind `state`.
    pub(crate) fn poll_call<R>(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        state: TriggerState,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.registration.poll_call(cx, direction, state, || {
            self.quiet_call(direction, &mut call)
        })
    }

    /// Makes `call` at once, whether or not the descriptor is ready, and passes a trigger state.
    pub(crate) fn try_call<R>(
        &self,
        direction: Direction,
        state: TriggerState,
        call: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        let result = self.quiet_call(direction, call);
        self.runtime().trigger(state);
        result
    }

    /// Like [`try_call`](Self::try_call), but passes no trigger state, for use within one.
    pub(crate) fn quiet_call<R>(
        &self,
        direction: Direction,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            let result = call(self.borrowed());
            if let Err(error) = &result {
                match error.kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock => self.on_would_block(direction)?,
                    _ => {}
                }
            }
            return result;
        }
    }

    /// Records how much of the offered bytes the last call transferred. After a partial transfer the next call has to
    /// wait.
    pub(crate) fn on_transferred(&self, direction: Direction, bytes: usize, offered: usize) {
        self.runtime().take_bytes(bytes);
        if bytes < offered {
            self.on_short_of_stream(direction);
        }
    }

    /// Like [`on_short`](Self::on_short), for a stream: a read may have ended before the data did.
    pub(crate) fn on_short_of_stream(&self, direction: Direction) {
        let may_have_more = || self.is_cut.get() || self.is_before_urgent_data();
        if direction == Direction::Write || !may_have_more() {
            self.on_short(direction);
        }
    }

    /// Whether a read of a TCP socket has ended before urgent data, with more behind it. A report of urgent data may be
    /// old, and io_uring reports it with all data, so only the kernel knows.
    fn is_before_urgent_data(&self) -> bool {
        let is_urgent = |state: Readiness| state.contains(Readiness::PRIORITY);
        self.registration.has(Readiness::PRIORITY)
            && current_state(self.borrowed()).map_or(true, is_urgent)
    }

    /// Records that the last call transferred less than requested, so that the next one has to wait.
    pub(crate) fn on_short(&self, direction: Direction) {
        // Without the report there would be no end of the wait: the next call finds out, and returns the error.
        if self.report_room(direction).is_ok() {
            self.registration.on_short(direction);
            self.rearm(direction);
        }
    }

    fn on_would_block(&self, direction: Direction) -> io::Result<()> {
        self.report_room(direction)?;
        self.registration.on_would_block(direction);
        self.rearm(direction);
        Ok(())
    }

    /// Lets the poller report room to write, if a call has found none for the first time.
    fn report_room(&self, direction: Direction) -> io::Result<()> {
        match (direction, self.room) {
            (Direction::Write, Room::OnceMissed) => self.set_interest(Interest::Both),
            _ => Ok(()),
        }
    }

    /// Asks the poller for an event at the next readiness in this direction.
    fn rearm(&self, direction: Direction) {
        let mut poller = self.runtime().poller.borrow_mut();
        poller.rearm(self.borrowed(), direction.own());
    }

    /// Makes a call that never blocks, and passes a trigger state.
    pub(crate) fn call<R>(&self, call: impl FnOnce(BorrowedFd<'_>) -> R) -> R {
        let result = call(self.borrowed());
        self.runtime().trigger(TriggerState::SystemCall);
        result
    }

    /// Calls `f` with the runtime's buffer.
    pub(super) fn with_buffer<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut buffer = self.runtime().buffer.take();
        buffer.resize(BUFFER_BYTES, 0);
        let result = f(&mut buffer);
        self.runtime().buffer.set(buffer);
        result
    }
}

/// At least as much as hyper reads at once by default.
const BUFFER_BYTES: usize = 64 * 1024;

impl<F: AsFd> Drop for Kernel<F> {
    fn drop(&mut self) {
        self.end_watch();
    }
}
