//! The socket of an upstream as hyper sees it: it notes what passes, and does not wait for ever.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use softclock::Instant;

use super::UpstreamTimeouts;
use super::failure::Failure;
use crate::carrier::Stream;
use crate::late_timer::LateTimer;
use crate::socket::Socket;

/// What is known of the exchange on a connection, by those who take part in it.
#[derive(Debug)]
pub(super) struct Watch {
    timeouts: Cell<UpstreamTimeouts>,
    /// An exchange is in progress; else the connection idles, however long it is let.
    pub(super) is_busy: Cell<bool>,
    /// All of the request's body has been taken from the client.
    pub(super) body_taken: Cell<bool>,
    /// The client did not send all of it.
    pub(super) body_failed: Cell<bool>,
    /// Something of the exchange's request was written.
    pub(super) has_sent: Cell<bool>,
    /// Something of its response was read.
    pub(super) has_received: Cell<bool>,
    /// For what the time is up.
    late: Cell<Option<Phase>>,
}

/// What an upstream may take its time for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Send,
    FirstByte,
    More,
}

impl Watch {
    pub(super) fn new(timeouts: UpstreamTimeouts) -> Rc<Self> {
        Rc::new(Self {
            timeouts: Cell::new(timeouts),
            is_busy: Cell::new(false),
            body_taken: Cell::new(false),
            body_failed: Cell::new(false),
            has_sent: Cell::new(false),
            has_received: Cell::new(false),
            late: Cell::new(None),
        })
    }

    /// An exchange begins.
    pub(super) fn begin(&self, timeouts: UpstreamTimeouts) {
        self.timeouts.set(timeouts);
        self.is_busy.set(true);
        self.body_taken.set(false);
        self.has_sent.set(false);
        self.has_received.set(false);
    }

    /// Why an exchange that went wrong did, if it can be told from here.
    pub(super) fn failure(&self) -> Option<Failure> {
        if self.body_failed.get() {
            return Some(Failure::ClientBody);
        }
        Some(match self.late.get()? {
            Phase::Send => Failure::SendLate,
            Phase::FirstByte => Failure::FirstByteLate,
            Phase::More => Failure::MoreLate,
        })
    }

    /// What is waited for while nothing comes. An upstream need not answer what it has not got.
    fn awaited(&self) -> Option<Phase> {
        match (self.is_busy.get(), self.has_received.get()) {
            (false, _) => None,
            (true, true) => Some(Phase::More),
            (true, false) => self.body_taken.get().then_some(Phase::FirstByte),
        }
    }

    fn limit(&self, phase: Phase) -> Option<Duration> {
        let timeouts = self.timeouts.get();
        match phase {
            Phase::Send => timeouts.send,
            Phase::FirstByte => timeouts.first_byte,
            Phase::More => timeouts.read,
        }
    }
}

/// A socket whose upstream is watched.
pub(super) struct UpstreamStream {
    stream: Stream,
    watch: Rc<Watch>,
    /// What is waited for, and since when.
    reading: Option<(Phase, Instant)>,
    /// Since when nothing is taken.
    writing: Option<Instant>,
    timer: LateTimer,
}

impl UpstreamStream {
    pub(super) fn new(stream: Stream, watch: Rc<Watch>) -> Self {
        Self {
            stream,
            watch,
            reading: None,
            writing: None,
            timer: LateTimer::default(),
        }
    }

    pub(super) fn into_inner(self) -> Stream {
        self.stream
    }

    /// Nothing has come: an error if it had to.
    fn poll_read_late(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(phase) = self.watch.awaited() else {
            self.reading = None;
            return Poll::Pending;
        };
        let now = softclock::now();
        let since = match self.reading {
            Some((reading, since)) if reading == phase => since,
            _ => now,
        };
        self.reading = Some((phase, since));
        self.poll_late(phase, since, now, cx)
    }

    /// Nothing was taken: an error if it had to.
    fn poll_write_late(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let now = softclock::now();
        let since = *self.writing.get_or_insert(now);
        self.poll_late(Phase::Send, since, now, cx)
    }

    fn poll_late(
        &mut self,
        phase: Phase,
        since: Instant,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<io::Error> {
        let Some(limit) = self.watch.limit(phase) else {
            return Poll::Pending;
        };
        ready!(self.timer.poll_until(since + limit, now, cx));
        self.watch.late.set(Some(phase));
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    fn watched(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.writing = None;
                if bytes > 0 {
                    self.watch.has_sent.set(true);
                }
                written
            }
            Poll::Ready(Err(_)) => written,
            Poll::Pending => self.poll_write_late(cx).map(Err),
        }
    }
}

impl Read for UpstreamStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let received = with_scratch(|scratch| {
            let max = buffer.remaining().min(scratch.len());
            let received = this.stream.poll_receive(cx, &mut scratch[..max]);
            received.map_ok(|n| {
                buffer.put_slice(&scratch[..n]);
                n
            })
        });
        match received {
            Poll::Ready(Ok(bytes)) => {
                this.reading = None;
                if bytes > 0 {
                    this.watch.has_received.set(true);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => this.poll_read_late(cx).map(Err),
        }
    }
}

impl Write for UpstreamStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watched(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.watched(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Lends the thread's buffer for what is received.
pub(super) fn with_scratch<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut scratch = SCRATCH.take();
    scratch.resize(SCRATCH_BYTES, 0);
    let result = f(&mut scratch);
    SCRATCH.set(scratch);
    result
}

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

const SCRATCH_BYTES: usize = 64 << 10;
