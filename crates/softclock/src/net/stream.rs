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

use super::carrier::TcpIo;
use super::pacing::{Paced, Pacer, Pacing, StreamPacing};
use crate::fs::File;
use crate::runtime::inner::allowance;
use crate::runtime::sources::Direction;

/// A TCP connection. Its methods take `&self`, so that one task may read while another writes.
///
/// Dropping it closes the connection as `close(2)` does: data that was not read makes it a reset, and what
/// was written is still delivered, for as long as [`set_linger`](Self::set_linger) says.
pub struct TcpStream {
    io: Rc<TcpIo>,
    pacing: StreamPacing,
    written: Cell<u64>,
}

impl TcpStream {
    /// Connects to `address`.
    ///
    /// # Errors
    /// Those of `socket(2)` and `connect(2)` (refused, unreachable, timed out); outside a runtime.
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

    /// What takes writes in place of the kernel, where they are paced.
    fn paced_writer(&self) -> Option<&Rc<Paced>> {
        self.pacing.writer(&self.io)
    }

    /// Paces what is written from now on, as `pacing` says; `None` no longer. Takes effect at once, also for what
    /// was written before and has not been sent: nothing is lost or waits for the former rate.
    ///
    /// A write then takes what a bounded buffer has room for, and events send it in pieces ([`Pacing`]), small segments
    /// too (`TCP_NODELAY`). An error of such a piece is told by the next write. [`shutdown`](Self::shutdown) takes
    /// effect behind what was written, and dropping the stream lets it be sent, at the rate, unless the runtime ends
    /// (then the kernel gets it at once) or the peer takes nothing for a minute.
    ///
    /// For many streams, and a rate that they keep together, see [`paced`](Self::paced).
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

    /// Has `pacer` pace what is written, as [`set_pacing`](Self::set_pacing) does, in common with other streams: its
    /// [`set`](Pacer::set) changes how, for streams in use too.
    #[must_use]
    pub fn paced(self, pacer: &Pacer) -> Self {
        self.set_pacer(pacer);
        self
    }

    fn set_pacer(&self, pacer: &Pacer) {
        // Else the kernel would wait for the rest of a segment.
        let _ = self.set_nodelay(true);
        self.pacing.set_pacer(pacer);
    }

    /// Whether what is written now is paced.
    pub fn is_paced(&self) -> bool {
        self.pacing.is_on()
    }

    /// Whether a write that is pending waits for its time, as a [paced](Self::set_pacing) stream's, or for the task's
    /// next turn, not for the peer.
    pub fn is_held_back(&self) -> bool {
        match self.pacing.paced() {
            Some(paced) => paced.is_held_back(),
            None => self.io.registration().is_ready(Direction::Write),
        }
    }

    /// Bytes written that were not yet given to the kernel, as the stream is [paced](Self::set_pacing). No system call.
    pub fn paced_bytes(&self) -> usize {
        self.pacing.paced().map_or(0, |paced| paced.pending())
    }

    /// Bytes accepted by all writes so far. Less those [unacknowledged](Self::unacknowledged), they are what the peer
    /// has received. No system call.
    pub fn bytes_written(&self) -> u64 {
        self.written.get()
    }

