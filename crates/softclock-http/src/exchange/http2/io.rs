//! The socket below h2: tokio's traits over a [`Stream`], with checks of the client's progress and credit.
//!
//! As in HTTP/1, writes fail with [`TimedOut`](io::ErrorKind::TimedOut) when the client reads nothing, or too little,
//! for too long. On request, the socket also reports how much of the output has reached the client, for
//! [`Flows`](super::flow::Flows).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::Write;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::RECEIVE_WINDOW;
use super::credit::Credit;
use super::flow::{Delivery, Transport};
use crate::client::options::Timeouts;
use crate::client::patience::ClientPatience;
use crate::exchange::linger::{self, Linger};
use crate::net::buffers;
use crate::net::carrier::Stream;
use crate::net::socket::Socket;

/// A socket that checks its client's progress and credit.
pub(super) struct Watched {
    stream: Stream,
    patience: ClientPatience,
    transport: Rc<Transport>,
    credit: Rc<Credit>,
    /// The value of [`Transport::written`] at the last complete flush: so many bytes were passed to the kernel.
    flushed: u64,
    /// Whether the last write or flush had to wait.
    is_blocked: bool,
    /// The wait for the client's end, once all output is sent.
    linger: Option<Linger>,
}

impl Watched {
    pub(super) fn new(
        stream: Stream,
        timeouts: Timeouts,
        transport: Rc<Transport>,
        credit: Rc<Credit>,
    ) -> Self {
        Self {
            stream,
            patience: ClientPatience::new(timeouts),
            transport,
            credit,
            flushed: 0,
            is_blocked: false,
            linger: None,
        }
    }

    /// Records the result of a write and returns it, or an error when the client has read too little for too long.
    fn watch<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        bytes: impl FnOnce(&T) -> usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        self.report_delivery();
        self.is_blocked = written.is_pending();
        match &written {
            // A flush counts as a write of no bytes: it ends a blocked state, too.
            Poll::Ready(Ok(taken)) => {
                let bytes = bytes(taken);
                let transport = &self.transport;
                transport
                    .written
                    .set(transport.written.get() + bytes as u64);
                self.patience.on_written(bytes);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                ready!(self.patience.poll_blocked(&self.stream, cx));
                // Resets the connection at its close, so that the kernel does not keep the unread output.
                self.stream.give_up();
                self.transport.is_stuck.set(true);
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
    }

    /// Gives the client credit for written bytes.
    fn on_sent(&self, written: &Poll<io::Result<usize>>, buffers: &[IoSlice<'_>]) {
        if let Poll::Ready(Ok(written)) = written {
            self.credit.on_sent(*written, buffers);
        }
    }

    /// Reports how much output was delivered, if [`Transport::is_asked`] is set.
    fn report_delivery(&self) {
        if !self.transport.is_asked.replace(false) {
            return;
        }
        let underway = self.stream.unacknowledged();
        let waiting = self.stream.held_back_bytes();
        // All bytes underway wait for pacing: none is sent that the client has not acknowledged.
        let is_held_back = waiting > 0 && underway == waiting;
        // While h2 always has more to write, no flush completes, and `flushed` alone would lag behind.
        let passed_on =
            (self.transport.written.get().saturating_sub(ENCRYPTED_BYTES)).max(self.flushed);
        let acknowledged = self.stream.bytes_written().saturating_sub(underway);
        let is_delivered = underway == 0 && !self.is_blocked;
        self.transport.is_delivered.set(is_delivered);
        self.transport.is_held_back.set(is_held_back);
        self.transport.acknowledged.set(acknowledged);
        self.transport.delivery.set(Some(Delivery {
            acknowledged,
            bytes: passed_on.saturating_sub(underway),
            is_complete: is_delivered,
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
        self.report_delivery();
        if self.credit.overdrawn().is_some() {
            return Poll::Pending;
        }
        // h2's buffer is uninitialised memory, from which the meter cannot read: charge first, then copy.
        let read = buffers::with_scratch(|received| {
            let max = buffer.remaining().min(received.len());
            let read = ready!(self.stream.poll_receive(cx, &mut received[..max]))?;
            // Charged before h2 decodes the bytes. If the credit does not cover them, the connection reads no more, and
            // its task ends it.
            if !self.credit.covers(&received[..read]) {
                return Poll::Pending;
            }
            buffer.put_slice(&received[..read]);
            Poll::Ready(Ok(()))
        });
        if read.is_ready() {
            self.transport.heard.set(Some(softclock::now()));
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
            self.flushed = self.transport.written.get();
        }
        self.watch(flushed, |()| 0, cx)
    }

    /// Ready when the kernel has taken all output, and the client has closed its side, or had time to read a GOAWAY
    /// that explains the end. Until then a paced connection keeps its descriptor, and counts against the limit of
    /// connections.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            let sent = this.stream.poll_sent(cx);
            ready!(this.watch(sent, |()| 0, cx))?;
            // What a client has sent too much of is not read.
            if this.credit.overdrawn().is_some() {
                return Poll::Ready(Ok(()));
            }
        }
        // All that a client may have sent before it reads the GOAWAY, and its heads.
        let most = 2 * RECEIVE_WINDOW as usize;
        let begin = || Linger::new(most, linger::LIMIT, softclock::now());
        let linger = this.linger.get_or_insert_with(begin);
        linger.poll(&mut this.stream, cx).map(Ok)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stream.give_up_unsent();
    }
}

/// The most bytes that can wait in the TLS layer for the kernel: rustls buffers at most 64 KiB, and each record adds a
/// header.
const ENCRYPTED_BYTES: u64 = 96 << 10;
