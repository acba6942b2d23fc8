//! TCP sockets; `options`: those of connections.
//!
//! ```
//! use std::net::SocketAddr;
//! use std::os::fd::AsFd;
//!
//! use softclock_linux::socket::{local_addr, tcp};
//!
//! # fn main() -> std::io::Result<()> {
//! let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
//! let listener = tcp::listen(loopback, &tcp::ListenOptions::default())?;
//! let client = tcp::connect_start(local_addr(listener.as_fd())?)?;
//! let (server, _address) = loop {
//!     match tcp::accept(listener.as_fd()) {
//!         // A program would wait until a poller reports the listener as readable.
//!         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
//!         accepted => break accepted?,
//!     }
//! };
//! tcp::connect_finish(client.as_fd())?;
//! assert_eq!(tcp::send(server.as_fd(), b"hello")?, 5);
//! # Ok(())
//! # }
//! ```

mod options;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendFlags, SocketType, sockopt};

use super::common::{NEW_SOCKET, internet, open};
use super::take_error;

pub use options::{
    keep_alive, keep_alive_times, linger, nodelay, notsent_lowat, set_keep_alive,
    set_keep_alive_times, set_linger, set_max_pacing_rate, set_nodelay, set_notsent_lowat,
    set_user_timeout, unacknowledged, user_timeout,
};

/// Options of a listening socket.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Allows binding while connections of an earlier listener are in TIME_WAIT (SO_REUSEADDR). On by default.
    pub reuse_address: bool,
    /// Allows several sockets to listen on the address; the kernel spreads connections over them (SO_REUSEPORT). Off by
    /// default.
    pub reuse_port: bool,
    /// The number of established connections that may wait to be accepted, 4096 by default. The kernel limits it to
    /// net.core.somaxconn.
    pub backlog: u32,
    /// Whether an IPv6 socket refuses IPv4 connections. `None`, the default, leaves that to net.ipv6.bindv6only.
    pub v6_only: Option<bool>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            reuse_address: true,
            reuse_port: false,
            backlog: 4096,
            v6_only: None,
        }
    }
}

/// Creates a listening socket. Makes four to six system calls.
///
/// Fails with `AddrInUse` if the port is taken, `AddrNotAvailable` if this machine does not have the address, and
/// `PermissionDenied` for ports below 1024 without CAP_NET_BIND_SERVICE.
pub fn listen(address: SocketAddr, options: &ListenOptions) -> io::Result<OwnedFd> {
    let fd = open(address, SocketType::STREAM)?;
    sockopt::set_socket_reuseaddr(&fd, options.reuse_address)?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    if let (SocketAddr::V6(_), Some(v6_only)) = (address, options.v6_only) {
        sockopt::set_ipv6_v6only(&fd, v6_only)?;
    }
    net::bind(&fd, &address)?;
    net::listen(&fd, options.backlog.min(i32::MAX as u32) as i32)?;
    Ok(fd)
}

/// Accepts the next connection of the backlog, and returns it with its peer's address.
///
/// `ConnectionAborted` and the network errors listed in accept(2) concern one connection, not the listener: call again.
/// EMFILE and ENFILE mean that descriptors ran out; the connection then stays in the backlog.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let (fd, peer) = net::acceptfrom_with(listener, NEW_SOCKET)?;
    let peer = peer.ok_or(io::ErrorKind::ConnectionAborted)?;
    Ok((fd, internet(peer)?))
}

/// Starts to connect to `peer`. When the socket becomes writable, [`connect_finish`] returns the result. Two system
/// calls.
pub fn connect_start(peer: SocketAddr) -> io::Result<OwnedFd> {
    let fd = open(peer, SocketType::STREAM)?;
    match net::connect(&fd, &peer) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(error) => Err(error.into()),
    }
}

