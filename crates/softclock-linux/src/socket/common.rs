//! What TCP and UDP sockets share.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, getpeername, getsockname, socket_with,
    sockopt,
};

/// The address that the socket is bound to.
pub fn local_addr(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    internet(getsockname(fd)?)
}

/// The address that the socket is connected to.
pub fn peer_addr(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    match getpeername(fd)? {
        Some(address) => internet(address),
        None => Err(Errno::NOTCONN.into()),
    }
}

/// The socket's pending error, if there is one, which is thereby cleared.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    Ok(sockopt::socket_error(fd)?.err().map(io::Error::from))
}

/// Asks for a receive buffer of about `bytes`; the kernel doubles it for its own needs and has limits.
pub fn set_recv_buffer_bytes(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(fd, bytes)?)
}

/// Asks for a send buffer of about `bytes`; the kernel doubles it for its own needs and has limits.
pub fn set_send_buffer_bytes(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(fd, bytes)?)
}

pub(super) fn open(address: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    Ok(socket_with(family, kind, NEW_SOCKET, None)?)
}

pub(super) fn internet(address: SocketAddrAny) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(address)?)
}

pub(crate) const NEW_SOCKET: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

#[cfg(test)]
pub(super) mod testing {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
    use std::os::fd::BorrowedFd;

    use rustix::event::{PollFd, PollFlags, poll};

    /// The loopback addresses of this machine; says so where there is no IPv6.
    pub(in crate::socket) fn loopbacks() -> Vec<SocketAddr> {
        let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        if UdpSocket::bind(v6).is_ok() {
            vec![v4, v6]
        } else {
            println!("skipped: IPv6, this machine has no ::1");
            vec![v4]
        }
    }

    pub(in crate::socket) fn until_readable(fd: BorrowedFd<'_>) {
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None).unwrap();
    }

    pub(in crate::socket) fn until_writable(fd: BorrowedFd<'_>) {
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None).unwrap();
    }
}
