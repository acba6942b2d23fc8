//! TCP connections.
//!
//! - `options`: socket options; `paced`: pacing as the owner of a stream sees it.

mod options;
mod paced;

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::IntoStdError;
use super::carrier::TcpIo;
use super::kernel::Kernel;
use super::pacing::{Paced, StreamPacing};
use crate::fs::File;
use crate::runtime::inner::allowance;
use crate::runtime::sources::Direction;

/// A TCP connection. Its methods take `&self`, so that one task may read while another writes.
/// [`TcpListener`](super::TcpListener) has an example.
///
/// Dropping it closes the connection like `close(2)`: with unread data the connection is reset, and otherwise the
/// kernel still delivers written data, unless [`set_linger`](Self::set_linger) says otherwise.
pub struct TcpStream {
    io: Rc<TcpIo>,
    pacing: StreamPacing,
    written: Cell<u64>,
}

impl TcpStream {
    /// Connects to `address`.
    ///
    /// # Cancel safety
    /// Dropping the future ends the attempt and closes the socket.
    ///
    /// # Errors
    /// Those of `socket(2)` and `connect(2)` (refused, unreachable, timed out). Fails outside a runtime.
    pub async fn connect(address: impl Into<SocketAddr>) -> io::Result<Self> {
        let io = TcpIo::connect(address.into())?;
        poll_fn(|cx| io.poll_connected(cx)).await?;
        Ok(Self::new(io))
    }

    pub(super) fn new(io: TcpIo) -> Self {
        Self {
            io: Rc::new(io),
            pacing: StreamPacing::default(),
            written: Cell::new(0),
        }
    }

