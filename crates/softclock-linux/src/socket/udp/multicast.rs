//! Datagrams to all hosts of a link, and to groups.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;

use rustix::net::sockopt;

use super::super::options::is_v6;

/// Allows datagrams to broadcast addresses of IPv4 (SO_BROADCAST). Without it they fail with `PermissionDenied`.
pub fn set_broadcast(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    Ok(sockopt::set_socket_broadcast(fd, on)?)
}

/// Returns whether datagrams to broadcast addresses are allowed.
pub fn broadcast(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sockopt::socket_broadcast(fd)?)
}

/// Joins a multicast group at the interface with this index, or at the one that the routes choose if it is 0
/// (IP_ADD_MEMBERSHIP, IPV6_ADD_MEMBERSHIP). The kernel leaves the group when the socket is closed.
///
/// Fails with `InvalidInput` if `group` is no multicast address of the socket's family, `AddrInUse` if the socket is a
/// member already, and with ENODEV if there is no such interface.
pub fn join_multicast(fd: BorrowedFd<'_>, group: IpAddr, interface: u32) -> io::Result<()> {
    match group {
        IpAddr::V4(group) => {
            let any = &Ipv4Addr::UNSPECIFIED;
            sockopt::set_ip_add_membership_with_ifindex(fd, &group, any, interface)?;
        }
        IpAddr::V6(group) => sockopt::set_ipv6_add_membership(fd, &group, interface)?,
    }
    Ok(())
}

/// Leaves a group that [`join_multicast`] has joined with the same interface. Fails with `AddrNotAvailable` if the
/// socket is not a member.
pub fn leave_multicast(fd: BorrowedFd<'_>, group: IpAddr, interface: u32) -> io::Result<()> {
    match group {
        IpAddr::V4(group) => {
            let any = &Ipv4Addr::UNSPECIFIED;
            sockopt::set_ip_drop_membership_with_ifindex(fd, &group, any, interface)?;
        }
        IpAddr::V6(group) => sockopt::set_ipv6_drop_membership(fd, &group, interface)?,
    }
    Ok(())
}

/// Sets whether members on this host receive what the socket sends to a group (IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP;
/// on by default). Makes two or three system calls.
pub fn set_multicast_loop(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    if is_v6(fd)? {
        sockopt::set_ipv6_multicast_loop(fd, on)?;
    }
    Ok(sockopt::set_ip_multicast_loop(fd, on)?)
}

/// Returns whether members on this host receive what the socket sends to a group. Two system calls.
pub fn multicast_loop(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(match is_v6(fd)? {
        true => sockopt::ipv6_multicast_loop(fd)?,
        false => sockopt::ip_multicast_loop(fd)?,
    })
}

/// Sets the hop limit of the packets that the socket sends to groups: 0 for this host, 1, the default, for the link
/// (IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS). Makes two or three system calls.
pub fn set_multicast_hops(fd: BorrowedFd<'_>, hops: u8) -> io::Result<()> {
    if is_v6(fd)? {
        sockopt::set_ipv6_multicast_hops(fd, hops.into())?;
    }
    Ok(sockopt::set_ip_multicast_ttl(fd, hops.into())?)
}

/// Returns the hop limit of the packets that the socket sends to groups. Two system calls.
pub fn multicast_hops(fd: BorrowedFd<'_>) -> io::Result<u8> {
    let hops = match is_v6(fd)? {
        true => sockopt::ipv6_multicast_hops(fd)?,
        false => sockopt::ip_multicast_ttl(fd)?,
    };
    // The kernel limits it to 255.
    Ok(u8::try_from(hops).unwrap_or(u8::MAX))
}

/// Sets the interface by which the socket sends to groups, as an index; 0 leaves it to the routes (IP_MULTICAST_IF,
/// IPV6_MULTICAST_IF). Makes two or three system calls.
///
/// Fails with ENODEV or `AddrNotAvailable` if there is no such interface.
pub fn set_multicast_interface(fd: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    if is_v6(fd)? {
        sockopt::set_ipv6_multicast_if(fd, interface)?;
    }
    let any = &Ipv4Addr::UNSPECIFIED;
    Ok(sockopt::set_ip_multicast_if_with_ifindex(
        fd, any, any, interface,
    )?)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddr};
    use std::os::fd::AsFd;

    use super::super::super::common::testing::{loopbacks, until_readable};
    use super::super::super::local_addr;
    use super::super::{BindOptions, bind, recv, send_to};
    use super::*;

    /// The loopback interface, which every network namespace has.
    const LOOPBACK: u32 = 1;

    #[test]
    fn members_receive_what_is_sent_to_a_group() {
        for address in loopbacks() {
            let (group, any): (IpAddr, IpAddr) = match address {
                SocketAddr::V4(_) => ([239, 255, 77, 1].into(), Ipv4Addr::UNSPECIFIED.into()),
                SocketAddr::V6(_) => ("ff01::5c:1".parse().unwrap(), Ipv6Addr::UNSPECIFIED.into()),
            };
            let member = bind((any, 0).into(), &BindOptions::default()).unwrap();
            let port = local_addr(member.as_fd()).unwrap().port();
            join_multicast(member.as_fd(), group, LOOPBACK).unwrap();
            let sender = bind(address, &BindOptions::default()).unwrap();
            let fd = sender.as_fd();
            set_multicast_interface(fd, LOOPBACK).unwrap();
            for (hops, loops) in [(7, false), (0, true)] {
                set_multicast_hops(fd, hops).unwrap();
                set_multicast_loop(fd, loops).unwrap();
                let set = (multicast_hops(fd).unwrap(), multicast_loop(fd).unwrap());
                assert_eq!(set, (hops, loops));
            }
            match send_to(fd, b"all", (group, port).into()) {
                Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable => {
                    println!("skipped: no route to groups on the loopback interface");
                    continue;
                }
                sent => assert_eq!(sent.unwrap(), 3),
            }
            until_readable(member.as_fd());
            assert_eq!(recv(member.as_fd(), &mut [0; 10]).unwrap(), 3);

            let again = join_multicast(member.as_fd(), group, LOOPBACK).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
            leave_multicast(member.as_fd(), group, LOOPBACK).unwrap();
            let left = leave_multicast(member.as_fd(), group, LOOPBACK).unwrap_err();
            assert_eq!(left.kind(), io::ErrorKind::AddrNotAvailable);
            assert!(join_multicast(member.as_fd(), address.ip(), LOOPBACK).is_err());
        }
    }

    #[test]
    fn broadcasts_are_sent_on_request() {
        let socket = bind((Ipv4Addr::UNSPECIFIED, 0).into(), &BindOptions::default()).unwrap();
        // The broadcast address of loopback.
        let all = SocketAddr::from(([127, 255, 255, 255], 9));
        let error = send_to(socket.as_fd(), b"all", all).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(!broadcast(socket.as_fd()).unwrap());
        set_broadcast(socket.as_fd(), true).unwrap();
        assert!(broadcast(socket.as_fd()).unwrap());
        assert_eq!(send_to(socket.as_fd(), b"all", all).unwrap(), 3);
    }
}
