//! Unix sockets: connections within the machine, named by a path; `datagram`: sockets for datagrams.

mod datagram;

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net as std_unix;
use std::path::Path;
use std::task::{Context, Poll};

use softclock_core::TriggerState;
use softclock_linux::socket;

use super::kernel::Kernel;
use super::registration::Registration;
use crate::runtime::inner::{Inner, allowance};
use crate::runtime::sources::Direction;

pub use datagram::UnixDatagram;

/// A Unix socket that accepts connections. Dropping it does not remove its path.
///
/// # Example
/// ```
/// use softclock::net::{UnixListener, UnixStream};
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("socket");
/// softclock::Runtime::new()?.block_on(async {
///     // Only processes of this user may connect.
///     let listener = UnixListener::bind(&path, 0o600)?;
///     let client = UnixStream::connect(&path)?;
///     let server = listener.accept().await?;
///     client.write_all(b"hello").await?;
///     let mut buffer = [0; 100];
///     let length = server.read(&mut buffer).await?;
///     assert_eq!(&buffer[..length], b"hello");
///     std::fs::remove_file(&path)
/// })
/// # }
/// ```
pub struct UnixListener {
    socket: Kernel,
}

impl UnixListener {
    /// Listens at `path`, which must not exist, with the permissions `mode`.
    ///
    /// # Errors
    /// Those of `bind(2)` ([`io::ErrorKind::AddrInUse`] if the path exists, even if no process uses it), `chmod(2)`
    /// and `listen(2)`. Fails outside a runtime.
    pub fn bind(path: impl AsRef<Path>, mode: u32) -> io::Result<Self> {
        // Before the path exists: outside a runtime nothing is left behind.
        Inner::current()?;
        let fd = socket::unix::listen(path.as_ref(), mode, BACKLOG)?;
        Self::from_std(fd.into())
    }

    /// Takes over a listener that was bound elsewhere: on another thread, or by the service manager. Makes its
    /// descriptor nonblocking.
    ///
    /// # Errors
    /// If the runtime cannot watch the descriptor. Fails outside a runtime.
    pub fn from_std(listener: std_unix::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            socket: Kernel::duplicated(OwnedFd::from(listener))?,
        })
    }

    /// Returns the listener as one of the standard library. Its descriptor stays nonblocking:
    /// [`set_nonblocking`](std_unix::UnixListener::set_nonblocking) changes that.
    pub fn into_std(self) -> std_unix::UnixListener {
        self.socket.into_descriptor().into()
    }

    /// Waits for a connection and accepts it.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has accepted no connection.
    ///
    /// # Errors
    /// Those of `accept(2)`; see [`TcpListener::accept`](super::TcpListener::accept).
    pub async fn accept(&self) -> io::Result<UnixStream> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Like [`accept`](Self::accept), for hand-written futures.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        let accept = socket::unix::accept;
        self.socket
            .poll_call(cx, Direction::Read, TriggerState::Receive, accept)
            .map(|fd| UnixStream::from_kernel(fd?))
    }
}

/// Do not accept by the descriptor, or make it blocking: the runtime does not see that.
impl AsFd for UnixListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.lend()
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixListener").finish_non_exhaustive()
    }
}

/// Binds a listener without a runtime, to be passed to [`UnixListener::from_std`] on another thread.
///
/// # Errors
/// As for [`UnixListener::bind`].
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<std_unix::UnixListener> {
    Ok(socket::unix::listen(path, mode, BACKLOG)?.into())
}

/// Connects to the socket at `path`, and closes the connection. Waits for nothing, and needs no runtime. Finds out
/// whether a server still has the socket that a file stands for.
///
/// # Errors
/// As for [`UnixStream::connect`]: [`io::ErrorKind::ConnectionRefused`] if no server has it.
pub fn probe_unix(path: &Path) -> io::Result<()> {
    socket::unix::connect(path).map(drop)
}

/// A connection over a Unix socket. Its methods take `&self`, so that one task may read while another writes.
pub struct UnixStream {
    socket: Kernel,
}

