//! Functions for both TCP and UDP sockets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, getpeername, getsockname, socket_with,
    sockopt,
};

/// Returns the address to which the socket is bound.
pub fn local_addr(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    internet(getsockname(fd)?)
}

/// Returns the address to which the socket is connected. Fails with `NotConnected` if it is not.
pub fn peer_addr(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    match getpeername(fd)? {
        Some(address) => internet(address),
        None => Err(Errno::NOTCONN.into()),
    }
}

/// Returns and clears the socket's pending error (SO_ERROR), if there is one.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    Ok(sockopt::socket_error(fd)?.err().map(io::Error::from))
}

/// Creates a socket for addresses of this family.
pub(super) fn open(address: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    Ok(socket_with(family, kind, NEW_SOCKET, None)?)
}

/// Sets a socket option whose value is an integer of type `T`.
pub(super) fn set_option<T: Into<u64> + Copy>(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: T,
) -> io::Result<()> {
    // SAFETY: the kernel reads the value from `value`, which outlives the call and has the given length.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns a socket option whose value is an integer of 32 bits.
pub(super) fn option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<u32> {
    let mut value = 0_u32;
    let mut length = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`, which has as many, and the length to `length`. Both
    // outlive the call.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Converts an address from the kernel. Fails if it is neither IPv4 nor IPv6.
pub(super) fn internet(address: SocketAddrAny) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(address)?)
}

/// The flags of every socket that this crate creates.
pub(crate) const NEW_SOCKET: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

#[cfg(test)]
pub(super) mod testing {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
    use std::os::fd::BorrowedFd;

    use rustix::event::{PollFd, PollFlags, poll};

    /// The loopback addresses of this machine. Prints a note if it has none for IPv6.
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
