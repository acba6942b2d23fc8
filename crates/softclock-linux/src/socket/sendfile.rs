//! Sending from a file without copying through user space.

use std::io;
use std::os::fd::BorrowedFd;

/// Sends up to `len` bytes of `file`, from `offset` on, on a stream socket; returns how many went out.
///
/// 0 means that the file ends at `offset`. It reads the disk in the calling thread where the file is not cached
/// ([`is_cached`](crate::page_cache::is_cached)). What is sent are the pages of the cache themselves: a change of the file
/// shows until the peer has them.
///
/// If the peer is gone it raises SIGPIPE, which the kernel cannot be told to leave out here, and which Rust's programs
/// ignore.
pub fn sendfile(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    mut offset: u64,
    len: usize,
) -> io::Result<usize> {
    Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), len)?)
}
