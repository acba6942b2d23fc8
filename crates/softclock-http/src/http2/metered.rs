//! The stream of a connection as hyper sees it: what it reads is weighed before.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

use super::meter::Meter;
use crate::carrier::{Peer, Stream};
use crate::connection::ConnectionOptions;
use crate::limit::Limit;
use crate::pool::with_scratch;
use crate::socket::Socket;

/// A stream whose client has a bounded credit.
pub(super) struct MeteredStream {
    stream: Stream,
    credit: Rc<Credit>,
}

/// What is left of it, for all who see what the client does.
pub(super) struct Credit {
    meter: RefCell<Meter>,
    peer: Peer,
    fields: usize,
}

impl Credit {
    pub(super) fn new(peer: Peer, options: &ConnectionOptions) -> Rc<Self> {
        let fields = options.head.fields;
        let meter = Meter::new(options.control_frames, fields, softclock::now());
        Rc::new(Self {
            meter: RefCell::new(meter),
            peer,
            fields,
        })
    }

    /// A request with so many fields has come. One with too many is refused, which costs as much as reading them did.
    pub(super) fn on_request(&self, fields: usize) {
        if fields > self.fields {
            self.meter.borrow_mut().on_refused(fields);
        }
    }
}

impl MeteredStream {
    pub(super) fn new(stream: Stream, credit: Rc<Credit>) -> Self {
        Self { stream, credit }
    }

    /// Tells the client, if it can take that at once, and ends the connection.
    fn end(&mut self, limit: Limit, cx: &mut Context<'_>) -> io::Error {
        limit.reached(self.credit.peer, "connection of HTTP/2 ended");
        let last_stream = self.credit.meter.borrow().last_stream();
        if let Some(last_stream) = last_stream {
            let _ = Pin::new(&mut self.stream).poll_write(cx, &go_away(last_stream));
            let _ = Pin::new(&mut self.stream).poll_flush(cx);
        }
        io::Error::other("the client sends too much for what it gets")
    }

    fn on_sent(&self, written: usize, buffers: &[IoSlice<'_>]) {
        let mut meter = self.credit.meter.borrow_mut();
        let mut left = written;
        for buffer in buffers {
            let now = buffer.len().min(left);
            meter.on_sent(&buffer[..now]);
            left -= now;
        }
    }
}

/// A GOAWAY frame that says ENHANCE_YOUR_CALM.
fn go_away(last_stream: u32) -> [u8; 17] {
    let [a, b, c, d] = last_stream.to_be_bytes();
    [0, 0, 8, 7, 0, 0, 0, 0, 0, a, b, c, d, 0, 0, 0, 0xb]
}

impl Read for MeteredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let limit = with_scratch(|scratch| {
            let max = buffer.remaining().min(scratch.len());
            let received = ready!(this.stream.poll_receive(cx, &mut scratch[..max]))?;
            let received = &scratch[..received];
            let mut meter = this.credit.meter.borrow_mut();
            let weighed = meter.on_received(received, softclock::now());
            if weighed.is_ok() {
                buffer.put_slice(received);
            }
            Poll::Ready(io::Result::Ok(weighed.err()))
        });
        match ready!(limit)? {
            None => Poll::Ready(Ok(())),
            Some(limit) => Poll::Ready(Err(this.end(limit, cx))),
        }
    }
}

impl Write for MeteredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.on_sent(written, &[IoSlice::new(bytes)]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, buffers))?;
        self.on_sent(written, buffers);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
