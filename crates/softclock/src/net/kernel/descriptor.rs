//! A descriptor as one of the runtime's sources.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use softclock_core::TriggerState;
use softclock_linux::readiness::Readiness;

use crate::net::registration::Registration;
use crate::runtime::inner::Inner;
use crate::runtime::sources::Direction;

/// A nonblocking descriptor that the runtime watches. Dropping it ends the watch and closes the descriptor.
pub(crate) struct Kernel<F: AsFd = OwnedFd> {
    registration: Registration,
    fd: F,
    file: OpenFile,
    interest: Cell<Interest>,
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
        let (fd, token) = (self.fd.as_fd(), self.registration.token());
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
    pub(crate) fn new(fd: F) -> io::Result<Self> {
        Self::watched(fd, OpenFile::Own, Interest::Both)
    }

    /// Like [`new`](Self::new), for an open file that may have other descriptors.
    pub(crate) fn duplicated(fd: F) -> io::Result<Self> {
        Self::watched(fd, OpenFile::Duplicated, Interest::Both)
    }

    /// Like [`duplicated`](Self::duplicated), with interest in reading only.
    pub(crate) fn for_reading(fd: F) -> io::Result<Self> {
        Self::watched(fd, OpenFile::Duplicated, Interest::Reading)
    }

    /// Watches a descriptor, which counts as ready until a call would block.
    fn watched(fd: F, file: OpenFile, interest: Interest) -> io::Result<Self> {
        let kernel = Self {
            registration: Registration::new(Readiness::READABLE | Readiness::WRITABLE)?,
            fd,
            file,
            interest: Cell::new(Interest::Nothing),
        };
        kernel.set_interest(interest)?;
        kernel.runtime().trigger(TriggerState::SystemCall);
        Ok(kernel)
    }

    pub(crate) fn descriptor(&self) -> &F {
        &self.fd
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

    /// Records how much of the offered bytes the last call transferred. After a partial transfer the next call has to
    /// wait.
    pub(crate) fn on_transferred(&self, direction: Direction, bytes: usize, offered: usize) {
        self.runtime().take_bytes(bytes);
        if bytes < offered {
            self.on_short(direction);
        }
    }

    /// Records that the last call transferred less than requested, so that the next one has to wait.
    pub(crate) fn on_short(&self, direction: Direction) {
        self.registration.on_short(direction);
        self.rearm(direction);
    }

    fn on_would_block(&self, direction: Direction) {
        self.registration.on_would_block(direction);
        self.rearm(direction);
    }

    /// Asks the poller for an event at the next readiness in this direction.
    fn rearm(&self, direction: Direction) {
        let mut poller = self.runtime().poller.borrow_mut();
        poller.rearm(self.fd.as_fd(), direction.own());
    }

    /// Makes a call that never blocks, and passes a trigger state.
    pub(crate) fn call<R>(&self, call: impl FnOnce(BorrowedFd<'_>) -> R) -> R {
        let result = call(self.fd.as_fd());
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
        if self.interest.get() == Interest::Nothing {
            return;
        }
        let mut poller = self.registration.runtime().poller.borrow_mut();
        // An error cannot be handled here, and a late event would find no source.
        let _ = match self.file {
            OpenFile::Own => poller.remove_closing(self.fd.as_fd()),
            OpenFile::Duplicated => poller.remove(self.fd.as_fd()),
        };
    }
}
