//! The socket interface that a connection uses.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::rt::Write;
use softclock::fs::File;

/// A stream socket, or a layer above one.
pub(crate) trait Socket: Write + Unpin {
    /// Reads received bytes; returns 0 at the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Ready when [`poll_receive`](Self::poll_receive) may return data, the end or an error; it may also be pending.
    /// Costs less than a read.
    fn poll_readable(&self, cx: &Context<'_>) -> Poll<()>;

    /// Like [`poll_write_vectored`](Write::poll_write_vectored), for buffers one of which may lie within `shared`: the
    /// socket may keep a reference to it instead of a copy.
    fn poll_write_shared(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
        _shared: &Bytes,
    ) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write_vectored(cx, buffers)
    }

    /// Returns whether a new file may be sent by [`poll_send_file`](Self::poll_send_file). A transfer that has begun
    /// may continue even if this changes.
    fn sends_files(&self) -> bool;

    /// Sends up to `len` bytes of `file` from `offset`, after all bytes written before; returns 0 at the end of the
    /// file.
    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>>;

    /// Returns the bytes written that the client has not acknowledged; 0 if unknown.
    fn unacknowledged(&self) -> u64;

    /// Returns the bytes that the socket has accepted so far; 0 if unknown. Under TLS these are encrypted, and some may
    /// belong to a write that waits.
    fn accepted(&self) -> u64 {
        0
    }

    /// Returns whether a pending write waits for its time (pacing) or its turn, not for the client.
    fn is_held_back(&self) -> bool {
        false
    }

    /// Ready when the connection is known to be lost; a client that has ended only its own direction may still read.
    /// Nothing is read to find out.
    fn poll_lost(&self, cx: &Context<'_>) -> Poll<()>;

    /// Like [`poll_lost`](Self::poll_lost), and also ready when the client is known to have ended its direction, even
    /// while bytes before the end are unread.
    fn poll_ended(&self, cx: &Context<'_>) -> Poll<()>;

    /// Ready when the kernel has all bytes that were written. It sends them even after the descriptor is closed.
    fn poll_sent(&self, _: &Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Makes the later close discard bytes that the client has not taken.
    fn give_up(&self);
}
