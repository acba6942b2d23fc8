//! Sending from a file without copying through user space.

use std::io;
use std::os::fd::BorrowedFd;

/// Sends up to `len` bytes of `file`, from `offset` on, on a stream socket; returns how many went out.
///
/// 0 means that the file ends at `offset`. It reads the disk in the calling thread where the file is not cached.
pub fn sendfile(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    mut offset: u64,
    len: usize,
) -> io::Result<usize> {
    Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), len)?)
}
