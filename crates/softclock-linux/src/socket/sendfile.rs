//! Sending from a file without copying through user space.

use std::io;
use std::os::fd::BorrowedFd;

/// Sends up to `len` bytes of `file` from `offset` on, on a stream socket. Returns the number of bytes sent, 0 if the
/// file ends at `offset`.
///
/// Blocks for the disk if the data is not in the page cache; check with [`is_cached`](crate::page_cache::is_cached).
/// The socket's buffer holds references to the cached pages, not copies, so a change to the file shows in data that the
/// peer has not received yet.
///
/// If the peer has closed the connection, the call raises SIGPIPE: unlike send(2), sendfile(2) has no flag against
/// that. Rust's runtime ignores the signal, and the call fails with `BrokenPipe`.
pub fn sendfile(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    mut offset: u64,
    len: usize,
) -> io::Result<usize> {
    Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), len)?)
}