    /// Waits until the kernel has all that was written: at once unless the stream is [paced](Self::set_pacing).
    ///
    /// # Errors
    /// Those of `send(2)`, of what was accepted before.
    pub async fn sent(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_sent(cx)).await
    }

    /// As [`sent`](Self::sent), for futures written by hand. While the kernel has no room, the task is woken, too: then
    /// the stream is not [held back](Self::is_held_back).
    ///
    /// # Errors
    /// As [`sent`](Self::sent).
    pub fn poll_sent(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self.pacing.paced() {
            None => self.io.runtime().poll_allowance(cx).map(Ok),
            Some(paced) => paced.poll_sent(cx),
        }
    }

    /// Reads what has arrived, up to the size of `buffer`; 0 at the end of the stream.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    /// Reads until `buffer` is full.
    ///
    /// # Errors
    /// Those of `recv(2)`; [`io::ErrorKind::UnexpectedEof`] if the stream ends before.
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

    /// Writes as much of `bytes` as the send buffer takes.
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

    /// Sends up to `len` bytes of `file`, from `offset` on, without copying them (`sendfile(2)`): as many as the send
    /// buffer takes, behind all that was written before. 0 means that the file ends at `offset`. It is not
    /// [paced](Self::set_pacing).
    ///
    /// Where they are not [in memory](File::is_cached), the runtime's thread waits for the disk. What is sent is the
    /// file's content when the peer gets it: a change shows that is made meanwhile, and what is cut off reads as zeros.
    /// If the peer is gone SIGPIPE is raised, which programs in Rust ignore unless told otherwise.
    ///
    /// # Errors
    /// Those of `sendfile(2)`, and of what was written before.
    pub async fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        poll_fn(|cx| self.poll_send_file(cx, file, offset, len)).await
    }

    /// Writes as much as the send buffer takes now, from within a soft event's handler too.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it takes nothing; else those of `send(2)`.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self.paced_writer() {
            Some(paced) => paced.try_write(bytes)?,
            None => self.io.try_send(bytes)?,
        };
        self.written.set(self.written.get() + written as u64);
        Ok(written)
    }

    /// As [`read`](Self::read), and leaves what it gives to be read again.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_peek(cx, buffer)).await
    }

    /// As [`peek`](Self::peek), for futures written by hand.
    ///
    /// # Errors
    /// As [`peek`](Self::peek).
    pub fn poll_peek(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.io.poll_peek(cx, buffer)
    }

    /// As [`read`](Self::read), for futures written by hand.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn poll_read(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.io.poll_recv(cx, buffer)
    }

    /// Ready when the connection is known to be lost: the peer has reset it, the kernel has given it up, or both
    /// directions have ended. A peer that has ended only its own may still read. Until then `cx` is woken by the loss,
    /// and by what arrives. No system call. [`Mechanism::Select`](crate::Mechanism) tells of no loss.
    pub fn poll_lost(&self, cx: &Context<'_>) -> Poll<()> {
        self.io.registration().poll_lost(cx)
    }

    /// Ready when a [`read`](Self::read) may find something: data, the end, or an error; it may also find nothing.
    /// Until then `cx` is woken when that changes. No system call.
    pub fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        self.io.registration().poll_ready(cx, Direction::Read)
    }

    /// Ready when the peer is known to have ended its direction, as by [`shutdown`](Self::shutdown), or when the
    /// connection is [lost](Self::poll_lost). What the peer sent before may still be unread. Until then `cx` is woken
    /// by the end, and by what arrives. No system call. [`Mechanism::Select`](crate::Mechanism) reports no end.
    pub fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.io.registration().poll_ended(cx)
    }

    /// Wakes none of the tasks that wait to read; who still wants to know asks again. For whoever hands the stream on,
    /// so that what arrives then is no concern of his. No system call.
    pub fn forget_readers(&self) {
        self.io.registration().forget_waiters(Direction::Read);
    }

    /// Reads up to `max` bytes into the runtime's own buffer, for `take` to copy from.
    #[cfg(feature = "hyper")]
    pub(crate) fn poll_read_with(
        &self,
        cx: &Context<'_>,
        max: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<()>> {
        self.io.poll_recv_with(cx, max, take)
    }

    /// As [`write`](Self::write), for futures written by hand.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match self.paced_writer() {
            None => self.io.poll_send(cx, bytes),
            Some(paced) => paced.poll_write(cx, &[IoSlice::new(bytes)]),
        };
        self.count(written)
    }

    /// As [`poll_write`](Self::poll_write), from several buffers.
    ///
    /// # Errors
    /// As [`write`](Self::write).
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

    /// As [`send_file`](Self::send_file), for futures written by hand.
    ///
    /// # Errors
    /// As [`send_file`](Self::send_file).
    pub fn poll_send_file(
        &self,
        cx: &Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
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

    /// Ready if the task may go on without a call: what is ready at once in a loop would else starve others.
    #[cfg(any(feature = "hyper", feature = "futures-io"))]
    pub(crate) fn poll_allowance(&self, cx: &Context<'_>) -> Poll<()> {
        self.io.runtime().poll_allowance(cx)
    }

    /// Ends one direction or both: the peer reads the end of the stream after what was written.
    ///
    /// # Errors
    /// Those of `shutdown(2)`; [`io::ErrorKind::NotConnected`] if the connection has ended.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self.pacing.paced() {
            None => self.io.shutdown(how),
            Some(paced) => paced.shutdown(how),
        }
    }

    /// Whether small segments are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.io.set_nodelay(nodelay)
    }

    /// How many bytes may wait in the kernel for the peer's window before it takes no more
    /// (`TCP_NOTSENT_LOWAT`, at most 4 GiB; 0 for the system's choice, which mostly is no limit).
    ///
    /// Without a limit the kernel copies megabytes at once for a peer that hardly reads, and the thread's other
    /// connections wait meanwhile. What is in flight is not counted, so that a limit of some round trips of a turn of
    /// the loop costs no throughput.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_notsent_lowat(&self, bytes: u32) -> io::Result<()> {
        self.io.set_notsent_lowat(bytes)
    }

    /// How long undelivered data outlives the connection's closing (`SO_LINGER`). `None` is the system's choice,
    /// in the background; zero drops it and resets the connection. Other values make closing block the
    /// thread and are refused.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a time other than zero; else those of `setsockopt(2)`.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        if linger.is_some_and(|time| !time.is_zero()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a lingering close would block the runtime's thread",
            ));
        }
        self.pacing.set_resets(linger.is_some());
        self.io.set_linger(linger)
    }

    /// Bytes written that the peer's kernel has not acknowledged yet: progress that shows before the send buffer has
    /// room again.
    ///
    /// # Errors
    /// Those of `ioctl(2)`.
    pub fn unacknowledged(&self) -> io::Result<u64> {
        let with_kernel = self.io.unacknowledged()?;
        Ok(with_kernel + self.paced_bytes() as u64)
    }

    /// The connection's own address.
    ///
    /// # Errors
    /// Those of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// The peer's address.
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