    /// Takes over a connection that was opened elsewhere, and makes its descriptor nonblocking. It is one of the kernel
    /// also in a runtime with a [stack](crate::net::stack), and is not paced.
    ///
    /// # Errors
    /// If the runtime cannot watch the descriptor. Fails outside a runtime.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        Ok(Self::new(TcpIo::from_std(stream)?))
    }

    /// Returns the connection as one of the standard library. Its descriptor stays nonblocking:
    /// [`set_nonblocking`](std::net::TcpStream::set_nonblocking) changes that.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for a connection of a [stack](crate::net::stack), and
    /// [`io::ErrorKind::ResourceBusy`] while paced data waits for its time: wait for [`sent`](Self::sent) before. The
    /// error has the stream.
    pub fn into_std(self) -> Result<std::net::TcpStream, IntoStdError<Self>> {
        if self.io.as_kernel().is_none() {
            return Err(IntoStdError::not_kernel(self));
        }
        let paced = self.pacing.paced();
        let has_ended = paced.is_none_or(Paced::end_train);
        if !has_ended || Rc::strong_count(&self.io) > 1 + usize::from(paced.is_some()) {
            let reason = "paced data waits for its time: await `sent` before `into_std`";
            let error = io::Error::new(io::ErrorKind::ResourceBusy, reason);
            return Err(IntoStdError::new(self, error));
        }
        let Self { io, pacing, .. } = self;
        drop(pacing);
        match Rc::into_inner(io) {
            Some(TcpIo::Kernel(kernel)) => Ok(kernel.into_descriptor().into()),
            _ => {
                unreachable!("a stream of the kernel, whose paced stream held the other reference")
            }
        }
    }

    /// Returns the kernel's descriptor, such as for options that this type does not have; `None` for a connection of a
    /// [stack](crate::net::stack).
    ///
    /// Do not read or write by it, or make it blocking: the runtime does not see that.
    pub fn as_kernel_fd(&self) -> Option<BorrowedFd<'_>> {
        self.io.as_kernel().map(Kernel::lend)
    }

    pub(super) fn io(&self) -> &TcpIo {
        &self.io
    }

    pub(super) fn pacing(&self) -> &StreamPacing {
        &self.pacing
    }

    /// Returns the paced stream that takes writes in place of the kernel, if writes are paced.
    fn paced_writer(&self) -> Option<&Rc<Paced>> {
        self.pacing.writer(&self.io)
    }

    /// Returns the number of bytes that all writes have accepted. Without those
    /// [unacknowledged](Self::unacknowledged), this is the number that the peer has received. Makes no system call.
    pub fn bytes_written(&self) -> u64 {
        self.written.get()
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

    /// Reads until `buffer` is full.
    ///
    /// # Cancel safety
    /// Not cancel-safe: a dropped future may have read bytes into `buffer`, and their number is lost.
    ///
    /// # Errors
    /// Those of `recv(2)`, and [`io::ErrorKind::UnexpectedEof`] if the stream ends before.
    pub async fn read_exact(&self, mut buffer: &mut [u8]) -> io::Result<()> {
        if buffer.is_empty() {
            allowance().await;
        }
        while !buffer.is_empty() {
            match self.read(buffer).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => buffer = &mut buffer[n..],
            }
        }
        Ok(())
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
    /// Not cancel-safe: a dropped future may have written a part. [`bytes_written`](Self::bytes_written) has the
    /// number.
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

    /// Sends up to `len` bytes of `file` from `offset` on without copying them (`sendfile(2)`): as many as the send
    /// buffer accepts, after all data written before. Returns 0 if the file ends at `offset`. This data is not
    /// [paced](Self::set_pacing).
    ///
    /// If the data is not [in memory](File::is_cached), the runtime's thread blocks on the disk. The peer gets the
    /// content of the file at the time of transmission: later changes show, and truncated parts read as zeros. If the
    /// peer has gone, SIGPIPE is raised, which Rust programs ignore by default.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has sent nothing.
    ///
    /// # Errors
    /// Those of `sendfile(2)`, and of earlier writes.
    pub async fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        poll_fn(|cx| self.poll_send_file(cx, file, offset, len)).await
    }

    /// Reads what has arrived, up to the size of `buffer`, without waiting. Returns 0 at the end of the stream. Makes
    /// the call also if no data is known to be there. May be called from the handler of a soft event.
    ///
    /// After a read that has not filled the buffer, [`readable`](Self::readable) waits for more data.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has arrived; otherwise those of `recv(2)`.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.try_recv(buffer)
    }

    /// Like [`try_read`](Self::try_read), into several buffers, one after the other. With a
    /// [stack](crate::net::stack), only into the first that is not empty.
    ///
    /// # Errors
    /// As for [`try_read`](Self::try_read).
    pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.io.try_recv_vectored(buffers)
    }

    /// Writes as much as the send buffer accepts, without waiting. Makes the call also if no room is known to be there.
    /// May be called from the handler of a soft event.
    ///
    /// After a write that was not accepted in full, [`writable`](Self::writable) waits for room.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it accepts no data; otherwise those of `send(2)`.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(bytes)])
    }

    /// Like [`try_write`](Self::try_write), from several buffers.
    ///
    /// # Errors
    /// As for [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = match self.paced_writer() {
            Some(paced) => paced.try_write(buffers)?,
            None => self.io.try_send_vectored(buffers)?,
        };
        self.written.set(self.written.get() + written as u64);
        Ok(written)
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
        self.io.poll_peek(cx, buffer)
    }

    /// Like [`read`](Self::read), for hand-written futures.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn poll_read(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.io.poll_recv(cx, buffer)
    }

    /// Ready when a [`read`](Self::read) may return data, the end of the stream, or an error; it may still have to
    /// wait. Until then `cx` is woken when that changes. Makes no system call.
    pub fn poll_read_ready(&self, cx: &Context<'_>) -> Poll<()> {
        self.io.registration().poll_ready(cx, Direction::Read)
    }

    /// Ready when a [`write`](Self::write) may accept data or return an error; it may still have to wait. Until then
    /// `cx` is woken when that changes. Makes no system call.
    pub fn poll_write_ready(&self, cx: &Context<'_>) -> Poll<()> {
        match self.pacing.paced() {
            Some(paced) => paced.poll_write_ready(cx),
            None => self.io.registration().poll_ready(cx, Direction::Write),
        }
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

    /// Reads up to `max` bytes into the runtime's buffer and passes them to `take`.
    #[cfg(feature = "hyper")]
    pub(crate) fn poll_read_with(
        &self,
        cx: &Context<'_>,
        max: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<()>> {
        self.io.poll_recv_with(cx, max, take)
    }

    /// Like [`write`](Self::write), for hand-written futures.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match self.paced_writer() {
            None => self.io.poll_send(cx, bytes),
            Some(paced) => paced.poll_write(cx, &[IoSlice::new(bytes)]),
        };
        self.count(written)
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
        let written = match self.paced_writer() {
            None => self.io.poll_send_vectored(cx, buffers),
            Some(paced) => paced.poll_write(cx, buffers),
        };
        self.count(written)
    }

    /// Like [`poll_write_vectored`](Self::poll_write_vectored), for buffers one of which may lie within `shared`.
    ///
    /// A connection of a [stack](crate::net::stack) of this process does not copy the first buffer of at least 1 KiB
    /// that lies within `shared`, unless the connection is paced by soft events: it keeps a reference until the peer
    /// has acknowledged the bytes. In all other cases this call works as `poll_write_vectored` does.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn poll_write_shared(
        &self,
        cx: &Context<'_>,
        buffers: &[IoSlice<'_>],
        shared: &Bytes,
    ) -> Poll<io::Result<usize>> {
        let written = match self.paced_writer() {
            None => self.io.poll_send_shared(cx, buffers, shared),
            Some(paced) => paced.poll_write(cx, buffers),
        };
        self.count(written)
    }

    /// Like [`send_file`](Self::send_file), for hand-written futures.
    ///
    /// # Errors
    /// As for [`send_file`](Self::send_file).
    pub fn poll_send_file(
        &self,
        cx: &Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        // The file must follow the data that is still in the buffer of the paced stream.
        if let Some(paced) = self.pacing.paced() {
            ready!(paced.poll_sent(cx))?;
        }
        let sent = self.io.poll_send_file(cx, file.as_fd(), offset, len);
        self.count(sent)
    }

    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.written.set(self.written.get() + *bytes as u64);
        }
        written
    }

    /// Charges a call to the task's allowance for an operation that is ready without one, and that could starve other
    /// tasks in a loop.
    #[cfg(any(feature = "hyper", feature = "futures-io", feature = "tokio-io"))]
    pub(crate) fn poll_allowance(&self, cx: &Context<'_>) -> Poll<()> {
        self.io.runtime().poll_allowance(cx)
    }

    /// Ends one direction or both. The peer reads the end of the stream after the written data.
    ///
    /// # Errors
    /// Those of `shutdown(2)`, and [`io::ErrorKind::NotConnected`] if the connection has ended.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self.pacing.paced() {
            None => self.io.shutdown(how),
            Some(paced) => paced.shutdown(how),
        }
    }

    /// Returns the number of bytes written that the peer's kernel has not acknowledged. It shows progress before the
    /// send buffer has room again.
    ///
    /// # Errors
    /// Those of `ioctl(2)`.
    pub fn unacknowledged(&self) -> io::Result<u64> {
        let with_kernel = self.io.unacknowledged()?;
        Ok(with_kernel + self.paced_bytes() as u64)
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Those of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// Those of `getpeername(2)`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.peer_addr()
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream")
            .field("local_addr", &self.local_addr().ok())
            .field("peer_addr", &self.peer_addr().ok())
            .finish()
    }
}