/// Returns the result of a connection attempt, or `WouldBlock` while it is in progress. Two system calls.
pub fn connect_finish(fd: BorrowedFd<'_>) -> io::Result<()> {
    if let Some(error) = take_error(fd)? {
        return Err(error);
    }
    match net::getpeername(fd) {
        Ok(_) => Ok(()),
        Err(Errno::NOTCONN) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error.into()),
    }
}

/// Receives into `buffer`, and returns the number of bytes; 0 is the end of the stream.
pub fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (received, _) = net::recv(fd, buffer, RecvFlags::empty())?;
    Ok(received)
}

/// Like [`recv`], into several buffers, one after the other. Uses the first [`MOST_PARTS`] of them only.
pub fn recv_vectored(fd: BorrowedFd<'_>, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let most = buffers.len().min(MOST_PARTS);
    Ok(rustix::io::readv(fd, &mut buffers[..most])?)
}

/// Like [`recv`], but leaves the received bytes in the socket, so that the next call receives them again.
pub fn peek(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (received, _) = net::recv(fd, buffer, RecvFlags::PEEK)?;
    Ok(received)
}

/// Receives into memory that need not be initialised, and returns the part that holds the received bytes.
pub fn recv_uninit<'a>(
    fd: BorrowedFd<'_>,
    buffer: &'a mut [MaybeUninit<u8>],
) -> io::Result<&'a mut [u8]> {
    let ((received, _), _) = net::recv(fd, buffer, RecvFlags::empty())?;
    Ok(received)
}

/// Sends a first part of `data`, and returns its length.
pub fn send(fd: BorrowedFd<'_>, data: &[u8]) -> io::Result<usize> {
    Ok(net::send(fd, data, SendFlags::NOSIGNAL)?)
}

/// Sends a first part of the concatenated `parts`, and returns its length. Uses the first [`MOST_PARTS`] parts only.
pub fn send_vectored(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let parts = &parts[..parts.len().min(MOST_PARTS)];
    let mut control = SendAncillaryBuffer::default();
    Ok(net::sendmsg(fd, parts, &mut control, SendFlags::NOSIGNAL)?)
}

/// Closes one or both directions of the connection (shutdown(2)).
pub fn shutdown(fd: BorrowedFd<'_>, how: Shutdown) -> io::Result<()> {
    let how = match how {
        Shutdown::Read => net::Shutdown::Read,
        Shutdown::Write => net::Shutdown::Write,
        Shutdown::Both => net::Shutdown::Both,
    };
    Ok(net::shutdown(fd, how)?)
}

/// Creates a connected pair over loopback, for tests and examples. Blocks until the connection is established.
#[doc(hidden)]
pub fn pair(address: SocketAddr) -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::event::{PollFd, PollFlags, poll};
    let listener = listen(address, &ListenOptions::default())?;
    let here = connect_start(super::local_addr(listener.as_fd())?)?;
    poll(&mut [PollFd::new(&listener, PollFlags::IN)], None)?;
    let (there, _) = accept(listener.as_fd())?;
    poll(&mut [PollFd::new(&here, PollFlags::OUT)], None)?;
    connect_finish(here.as_fd())?;
    Ok((here, there))
}

