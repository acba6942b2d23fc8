//! Descriptors that the application opened: timers, pipes, devices, sockets of other kinds.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use softclock_core::TriggerState;
use softclock_linux::socket::has_messages;

use crate::net::Kernel;
pub use crate::runtime::sources::Direction;

/// A nonblocking descriptor whose readiness the runtime watches. Dropping it closes the descriptor.
///
/// The program makes the calls on the descriptor in closures, and reports with each whether it has used up the
/// readiness ([`Transfer`]). After a call that has, the next one waits for an event of the kernel, so a task that reads
/// messages as they come makes one call for each.
///
/// The runtime watches for room to write only after a call has found none. So a descriptor that is written to but never
/// full does not wake the thread each time its data has left.
///
/// # Example
/// ```
/// use std::io::{Read, Write, pipe};
/// use softclock::{Descriptor, Transfer};
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let (reader, mut writer) = pipe()?;
/// #   rustix::io::ioctl_fionbio(&reader, true)?;
///     // `reader` is nonblocking.
///     let reader = Descriptor::new(reader)?;
///     writer.write_all(b"hello")?;
///     let mut buffer = [0; 100];
///     let length = reader
///         .read_with(|_| {
///             let read = reader.descriptor().read(&mut buffer)?;
///             Ok(Transfer::of(read, 100))
///         })
///         .await?;
///     assert_eq!(&buffer[..length], b"hello");
///     std::io::Result::Ok(())
/// })
/// # }
/// ```
pub struct Descriptor<F: AsFd = OwnedFd> {
    kernel: Kernel<F>,
    /// Whether it is a stream socket, of which a read may end before urgent data.
    is_stream: bool,
}

/// The result of a call on a [`Descriptor`], and whether the call has used up the readiness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer<R> {
    value: R,
    is_short: bool,
}

impl<R> Transfer<R> {
    /// Returns the result of a call after which the descriptor may still be ready: it has filled its buffer, or
    /// written all. The next call is made at once.
    pub const fn full(value: R) -> Self {
        Self {
            value,
            is_short: false,
        }
    }

    /// Returns the result of a call that has transferred all that it could, such as a read that has not filled its
    /// buffer, or one that has emptied a timer. The next call waits for an event.
    ///
    /// Use it only where the kernel reports an event when the descriptor becomes ready again, as with streams,
    /// datagram sockets whose queue a call has emptied, timers and counters. A read of one datagram is
    /// [full](Self::full) whatever its length: more may wait. So is a read of a Unix stream over which descriptors are
    /// passed, since it ends with each message that carries some.
    pub const fn short(value: R) -> Self {
        Self {
            value,
            is_short: true,
        }
    }

    /// Returns the result of the call: the value without the report.
    pub fn into_value(self) -> R {
        self.value
    }
}

impl Transfer<usize> {
    /// Returns the result of a call on a stream, which has transferred `bytes` of the `offered`: short if fewer. No
    /// bytes at all are the end of the stream, which stays to be read.
    pub const fn of(bytes: usize, offered: usize) -> Self {
        Self {
            value: bytes,
            is_short: 0 < bytes && bytes < offered,
        }
    }
}

impl<F: AsFd> Descriptor<F> {
    /// Watches `fd`, which must be nonblocking.
    ///
    /// # Errors
    /// `PermissionDenied` for files that are always ready, which cannot be watched. Fails outside a runtime.
    pub fn new(fd: F) -> io::Result<Self> {
        let is_stream = has_messages(fd.as_fd()).is_ok_and(|has_messages| !has_messages);
        Ok(Self {
            kernel: Kernel::duplicated_lazily(fd)?,
            is_stream,
        })
    }

    /// Returns the descriptor.
    pub fn descriptor(&self) -> &F {
        self.kernel.descriptor()
    }

    /// Ends the watch and returns the descriptor, which stays open and nonblocking.
    pub fn into_inner(self) -> F {
        self.kernel.into_descriptor()
    }

