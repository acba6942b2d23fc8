//! Connections over TCP or Unix sockets, plain or through TLS.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Shutdown};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_rustls::server::TlsStream;
use hyper::rt::{Read, ReadBufCursor, Write};
use softclock::fs::File;
use softclock::net::relay::Supervise;
use softclock::net::{TcpStream, UnixStream};

use crate::net::buffers::with_scratch;
use crate::net::socket::Socket;

/// A stream socket of the kernel.
pub(crate) enum Carrier {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A byte stream that carries HTTP.
pub(crate) enum Stream {
    Plain(Carrier),
    Tls(Box<TlsStream<Carrier>>),
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Internet(IpAddr),
    /// A process on this machine, connected through a Unix socket.
    Local,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(address) => address.to_canonical().fmt(f),
            Self::Local => f.write_str("unix:"),
        }
    }
}

/// Calls the same method on either variant; both take the arguments that futures-io uses.
macro_rules! each {
    ($carrier:expr, $stream:ident => $call:expr) => {
        match $carrier {
            Carrier::Tcp($stream) => $call,
            Carrier::Unix($stream) => $call,
        }
    };
}

impl Carrier {
    /// Reads received bytes; returns 0 at the end.
    pub(crate) fn poll_receive(
        &self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_read(cx, buffer))
    }

    /// Writes as many bytes as the socket accepts.
    pub(crate) fn poll_send(
        &self,
        cx: &Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A plain write costs less than a vectored one.
        match buffers {
            [buffer] => each!(self, stream => stream.poll_write(cx, buffer)),
            _ => each!(self, stream => stream.poll_write_vectored(cx, buffers)),
        }
    }

    /// Ready when the connection is known to be lost. A peer that has ended only its own direction may still read.
    fn poll_lost(&self, cx: &Context<'_>) -> Poll<()> {
        each!(self, stream => stream.poll_lost(cx))
    }

    /// Ready when the peer is known to send no more, or when the connection is lost.
    fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        each!(self, stream => stream.poll_ended(cx))
    }

    /// Drops the wakers of tasks that wait to read; a task that still wants to read must poll again.
    pub(crate) fn forget_readers(&self) {
        each!(self, stream => stream.forget_readers());
    }

    /// Closes the connection with a reset, so that the kernel discards unsent bytes.
    pub(crate) fn reset(self) {
        self.give_up();
    }

    /// Makes the later close a reset.
    fn give_up(&self) {
        if let Self::Tcp(stream) = self {
            // If this fails, the kernel discards the bytes itself after its own timeouts.
            let _ = stream.set_linger(Some(Duration::ZERO));
        }
    }

    /// Ends the sending direction.
    pub(crate) fn end(&self) -> io::Result<()> {
        each!(self, stream => stream.shutdown(Shutdown::Write))
    }
}

impl Carrier {
    /// Waits for the first byte or the end of the stream, without reading it.
    pub(crate) fn poll_heard(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_peek(cx, &mut [0])).map_ok(drop)
    }
}

impl futures_io::AsyncRead for Carrier {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_receive(cx, buffer)
    }
}

impl futures_io::AsyncWrite for Carrier {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(&*self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(&*self, stream => stream.poll_write_vectored(cx, buffers))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.end())
    }
}

