//! UDP.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{self, RecvFlags, SendFlags, SocketType, sockopt};

use super::common::{internet, open};

/// How to bind.
#[derive(Clone, Debug, Default)]
pub struct BindOptions {
    /// SO_REUSEPORT: several sockets have the address, and the kernel spreads flows over them.
    pub reuse_port: bool,
    /// Whether an IPv6 socket refuses IPv4 packets; `None` leaves it to net.ipv6.bindv6only.
    pub v6_only: Option<bool>,
}

/// A bound socket. Two to four system calls.
pub fn bind(address: SocketAddr, options: &BindOptions) -> io::Result<OwnedFd> {
    let fd = open(address, SocketType::DGRAM)?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    if let (SocketAddr::V6(_), Some(v6_only)) = (address, options.v6_only) {
        sockopt::set_ipv6_v6only(&fd, v6_only)?;
    }
    net::bind(&fd, &address)?;
    Ok(fd)
}

/// Makes `peer` the only one to send to and to receive from.
pub fn connect(fd: BorrowedFd<'_>, peer: SocketAddr) -> io::Result<()> {
    Ok(net::connect(fd, &peer)?)
}

/// Sends a datagram.
pub fn send_to(fd: BorrowedFd<'_>, datagram: &[u8], peer: SocketAddr) -> io::Result<usize> {
    Ok(net::sendto(fd, datagram, SendFlags::NOSIGNAL, &peer)?)
}

/// Sends a datagram on a connected socket.
///
/// `ConnectionRefused` is news of an earlier datagram; this one was not sent.
pub fn send(fd: BorrowedFd<'_>, datagram: &[u8]) -> io::Result<usize> {
    Ok(net::send(fd, datagram, SendFlags::NOSIGNAL)?)
}

/// Receives a datagram and whence it came; what does not fit into `buffer` is lost.
pub fn recv_from(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    let (received, _, peer) = net::recvfrom(fd, buffer, RecvFlags::empty())?;
    let peer = peer.ok_or(io::ErrorKind::InvalidData)?;
    Ok((received, internet(peer)?))
}

/// Receives a datagram on a connected socket; what does not fit into `buffer` is lost.
pub fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (received, _) = net::recv(fd, buffer, RecvFlags::empty())?;
    Ok(received)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::common::testing::{loopbacks, until_readable};
    use super::super::local_addr;
    use super::*;

    #[test]
    fn datagrams_arrive_with_their_sender() {
        for address in loopbacks() {
            let here = bind(address, &BindOptions::default()).unwrap();
            let there = bind(address, &BindOptions::default()).unwrap();
            let (from, to) = (
                local_addr(here.as_fd()).unwrap(),
                local_addr(there.as_fd()).unwrap(),
            );
            send_to(here.as_fd(), b"abc", to).unwrap();
            until_readable(there.as_fd());
            let mut buffer = [0; 10];
            assert_eq!(recv_from(there.as_fd(), &mut buffer).unwrap(), (3, from));

            connect(here.as_fd(), to).unwrap();
            assert_eq!(send(here.as_fd(), b"").unwrap(), 0);
            until_readable(there.as_fd());
            assert_eq!(recv(there.as_fd(), &mut buffer).unwrap(), 0);
            let empty = recv(there.as_fd(), &mut buffer).unwrap_err();
            assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn an_address_is_shared_only_on_request() {
        for address in loopbacks() {
            let options = BindOptions {
                reuse_port: true,
                v6_only: Some(true),
            };
            let first = bind(address, &options).unwrap();
            let address = local_addr(first.as_fd()).unwrap();
            bind(address, &options).unwrap();
            assert!(bind(address, &BindOptions::default()).is_err());
        }
    }
}
