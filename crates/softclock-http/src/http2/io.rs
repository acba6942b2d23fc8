//! The socket as h2 sees it: by tokio's traits, and watched.
//!
//! A socket that takes nothing, or too little, of what h2 writes is given up, as in HTTP/1. It also tells how much of
//! what was written has reached the client, for the streams ([`Flows`](super::flow::Flows)).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::Write;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::credit::Credit;
use super::flow::{Delivery, Line};
use crate::carrier::Stream;
use crate::connection::Timeouts;
use crate::patience::Patience;
use crate::pool;
use crate::socket::Socket;

/// A socket whose client is watched.
pub(super) struct Watched {
    stream: Stream,
    patience: Patience,
    line: Rc<Line>,
    credit: Rc<Credit>,
    /// Bytes of [`Line::written`] that were encrypted and passed on.
    flushed: u64,
}

impl Watched {
    pub(super) fn new(
        stream: Stream,
        timeouts: Timeouts,
        line: Rc<Line>,
        credit: Rc<Credit>,
    ) -> Self {
        Self {
            stream,
            patience: Patience::new(timeouts),
            line,
            credit,
            flushed: 0,
        }
    }

    /// Passes `written` on; an error when the client takes too little.
    fn watch<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        bytes: impl FnOnce(&T) -> usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        self.tell();
        match &written {
            Poll::Ready(Ok(taken)) => {
                let bytes = bytes(taken);
                let line = &self.line;
                line.written.set(line.written.get() + bytes as u64);
                self.patience.on_written(bytes);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                ready!(self.patience.poll_blocked(&self.stream, cx));
                self.stream.give_up();
                self.line.is_stuck.set(true);
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
    }

    /// What is written gives the client credit.
    fn on_sent(&self, written: &Poll<io::Result<usize>>, buffers: &[IoSlice<'_>]) {
        if let Poll::Ready(Ok(written)) = written {
            self.credit.on_sent(*written, buffers);
        }
    }

    /// Says how much was delivered, if that was asked.
    fn tell(&self) {
        if !self.line.is_asked.replace(false) {
            return;
        }
        let underway = self.stream.unacknowledged();
        let paced = self.stream.paced_bytes();
        let is_held_back = paced > 0 && underway == paced;
        // While there is always more to write, encrypted bytes are never all passed on.
        let passed_on = (self.line.written.get().saturating_sub(ENCRYPTED_BYTES)).max(self.flushed);
        let acknowledged = self.stream.bytes_written().saturating_sub(underway);
        self.line.is_held_back.set(is_held_back);
        self.line.acknowledged.set(acknowledged);
        self.line.delivery.set(Some(Delivery {
            acknowledged,
            bytes: passed_on.saturating_sub(underway),
            is_held_back,
        }));
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.tell();
        if self.credit.overdrawn().is_some() {
            return Poll::Pending;
        }
        // h2's buffers are not initialised.
        let read = pool::with_scratch(|received| {
            let max = buffer.remaining().min(received.len());
            let read = ready!(self.stream.poll_receive(cx, &mut received[..max]))?;
            // Weighed before h2 decodes it. The connection ends where the credit does not cover it, and reads no more.
            if !self.credit.covers(&received[..read]) {
                return Poll::Pending;
            }
            buffer.put_slice(&received[..read]);
            Poll::Ready(Ok(()))
        });
        if read.is_ready() {
            self.line.heard.set(Some(softclock::now()));
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.on_sent(&written, &[IoSlice::new(bytes)]);
        self.watch(written, |&bytes| bytes, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.on_sent(&written, buffers);
        self.watch(written, |&bytes| bytes, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            self.flushed = self.line.written.get();
        }
        self.watch(flushed, |()| 0, cx)
    }

    /// Ready when the kernel has all that was written: until then a paced connection holds its descriptor, and so its
    /// place.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        let sent = self.stream.poll_sent(cx);
        self.watch(sent, |()| 0, cx)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stream.give_up_unsent();
    }
}

/// The most that waits encrypted to be passed on: rustls takes no more than 64 KiB, each record of which has a head.
const ENCRYPTED_BYTES: u64 = 96 << 10;