    /// Waits until the descriptor is readable and calls `call`, which reads from it, until the result is not
    /// [`io::ErrorKind::WouldBlock`]. Then passes a trigger state.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has made no call that succeeded.
    ///
    /// # Errors
    /// Those of `call`. One that was interrupted by a signal is repeated.
    pub async fn read_with<R>(
        &self,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<Transfer<R>>,
    ) -> io::Result<R> {
        poll_fn(|cx| self.poll_io(cx, Direction::Read, &mut call)).await
    }

    /// Waits until the descriptor is writable and calls `call`, which writes to it, until the result is not
    /// [`io::ErrorKind::WouldBlock`]. Then passes a trigger state.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has made no call that succeeded.
    ///
    /// # Errors
    /// Those of `call`. One that was interrupted by a signal is repeated.
    pub async fn write_with<R>(
        &self,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<Transfer<R>>,
    ) -> io::Result<R> {
        poll_fn(|cx| self.poll_io(cx, Direction::Write, &mut call)).await
    }

    fn poll_io<R>(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<Transfer<R>>,
    ) -> Poll<io::Result<R>> {
        let call = |fd: BorrowedFd<'_>| {
            call(fd).map(|transfer| self.consume_readiness(direction, transfer))
        };
        (self.kernel).poll_call(cx, direction, TriggerState::SystemCall, call)
    }

    /// Makes `call` once, whether or not the descriptor is known to be ready, and passes a trigger state. After
    /// [`io::ErrorKind::WouldBlock`] and after a [short](Transfer::short) transfer, [`poll_read_ready`] and
    /// [`poll_write_ready`] wait for an event. May be called from the handler of a soft event.
    ///
    /// [`poll_read_ready`]: Self::poll_read_ready
    /// [`poll_write_ready`]: Self::poll_write_ready
    ///
    /// # Errors
    /// Those of `call`. One that was interrupted by a signal is repeated.
    pub fn try_io<R>(
        &self,
        direction: Direction,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<Transfer<R>>,
    ) -> io::Result<R> {
        let call = |fd: BorrowedFd<'_>| {
            call(fd).map(|transfer| self.consume_readiness(direction, transfer))
        };
        (self.kernel).try_call(direction, TriggerState::SystemCall, call)
    }

    /// Consumes the readiness that a call has used up, before a trigger state can see a later event.
    fn consume_readiness<R>(&self, direction: Direction, transfer: Transfer<R>) -> R {
        if transfer.is_short {
            match self.is_stream {
                true => self.kernel.on_short_of_stream(direction),
                false => self.kernel.on_short(direction),
            }
        }
        transfer.value
    }

    /// Ready when a call that reads may succeed: at first, and after an event, until a call has used up the readiness.
    /// Until then `cx` is woken by the event. Makes no system call.
    pub fn poll_read_ready(&self, cx: &Context<'_>) -> Poll<()> {
        self.kernel.registration().poll_ready(cx, Direction::Read)
    }

    /// Ready when a call that writes may succeed: until one has found no room, and again after an event. Until then
    /// `cx` is woken by the event. Makes no system call.
    pub fn poll_write_ready(&self, cx: &Context<'_>) -> Poll<()> {
        self.kernel.registration().poll_ready(cx, Direction::Write)
    }

    /// Waits until a call that reads may succeed; see [`poll_read_ready`](Self::poll_read_ready).
    ///
    /// # Cancel safety
    /// Cancel-safe: it takes nothing.
    pub async fn readable(&self) {
        poll_fn(|cx| self.poll_read_ready(cx)).await;
    }

    /// Waits until a call that writes may succeed; see [`poll_write_ready`](Self::poll_write_ready).
    ///
    /// # Cancel safety
    /// Cancel-safe: it takes nothing.
    pub async fn writable(&self) {
        poll_fn(|cx| self.poll_write_ready(cx)).await;
    }
}

impl<F: AsFd> AsFd for Descriptor<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor().as_fd()
    }
}

impl<F: AsFd> fmt::Debug for Descriptor<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Descriptor").field(&self.as_fd()).finish()
    }
}
