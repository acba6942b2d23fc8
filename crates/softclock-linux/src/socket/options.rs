//! Options of TCP and UDP sockets: buffers, traffic class, hop limit.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::{AddressFamily, sockopt};

/// Requests a receive buffer of about `bytes` (SO_RCVBUF). The kernel doubles the value, for its bookkeeping, and
/// limits it to net.core.rmem_max.
pub fn set_recv_buffer_bytes(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(fd, bytes)?)
}

/// Requests a send buffer of about `bytes` (SO_SNDBUF). The kernel doubles the value, for its bookkeeping, and limits
/// it to net.core.wmem_max.
pub fn set_send_buffer_bytes(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(fd, bytes)?)
}

/// Returns the size of the receive buffer with the kernel's bookkeeping (SO_RCVBUF).
pub fn recv_buffer_bytes(fd: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(sockopt::socket_recv_buffer_size(fd)?)
}

/// Returns the size of the send buffer with the kernel's bookkeeping (SO_SNDBUF).
pub fn send_buffer_bytes(fd: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(sockopt::socket_send_buffer_size(fd)?)
}

/// Sets the differentiated services code point of the packets that the socket sends, 0 to 63 (RFC 2474; IP_TOS,
/// IPV6_TCLASS), and keeps their ECN field. An IPv6 socket uses it for IPv4 destinations, too. Makes three or five
/// system calls.
///
/// Fails with `InvalidInput` for a value above 63, and with `PermissionDenied` for the highest ones without
/// CAP_NET_ADMIN if the kernel demands it.
pub fn set_dscp(fd: BorrowedFd<'_>, dscp: u8) -> io::Result<()> {
    if dscp > MOST_DSCP {
        let reason = "a DSCP has six bits: give a value from 0 to 63";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    change_class(fd, ECN_BITS, dscp << 2)
}

/// Returns the differentiated services code point of the packets that the socket sends. Two system calls.
pub fn dscp(fd: BorrowedFd<'_>) -> io::Result<u8> {
    Ok(class(fd)? >> 2)
}

/// Returns the traffic class of the packets that the socket sends. Two system calls.
pub(super) fn class(fd: BorrowedFd<'_>) -> io::Result<u8> {
    Ok(match is_v6(fd)? {
        true => sockopt::ipv6_tclass(fd)? as u8,
        false => sockopt::ip_tos(fd)?,
    })
}

/// Changes the traffic class of the packets that the socket sends: those of its bits that are not in `kept` become
/// those of `bits`.
pub(super) fn change_class(fd: BorrowedFd<'_>, kept: u8, bits: u8) -> io::Result<()> {
    if is_v6(fd)? {
        let class = sockopt::ipv6_tclass(fd)? as u8;
        sockopt::set_ipv6_tclass(fd, ((class & kept) | bits).into())?;
    }
    // An IPv6 socket has both: this one is for IPv4 destinations.
    let tos = sockopt::ip_tos(fd)?;
    Ok(sockopt::set_ip_tos(fd, (tos & kept) | bits)?)
}

/// Sets the hop limit of the packets that the socket sends to single hosts, at least 1 (IP_TTL, IPV6_UNICAST_HOPS). An
/// IPv6 socket uses it for IPv4 destinations, too. Makes two or three system calls.
pub fn set_hop_limit(fd: BorrowedFd<'_>, hops: u8) -> io::Result<()> {
    // First, since it refuses 0.
    sockopt::set_ip_ttl(fd, hops.into())?;
    if is_v6(fd)? {
        sockopt::set_ipv6_unicast_hops(fd, Some(hops))?;
    }
    Ok(())
}

/// Returns the hop limit of the packets that the socket sends to single hosts. Two system calls.
pub fn hop_limit(fd: BorrowedFd<'_>) -> io::Result<u8> {
    match is_v6(fd)? {
        true => Ok(sockopt::ipv6_unicast_hops(fd)?),
        false => Ok(sockopt::ip_ttl(fd)? as u8),
    }
}

/// Returns whether it is a socket of IPv6.
pub(super) fn is_v6(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sockopt::socket_domain(fd)? == AddressFamily::INET6)
}

/// The bits of the traffic class that are the ECN field.
pub(super) const ECN_BITS: u8 = 0b11;

/// The highest differentiated services code point.
const MOST_DSCP: u8 = 63;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::common::testing::loopbacks;
    use super::super::udp::{BindOptions, Ecn, bind, set_ecn};
    use super::*;

    #[test]
    fn the_traffic_class_has_two_fields() {
        for address in loopbacks() {
            let socket = bind(address, &BindOptions::default()).unwrap();
            set_ecn(socket.as_fd(), Ecn::Ect0).unwrap();
            set_dscp(socket.as_fd(), 46).unwrap();
            assert_eq!(dscp(socket.as_fd()).unwrap(), 46);
            assert_eq!(sockopt::ip_tos(&socket).unwrap(), 46 << 2 | 2);
            if address.is_ipv6() {
                assert_eq!(sockopt::ipv6_tclass(&socket).unwrap(), 46 << 2 | 2);
            }
            let error = set_dscp(socket.as_fd(), 64).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert_eq!(dscp(socket.as_fd()).unwrap(), 46);
        }
    }

    #[test]
    fn limits_and_sizes_are_as_they_were_set() {
        for address in loopbacks() {
            let socket = bind(address, &BindOptions::default()).unwrap();
            let fd = socket.as_fd();
            set_hop_limit(fd, 3).unwrap();
            assert_eq!(hop_limit(fd).unwrap(), 3);
            assert_eq!(sockopt::ip_ttl(fd).unwrap(), 3);
            assert!(set_hop_limit(fd, 0).is_err());
            set_recv_buffer_bytes(fd, 10_000).unwrap();
            set_send_buffer_bytes(fd, 20_000).unwrap();
            // The kernel doubles both.
            assert_eq!(recv_buffer_bytes(fd).unwrap(), 20_000);
            assert_eq!(send_buffer_bytes(fd).unwrap(), 40_000);
        }
    }
}