/// The most parts of one [`send_vectored`] (UIO_MAXIOV of the kernel, which refuses more with EMSGSIZE).
pub const MOST_PARTS: usize = 1024;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::super::common::testing::{loopbacks, until_readable, until_writable};
    use super::super::{local_addr, peer_addr, sendfile};
    use super::*;

    fn receive(fd: &OwnedFd) -> Vec<u8> {
        let mut buffer = [0; 100];
        until_readable(fd.as_fd());
        let received = recv(fd.as_fd(), &mut buffer).unwrap();
        buffer[..received].to_vec()
    }

    #[test]
    fn connects_sends_and_ends() {
        for address in loopbacks() {
            let (here, there) = pair(address).unwrap();
            let local = local_addr(here.as_fd()).unwrap();
            assert_eq!(local, peer_addr(there.as_fd()).unwrap());
            set_nodelay(here.as_fd(), true).unwrap();

            let empty = recv(there.as_fd(), &mut [0]).unwrap_err();
            assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
            assert_eq!(send(here.as_fd(), b"abc").unwrap(), 3);
            assert_eq!(receive(&there), b"abc");
            let parts = [IoSlice::new(b"de"), IoSlice::new(b"f")];
            assert_eq!(send_vectored(here.as_fd(), &parts).unwrap(), 3);
            until_readable(there.as_fd());
            let mut buffer = [MaybeUninit::uninit(); 10];
            assert_eq!(recv_uninit(there.as_fd(), &mut buffer).unwrap(), b"def");

            shutdown(here.as_fd(), Shutdown::Write).unwrap();
            assert_eq!(receive(&there), b"");
            send(there.as_fd(), b"still").unwrap();
            assert_eq!(receive(&here), b"still");
        }
    }

    #[test]
    fn a_refused_connection_says_so() {
        for address in loopbacks() {
            let listener = listen(address, &ListenOptions::default()).unwrap();
            let address = local_addr(listener.as_fd()).unwrap();
            drop(listener);
            let result = connect_start(address).and_then(|fd| {
                until_writable(fd.as_fd());
                connect_finish(fd.as_fd())
            });
            let error = result.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
    }

    #[test]
    fn sending_to_a_reset_connection_is_an_error_not_a_signal() {
        for address in loopbacks() {
            let (here, there) = pair(address).unwrap();
            set_linger(there.as_fd(), Some(Duration::ZERO)).unwrap();
            drop(there);
            until_readable(here.as_fd());
            assert!(take_error(here.as_fd()).unwrap().is_some());
            let error = send(here.as_fd(), b"x").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        }
    }

    /// Sends until the socket accepts no more, and returns the number of bytes sent.
    fn fill(fd: &OwnedFd) -> u64 {
        let chunk = vec![0; 1 << 16];
        let sent = std::iter::from_fn(|| send(fd.as_fd(), &chunk).ok());
        sent.map(|n| n as u64).sum()
    }

    #[test]
    fn what_waits_for_the_window_can_be_limited() {
        for address in loopbacks() {
            let (free, _there) = pair(address).unwrap();
            let (limited, _there) = pair(address).unwrap();
            set_notsent_lowat(limited.as_fd(), 1 << 16).unwrap();
            let (free, limited) = (fill(&free), fill(&limited));
            assert!(limited < free / 2, "{limited} and {free}");
        }
    }

    #[test]
    fn what_is_not_taken_is_not_acknowledged() {
        for address in loopbacks() {
            let (here, there) = pair(address).unwrap();
            let written = fill(&here);
            let waiting = unacknowledged(here.as_fd()).unwrap();
            assert!((1..=written).contains(&waiting), "{waiting} of {written}");
            assert_eq!(unacknowledged(there.as_fd()).unwrap(), 0);
        }
    }

    #[test]
    fn a_port_is_shared_only_on_request() {
        for address in loopbacks() {
            let options = ListenOptions {
                reuse_port: true,
                v6_only: Some(true),
                ..ListenOptions::default()
            };
            let first = listen(address, &options).unwrap();
            let address = local_addr(first.as_fd()).unwrap();
            listen(address, &options).unwrap();
            let error = listen(address, &ListenOptions::default()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn sends_files() {
        let path = std::env::temp_dir().join(format!("softclock-sendfile-{}", std::process::id()));
        let mut file = std::fs::File::create_new(&path).unwrap();
        file.write_all(b"0123456789").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for address in loopbacks() {
            let (here, there) = pair(address).unwrap();
            let sent = sendfile(here.as_fd(), file.as_fd(), 3, 4).unwrap();
            assert_eq!((sent, receive(&there)), (4, b"3456".to_vec()));
            assert_eq!(sendfile(here.as_fd(), file.as_fd(), 10, 4).unwrap(), 0);
        }
    }
}
