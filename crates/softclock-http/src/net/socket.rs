//! What a connection needs of its socket.

use std::io;
use std::task::{Context, Poll};

use hyper::rt::Write;
use softclock::fs::File;

/// A stream socket, or what is layered on one.
pub(crate) trait Socket: Write + Unpin {
    /// Reads what has arrived; 0 at the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Ready when [`poll_receive`](Self::poll_receive) may return something, though it need not. Costs less than a
    /// read.
    fn poll_readable(&self, cx: &Context<'_>) -> Poll<()>;

    /// Whether files may go by [`poll_send_file`](Self::poll_send_file) now; what has begun may go on by it anyway.
    fn sends_files(&self) -> bool;

    /// Sends up to `len` bytes of `file` from `offset` on, behind what was written; 0 where it ends.
    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>>;

    /// Bytes written that the client has not acknowledged; 0 where nobody knows.
    fn unacknowledged(&self) -> u64;

    /// Whether what is to be written waits for its time or its turn, not for the client.
    fn is_held_back(&self) -> bool {
        false
    }

    /// Ready when the client is known to be gone, and not only to have said all it wants. Nothing is read for that.
    fn poll_lost(&self, cx: &Context<'_>) -> Poll<()>;

    /// As [`poll_lost`](Self::poll_lost), and also ready when the client is known to have ended its side, even while
    /// bytes before the end are unread.
    fn poll_ended(&self, cx: &Context<'_>) -> Poll<()>;

    /// Ready when the kernel has all that was written, whose closing then outlives the descriptor.
    fn poll_sent(&self, _: &Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Makes closing discard what the client has not taken.
    fn give_up(&self);
}
