//! TCP connections.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use super::carrier::TcpIo;
use super::pacing::{Paced, Pacer, Pacing, StreamPacing};
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

    /// Returns the paced stream that takes writes in place of the kernel, if writes are paced.
    fn paced_writer(&self) -> Option<&Rc<Paced>> {
        self.pacing.writer(&self.io)
    }

    /// Paces all writes from now on by `pacing`, or stops pacing with `None`. The change takes effect at once,
    /// including for data that was written before and has not been sent; none of it is lost.
    ///
    /// A paced write fills a bounded buffer, from which events send pieces ([`Pacing`]), including small segments
    /// (`TCP_NODELAY`). An error in sending a piece is returned by the next write. [`shutdown`](Self::shutdown) takes
    /// effect after the written data. Dropping the stream lets that data be sent at the rate, unless the runtime
    /// ends, which gives it to the kernel at once, or the peer accepts no data for a minute.
    ///
    /// For many streams, or a rate that they share, see [`paced`](Self::paced).
    ///
    /// # Example
    ///
    /// ```no_run
    /// # async fn pace(stream: softclock::net::TcpStream) -> Result<(), Box<dyn std::error::Error>> {
    /// use softclock::net::Pacing;
    ///
    /// stream.set_pacing(Some(Pacing::of_rate("50mbit".parse()?)));
    /// stream.write_all(&[0; 100_000]).await?; // takes 16 ms
    /// stream.set_pacing(Some(Pacing {
    ///     burst: "60mbit".parse()?, // where it has fallen behind
    ///     ..Pacing::of_rate("50mbit".parse()?)
    /// }));
    /// stream.set_pacing(None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_pacing(&self, pacing: Option<Pacing>) {
        self.set_pacer(&Pacer::new(pacing));
    }

    /// Lets `pacer` pace the writes of this stream, like [`set_pacing`](Self::set_pacing), together with other
    /// streams. [`Pacer::set`] then changes the pacing of streams in use.
    #[must_use]
    pub fn paced(self, pacer: &Pacer) -> Self {
        self.set_pacer(pacer);
        self
    }

    fn set_pacer(&self, pacer: &Pacer) {
        // Otherwise the kernel would wait for the rest of a segment.
        let _ = self.set_nodelay(true);
        self.pacing.set_pacer(pacer);
    }

    /// Returns whether writes are currently paced.
    pub fn is_paced(&self) -> bool {
        self.pacing.is_on()
    }

    /// Returns whether a pending write waits for its time, because the stream is [paced](Self::set_pacing), or for
    /// the task's next turn, rather than for the peer.
    ///
    /// The writer of a [stack](crate::net::stack)'s stream is not woken when it has to wait for the peer instead: ask
    /// again after a while.
    pub fn is_held_back(&self) -> bool {
        let waits = match self.pacing.paced() {
            Some(paced) => paced.is_held_back(),
            None => self.io.registration().is_ready(Direction::Write),
        };
        waits || self.io.held_back() > 0
    }

    /// Returns the number of bytes written that wait for their time, because the stream is [paced](Self::set_pacing):
    /// the [paced bytes](Self::paced_bytes), and those that a [stack](crate::net::stack) of this process has not sent
    /// while its next segment waits for the rate. Makes no system call.
    pub fn held_back_bytes(&self) -> usize {
        self.paced_bytes() + self.io.held_back()
    }

    /// Returns the number of bytes written but not yet given to the kernel because the stream is
    /// [paced](Self::set_pacing). Makes no system call.
    pub fn paced_bytes(&self) -> usize {
        self.pacing.paced().map_or(0, |paced| paced.pending())
    }

    /// Returns the number of bytes that all writes have accepted. Without those
    /// [unacknowledged](Self::unacknowledged), this is the number that the peer has received. Makes no system call.
    pub fn bytes_written(&self) -> u64 {
        self.written.get()
    }

    /// Waits until the kernel has all written data: no time, unless the stream is [paced](Self::set_pacing).
    ///
    /// # Errors
    /// Those of `send(2)`, for data accepted before.
    pub async fn sent(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_sent(cx)).await
    }

    /// Like [`sent`](Self::sent), for hand-written futures. The task is also woken when the kernel has no room; then
    /// the stream is not [held back](Self::is_held_back).
    ///
    /// # Errors
    /// As for [`sent`](Self::sent).
    pub fn poll_sent(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self.pacing.paced() {
            None => self.io.runtime().poll_allowance(cx).map(Ok),
            Some(paced) => paced.poll_sent(cx),
        }
    }

    /// Reads data that has arrived, up to the size of `buffer`. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    /// Reads until `buffer` is full.
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
    /// # Errors
    /// Those of `send(2)`.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_write(cx, bytes)).await
    }

    /// Writes all of `bytes`.
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
    /// # Errors
    /// Those of `sendfile(2)`, and of earlier writes.
    pub async fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        poll_fn(|cx| self.poll_send_file(cx, file, offset, len)).await
    }

    /// Writes as much as the send buffer accepts, without waiting. May be called from the handler of a soft event.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it accepts no data; otherwise those of `send(2)`.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self.paced_writer() {
            Some(paced) => paced.try_write(bytes)?,
            None => self.io.try_send(bytes)?,
        };
        self.written.set(self.written.get() + written as u64);
        Ok(written)
    }

    /// Like [`read`](Self::read), but leaves the data to be read again.
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

    /// Ready when the connection is known to be lost: the peer has reset it, the kernel has given up, or both
    /// directions have ended. A peer that has ended only its own direction may still read. Until then `cx` is woken
    /// by the loss and by arriving data. Makes no system call. [`Mechanism::Select`](crate::Mechanism) does not
    /// report a loss.
    pub fn poll_lost(&self, cx: &Context<'_>) -> Poll<()> {
        self.io.poll_lost(cx)
    }

    /// Ready when a [`read`](Self::read) may return data, the end of the stream, or an error; it may still have to
    /// wait. Until then `cx` is woken when that changes. Makes no system call.
    pub fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        self.io.registration().poll_ready(cx, Direction::Read)
    }

    /// Ready when the peer is known to have ended its direction, as by [`shutdown`](Self::shutdown), or when the
    /// connection is [lost](Self::poll_lost). Data that the peer sent before may be unread. Until then `cx` is woken
    /// by the end and by arriving data. Makes no system call. [`Mechanism::Select`](crate::Mechanism) does not report
    /// the end.
    pub fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.io.poll_ended(cx)
    }

    /// Removes the tasks that wait to read, so that arriving data does not wake them until they poll again. Use it
    /// before passing the stream on to another task. Makes no system call.
    pub fn forget_readers(&self) {
        self.io.registration().forget_waiters(Direction::Read);
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
    #[cfg(any(feature = "hyper", feature = "futures-io"))]
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

    /// Sets whether small segments are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.io.set_nodelay(nodelay)
    }

    /// Sets how many bytes may wait in the kernel for the peer's window before it accepts no more
    /// (`TCP_NOTSENT_LOWAT`, at most 4 GiB; 0 for the system's default, which usually is no limit).
    ///
    /// Without a limit the kernel copies megabytes at once for a peer that hardly reads, and the thread's other
    /// connections wait meanwhile. Bytes in flight do not count, so a limit that covers a few turns of the loop does
    /// not reduce the throughput.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_notsent_lowat(&self, bytes: u32) -> io::Result<()> {
        self.io.set_notsent_lowat(bytes)
    }

    /// Sets how closing treats undelivered data (`SO_LINGER`). With `None`, the kernel keeps delivering it in the
    /// background, for a time that the system defines. Zero discards it and resets the connection. Other values would
    /// make closing block the thread, and are rejected.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a duration other than zero; otherwise those of `setsockopt(2)`.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        if linger.is_some_and(|time| !time.is_zero()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a lingering close would block the runtime's thread",
            ));
        }
        // Pending paced data must be discarded too when closing resets the connection.
        self.pacing.set_resets(linger.is_some());
        self.io.set_linger(linger)
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