impl Socket for Stream {
    fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(carrier) => each!(carrier, stream => stream.poll_read(cx, buffer)),
            Self::Tls(tls) => futures_io::AsyncRead::poll_read(Pin::new(tls), cx, buffer),
        }
    }

    fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        match self {
            Self::Plain(carrier) => each!(carrier, stream => stream.poll_read_ready(cx)),
            // TLS may hold decrypted bytes that the socket does not report.
            Self::Tls(_) => Poll::Ready(()),
        }
    }

    fn poll_write_shared(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
        shared: &Bytes,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(Carrier::Tcp(stream)) => stream.poll_write_shared(cx, buffers, shared),
            _ => Pin::new(self).poll_write_vectored(cx, buffers),
        }
    }

    fn sends_files(&self) -> bool {
        matches!(self, Self::Plain(Carrier::Tcp(stream)) if !stream.is_paced())
    }

    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(Carrier::Tcp(stream)) => stream.poll_send_file(cx, file, offset, len),
            _ => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    fn unacknowledged(&self) -> u64 {
        match self.carrier() {
            Carrier::Tcp(stream) => stream.unacknowledged().unwrap_or(0),
            // Written bytes are in the receive queue of the other process.
            Carrier::Unix(_) => 0,
        }
    }

    fn accepted(&self) -> u64 {
        self.bytes_written()
    }

    fn is_held_back(&self) -> bool {
        matches!(self.carrier(), Carrier::Tcp(stream) if stream.is_held_back())
    }

    fn poll_lost(&self, cx: &Context<'_>) -> Poll<()> {
        self.carrier().poll_lost(cx)
    }

    fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.carrier().poll_ended(cx)
    }

    fn poll_sent(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self.carrier() {
            Carrier::Tcp(stream) => stream.poll_sent(cx),
            Carrier::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    fn give_up(&self) {
        self.carrier().give_up();
    }
}

impl Stream {
    /// Returns the bytes that were written but wait for pacing. They are a part of the unacknowledged ones.
    pub(crate) fn paced_bytes(&self) -> u64 {
        match self.carrier() {
            Carrier::Tcp(stream) => stream.paced_bytes() as u64,
            Carrier::Unix(_) => 0,
        }
    }

    /// Returns the bytes that were written but wait for the stated rate, here or in a stack of this process. They are a
    /// part of the unacknowledged ones.
    pub(crate) fn held_back_bytes(&self) -> u64 {
        match self.carrier() {
            Carrier::Tcp(stream) => stream.held_back_bytes() as u64,
            Carrier::Unix(_) => 0,
        }
    }

    /// Makes the later close a reset if pacing still holds bytes back. Otherwise sending them would keep the descriptor
    /// open after the connection has stopped counting towards the limit.
    pub(crate) fn give_up_unsent(&self) {
        if self.paced_bytes() > 0 {
            self.give_up();
        }
    }

    /// Returns the bytes that the socket has accepted; under TLS the encrypted ones.
    pub(crate) fn bytes_written(&self) -> u64 {
        match self.carrier() {
            Carrier::Tcp(stream) => stream.bytes_written(),
            // A Unix socket delivers bytes when it accepts them, so each write is progress by itself.
            Carrier::Unix(_) => 0,
        }
    }

    fn carrier(&self) -> &Carrier {
        match self {
            Self::Plain(carrier) => carrier,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Plain(Carrier::Tcp(stream))
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(carrier) => {
                each!(carrier, stream => Read::poll_read(Pin::new(stream), cx, buffer))
            }
            // futures-io requires an initialised buffer, and hyper's is not.
            Self::Tls(tls) => with_scratch(|scratch| {
                let max = buffer.remaining().min(scratch.len());
                let read = futures_io::AsyncRead::poll_read(Pin::new(tls), cx, &mut scratch[..max]);
                read.map_ok(|n| buffer.put_slice(&scratch[..n]))
            }),
        }
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(carrier) => each!(carrier, stream => stream.poll_write(cx, bytes)),
            Self::Tls(tls) => futures_io::AsyncWrite::poll_write(Pin::new(tls), cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(carrier) => {
                each!(carrier, stream => stream.poll_write_vectored(cx, buffers))
            }
            Self::Tls(tls) => {
                futures_io::AsyncWrite::poll_write_vectored(Pin::new(tls), cx, buffers)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => futures_io::AsyncWrite::poll_flush(Pin::new(tls), cx),
        }
    }

    /// Ends the sending direction; under TLS after a close_notify alert.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(carrier) => futures_io::AsyncWrite::poll_close(Pin::new(carrier), cx),
            Self::Tls(tls) => futures_io::AsyncWrite::poll_close(Pin::new(tls), cx),
        }
    }
}
