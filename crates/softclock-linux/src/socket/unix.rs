//! Unix stream sockets, named by a path. Send with the functions of [`tcp`](super::tcp).
//!
//! # Example
//! ```
//! use std::os::fd::AsFd;
//!
//! use softclock_linux::socket::{tcp, unix};
//!
//! # fn main() -> std::io::Result<()> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("socket");
//! let listener = unix::listen(&path, 0o600, 128)?;
//! let client = unix::connect(&path)?;
//! let server = unix::accept(listener.as_fd())?;
//! assert_eq!(tcp::send(client.as_fd(), b"hello")?, 5);
//! let mut buffer = [0; 100];
//! assert_eq!(unix::recv(server.as_fd(), &mut buffer)?, (5, false));
//! std::fs::remove_file(&path)
//! # }
//! ```

use std::io::{self, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, chmod};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SocketAddrUnix, SocketType,
};

use super::common::NEW_SOCKET;

/// Creates a listening socket at `path` with the permissions `mode`. Makes four system calls.
///
/// Sets the permissions before the socket listens, since connecting is not possible until then. Fails with `AddrInUse`
/// if `path` exists.
pub fn listen(path: &Path, mode: u32, backlog: u32) -> io::Result<OwnedFd> {
    let fd = open()?;
    net::bind(&fd, &SocketAddrUnix::new(path)?)?;
    chmod(path, Mode::from_raw_mode(mode & 0o777))?;
    net::listen(&fd, backlog.min(i32::MAX as u32) as i32)?;
    Ok(fd)
}

/// Accepts the next connection of the backlog.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(net::accept_with(listener, NEW_SOCKET)?)
}

/// Connects to the listening socket at `path`. Makes two system calls, and never leaves a connection in progress: fails
/// with `WouldBlock` if the listener's backlog is full.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let fd = open()?;
    net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(fd)
}

/// Like [`tcp::recv`](super::tcp::recv). Also returns whether the message had descriptors, which are closed: a read ends
/// behind such a message, although more may have arrived.
pub fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, bool)> {
    let mut parts = [IoSliceMut::new(buffer)];
    let mut control = RecvAncillaryBuffer::default();
    let received = net::recvmsg(fd, &mut parts, &mut control, RecvFlags::empty())?;
    Ok((received.bytes, received.flags.contains(ReturnFlags::CTRUNC)))
}

fn open() -> io::Result<OwnedFd> {
    Ok(net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        NEW_SOCKET,
        None,
    )?)
}

#[cfg(test)]
mod tests {
    use super::super::common::testing::until_readable;
    use super::super::tcp::send;
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn connects_with_the_mode_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = listen(&path, 0o640, 8).unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let here = connect(&path).unwrap();
        let there = accept(listener.as_fd()).unwrap();
        assert_eq!(send(here.as_fd(), b"abc").unwrap(), 3);
        until_readable(there.as_fd());
        let mut buffer = [0; 8];
        assert_eq!(recv(there.as_fd(), &mut buffer).unwrap(), (3, false));
        drop(listener);
        assert_eq!(
            connect(&path).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        let taken = listen(&path, 0o600, 8).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
