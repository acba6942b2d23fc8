//! The socket as hyper sees it: with a limit to how long a client may take nothing, and a lingering close.
//!
//! A socket that is closed with unread data resets the connection, and a reset may overtake the response in the client's
//! kernel: who uploads something that we refuse would see a broken connection in place of the 405. So a close with
//! input unanswered ends our side first and discards what still comes (RFC 9112, section 9.6).

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use softclock::{Sleep, sleep};

use crate::socket::Stream;

/// Whether the client has sent anything that is no complete request answered since; shared with the service.
pub(crate) type Unanswered = Rc<Cell<bool>>;

/// A socket that limits the client's patience with us, and ours with it.
pub(crate) struct PatientStream {
    stream: Stream,
    unanswered: Unanswered,
    send_timeout: Duration,
    /// The end of our patience while the client takes nothing.
    stalled: Option<Sleep>,
    lingering: Option<Lingering>,
}

struct Lingering {
    end: Sleep,
    discarded: usize,
}

impl PatientStream {
    pub(crate) fn new(stream: Stream, send_timeout: Duration) -> (Self, Unanswered) {
        let unanswered = Unanswered::default();
        let shared = Rc::clone(&unanswered);
        (
            Self {
                stream,
                unanswered,
                send_timeout,
                stalled: None,
                lingering: None,
            },
            shared,
        )
    }

    /// Passes `written` on; an error when nothing could be written for too long.
    fn limit(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| sleep(self.send_timeout));
        Pin::new(stalled)
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Lingering {
    fn new() -> Self {
        Self {
            end: sleep(LINGER),
            discarded: 0,
        }
    }

    /// Ready when the client has closed its side, or has had its chance.
    fn poll_discard(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<()> {
        let mut buffer = [0; DISCARD_BYTES];
        while self.discarded < LINGER_BYTES {
            match stream.poll_read_into(cx, &mut buffer) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(read)) => self.discarded += read,
                Poll::Pending => return Pin::new(&mut self.end).poll(cx),
            }
        }
        Poll::Ready(())
    }
}

impl Read for PatientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.unanswered.set(true);
        Poll::Ready(Ok(()))
    }
}

impl Write for PatientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Write::poll_write(Pin::new(&mut self.stream), cx, bytes);
        self.limit(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Write::poll_write_vectored(Pin::new(&mut self.stream), cx, buffers);
        self.limit(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            if !this.unanswered.get() {
                return Poll::Ready(Ok(()));
            }
        }
        let lingering = this.lingering.get_or_insert_with(Lingering::new);
        lingering.poll_discard(&mut this.stream, cx).map(Ok)
    }
}

/// Long enough for a response to cross the world and for its reader to notice.
const LINGER: Duration = Duration::from_secs(2);

/// Who sends more than this after the end does not listen.
const LINGER_BYTES: usize = 4 << 20;

const DISCARD_BYTES: usize = 8 << 10;
