//! Sends to a connected socket of any kind.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use rustix::io::retry_on_intr;
use rustix::net::{SendAncillaryBuffer, SendFlags, SocketType, sendmsg, sockopt};

/// Returns whether the socket keeps the boundaries of messages, as those of UDP do.
///
/// # Errors
/// Returns ENOTSOCK for other descriptors.
pub fn has_messages(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sockopt::socket_type(fd)? != SocketType::STREAM)
}

/// Sends the parts as one message, or as a part of the stream, without waiting, and returns the number of bytes sent. A
/// connection that has ended causes an error and no signal.
///
/// # Errors
/// Returns `WouldBlock` if the socket has no room, and the other errors of sendmsg(2).
pub fn send_now(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let send = || sendmsg(fd, parts, &mut SendAncillaryBuffer::default(), flags);
    Ok(retry_on_intr(send)?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    #[test]
    fn parts_are_sent_together_and_nothing_waits() {
        let (here, there) = UnixDatagram::pair().unwrap();
        assert!(has_messages(here.as_fd()).unwrap());
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b"c")];
        assert_eq!(send_now(here.as_fd(), &parts).unwrap(), 3);
        let mut buffer = [0; 8];
        assert_eq!(there.recv(&mut buffer).unwrap(), 3);

        let (here, there) = UnixStream::pair().unwrap();
        assert!(!has_messages(here.as_fd()).unwrap());
        let full = loop {
            if let Err(error) = send_now(here.as_fd(), &parts) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(there);
        let ended = send_now(here.as_fd(), &parts).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::BrokenPipe);
    }
}