impl UnixStream {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// Those of `connect(2)`: no such path, no listener, no permission, and [`io::ErrorKind::WouldBlock`] if the
    /// listener's queue is full. Fails outside a runtime.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Inner::current()?;
        Self::from_kernel(socket::unix::connect(path.as_ref())?)
    }

    /// Takes over a stream that was created elsewhere, such as one of a pair. Makes its descriptor nonblocking.
    ///
    /// # Errors
    /// If the runtime cannot watch the descriptor. Fails outside a runtime.
    pub fn from_std(stream: std_unix::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let socket = Kernel::duplicated(OwnedFd::from(stream))?;
        Ok(Self {
            socket: socket.with_messages(),
        })
    }

    /// Returns the stream as one of the standard library. Its descriptor stays nonblocking:
    /// [`set_nonblocking`](std_unix::UnixStream::set_nonblocking) changes that.
    pub fn into_std(self) -> std_unix::UnixStream {
        self.socket.into_descriptor().into()
    }

    fn from_kernel(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            socket: Kernel::new(fd)?.with_messages(),
        })
    }

    /// Reads data that has arrived, up to the size of `buffer`. Returns 0 at the end of the stream.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has read nothing.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    /// Writes as much of `bytes` as the send buffer accepts.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has written nothing.
    ///
    /// # Errors
    /// Those of `send(2)`.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_write(cx, bytes)).await
    }

    /// Writes all of `bytes`.
    ///
    /// # Cancel safety
    /// Not cancel-safe: a dropped future may have written a part, and its length is lost.
    ///
    /// # Errors
    /// Those of `send(2)`.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            allowance().await;
        }
        while !bytes.is_empty() {
            let written = self.write(bytes).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Like [`read`](Self::read), but leaves the data to be read again.
    ///
    /// # Cancel safety
    /// Cancel-safe: it takes nothing.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_peek(cx, buffer)).await
    }

    /// Like [`peek`](Self::peek), for hand-written futures.
    ///
    /// # Errors
    /// As for [`peek`](Self::peek).
    pub fn poll_peek(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_peek(cx, buffer)
    }

    /// Like [`read`](Self::read), for hand-written futures.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn poll_read(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_recv(cx, buffer)
    }

    /// Ready when a [`read`](Self::read) may return data, the end of the stream, or an error; it may still have to
    /// wait. Until then `cx` is woken when that changes. Makes no system call.
    pub fn poll_read_ready(&self, cx: &Context<'_>) -> Poll<()> {
        self.registration().poll_ready(cx, Direction::Read)
    }

    /// Ready when a [`write`](Self::write) may accept data or return an error; it may still have to wait. Until then
    /// `cx` is woken when that changes. Makes no system call.
    pub fn poll_write_ready(&self, cx: &Context<'_>) -> Poll<()> {
        self.registration().poll_ready(cx, Direction::Write)
    }

    /// Waits until a [`try_read`](Self::try_read) may return data, the end of the stream, or an error. Afterwards it
    /// may still fail with [`io::ErrorKind::WouldBlock`]; then wait again.
    ///
    /// # Cancel safety
    /// Cancel-safe: it takes nothing.
    pub async fn readable(&self) {
        poll_fn(|cx| self.poll_read_ready(cx)).await;
    }

    /// Waits until a [`try_write`](Self::try_write) may accept data or return an error. Afterwards it may still fail
    /// with [`io::ErrorKind::WouldBlock`]; then wait again.
    ///
    /// # Cancel safety
    /// Cancel-safe: it takes nothing.
    pub async fn writable(&self) {
        poll_fn(|cx| self.poll_write_ready(cx)).await;
    }

    /// Reads what has arrived, up to the size of `buffer`, without waiting. Returns 0 at the end of the stream. May be
    /// called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has arrived; otherwise those of `recv(2)`.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.try_recv(buffer)
    }

    /// Writes as much as the send buffer accepts, without waiting. May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it accepts no data; otherwise those of `send(2)`.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.try_send(bytes)
    }

    pub(super) fn registration(&self) -> &Registration {
        self.socket.registration()
    }

    #[cfg(feature = "hyper")]
    pub(crate) fn poll_read_with(
        &self,
        cx: &Context<'_>,
        max: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<()>> {
        self.socket.poll_recv_with(cx, max, take)
    }

    /// Like [`write`](Self::write), for hand-written futures.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_send(cx, bytes)
    }

    /// Like [`poll_write`](Self::poll_write), from several buffers.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn poll_write_vectored(
        &self,
        cx: &Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_send_vectored(cx, buffers)
    }

    /// Charges a call to the task's allowance for an operation that is ready without one, and that could starve other
    /// tasks in a loop.
    #[cfg(any(feature = "hyper", feature = "futures-io", feature = "tokio-io"))]
    pub(crate) fn poll_allowance(&self, cx: &Context<'_>) -> Poll<()> {
        self.socket.runtime().poll_allowance(cx)
    }

    /// Ends one direction or both. The peer reads the end of the stream after the written data.
    ///
    /// # Errors
    /// Those of `shutdown(2)`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }
}

/// Do not read or write by the descriptor, or make it blocking: the runtime does not see that.
impl AsFd for UnixStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.lend()
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixStream").finish_non_exhaustive()
    }
}

/// Capacity of a listener's queue. The kernel limits it to net.core.somaxconn.
const BACKLOG: u32 = 4096;
