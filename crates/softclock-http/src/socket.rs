//! What a connection needs of its socket.

use std::io;
use std::task::{Context, Poll};

use hyper::rt::Write;

/// A stream socket, or what is layered on one.
pub(crate) trait Socket: Write + Unpin {
    /// Reads what has arrived; 0 at the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Bytes written that the client has not acknowledged; 0 where nobody knows.
    fn unacknowledged(&self) -> u64;

    /// Whether what was written waits for its time, not for the client.
    fn is_held_back(&self) -> bool {
        false
    }

    /// Makes closing discard what the client has not taken.
    fn give_up(&self);
}
