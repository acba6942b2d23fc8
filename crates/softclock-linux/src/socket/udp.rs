//! UDP sockets.
//!
//! - `receive`: receives a batch of datagrams by one system call; `batch`: their memory.
//! - `send_batch`: sends a batch by one system call; `control`: the facts about each datagram, for the kernel.
//! - `options`: the facts that the kernel records about each datagram; `ancillary`: their parser.
//! - `multicast`: groups and broadcasts.

mod ancillary;
mod batch;
mod control;
mod multicast;
mod options;
mod receive;
mod send_batch;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{self, RecvFlags, SendFlags, SocketType, sockopt};

use super::common::{internet, open};

pub use batch::{BatchFull, Datagram, RecvBatch, Segments};
pub use multicast::{
    broadcast, join_multicast, leave_multicast, multicast_hops, multicast_loop, set_broadcast,
    set_multicast_hops, set_multicast_interface, set_multicast_loop,
};
pub use options::{Ecn, RecvOptions, ecn, set_ecn};
pub use receive::recv_batch;
pub use send_batch::{MOST_DATAGRAMS, Transmit, send_batch};

/// Options of a bound socket.
#[derive(Clone, Debug, Default)]
pub struct BindOptions {
    /// Allows several sockets to have the address; the kernel spreads flows over them (SO_REUSEPORT).
    pub reuse_port: bool,
    /// Whether an IPv6 socket refuses IPv4 packets. `None`, the default, leaves that to net.ipv6.bindv6only.
    pub v6_only: Option<bool>,
    /// The facts that the kernel records about each datagram.
    pub receive: RecvOptions,
}

/// Creates a socket bound to `address`. Makes two to four system calls, and one or two for each of the
/// [`RecvOptions`].
///
/// Fails with `Unsupported` if the kernel lacks one of the [`RecvOptions`].
pub fn bind(address: SocketAddr, options: &BindOptions) -> io::Result<OwnedFd> {
    let fd = open(address, SocketType::DGRAM)?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    if let (SocketAddr::V6(_), Some(v6_only)) = (address, options.v6_only) {
        sockopt::set_ipv6_v6only(&fd, v6_only)?;
    }
    // Before the socket can receive a datagram.
    options.receive.apply(fd.as_fd(), address)?;
    net::bind(&fd, &address)?;
    Ok(fd)
}

/// Connects the socket: it then sends to `peer` by default, and receives from `peer` only.
pub fn connect(fd: BorrowedFd<'_>, peer: SocketAddr) -> io::Result<()> {
    Ok(net::connect(fd, &peer)?)
}

/// Sends a datagram to `peer`, and returns its length.
pub fn send_to(fd: BorrowedFd<'_>, datagram: &[u8], peer: SocketAddr) -> io::Result<usize> {
    Ok(net::sendto(fd, datagram, SendFlags::NOSIGNAL, &peer)?)
}

/// Sends a datagram on a connected socket, and returns its length.
///
/// `ConnectionRefused` means that the peer refused an earlier datagram. This one was not sent.
pub fn send(fd: BorrowedFd<'_>, datagram: &[u8]) -> io::Result<usize> {
    Ok(net::send(fd, datagram, SendFlags::NOSIGNAL)?)
}

/// Sends `bytes` as datagrams of `segment_bytes` each, of which the last may be shorter, in one pass through the
/// kernel's network stack (UDP_SEGMENT of udp(7)). At most [`MOST_SEGMENTS`] datagrams and 65 507 bytes.
///
/// Sends to `peer`, or to the connected peer if it is `None`. Returns the number of bytes sent, which is all of them.
///
/// Fails with EMSGSIZE (EINVAL in older kernels) if segments exceed the path's MTU; with EINVAL or `Unsupported` if the
/// kernel is older than 4.18; and with EIO if the device cannot compute checksums. Check with [`is_without_segments`],
/// and send single datagrams then.
pub fn send_segments(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    segment_bytes: u16,
    peer: Option<SocketAddr>,
) -> io::Result<usize> {
    let mut peer = peer.map(raw_address);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control([0; 4]);
    // SAFETY: all zeros are a valid message without address, data and control messages.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    if let Some((address, length)) = &mut peer {
        message.msg_name = std::ptr::from_mut(address).cast();
        message.msg_namelen = *length;
    }
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    // SAFETY: CMSG_SPACE is a pure computation.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(2) } as _;
    // SAFETY: the control buffer is aligned for a header and has room for one with two bytes of data, as asserted
    // below. So CMSG_FIRSTHDR returns a valid header, and its data lies within the buffer.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = libc::CMSG_LEN(2) as _;
        libc::CMSG_DATA(header)
            .cast::<u16>()
            .write_unaligned(segment_bytes);
    }
    // SAFETY: everything that the message points to outlives the call, which only reads it.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Returns whether [`send_segments`] failed because segmentation is not available for these datagrams, so that they
/// have to be sent one by one. If the first of them fails, too, the error has another cause.
pub fn is_without_segments(error: &io::Error) -> bool {
    let errors = [libc::EIO, libc::EOPNOTSUPP, libc::ENOPROTOOPT];
    exceeds_mtu(error) || is_one_of(error, &errors)
}

/// Returns whether [`send_segments`] may have failed because segments exceed the path's MTU. Shorter datagrams, and
/// those to other peers, can still be joined.
pub fn exceeds_mtu(error: &io::Error) -> bool {
    is_one_of(error, &[libc::EMSGSIZE, libc::EINVAL])
}

fn is_one_of(error: &io::Error, codes: &[i32]) -> bool {
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

/// A buffer for one control message, aligned for its header.
#[repr(C)]
struct Control([u64; 4]);

// SAFETY: CMSG_SPACE is a pure computation.
const _: () = assert!(size_of::<Control>() >= unsafe { libc::CMSG_SPACE(2) } as usize);
const _: () = assert!(align_of::<Control>() >= align_of::<libc::cmsghdr>());

/// Converts an address to the kernel's structure. Returns it with its length, that of an IPv4 or IPv6 address.
fn raw_address(address: SocketAddr) -> (libc::sockaddr_in6, libc::socklen_t) {
    // SAFETY: all zeros are a valid address of the unspecified family.
    let mut raw: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let length = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: the structure for IPv4 is not longer and not more aligned than the one for IPv6 (asserted below),
            // and both consist of integers.
            let raw = unsafe { &mut *(&raw mut raw).cast::<libc::sockaddr_in>() };
            raw.sin_family = libc::AF_INET as _;
            raw.sin_port = v4.port().to_be();
            raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            raw.sin6_family = libc::AF_INET6 as _;
            raw.sin6_port = v6.port().to_be();
            raw.sin6_flowinfo = v6.flowinfo();
            raw.sin6_addr.s6_addr = v6.ip().octets();
            raw.sin6_scope_id = v6.scope_id();
            size_of::<libc::sockaddr_in6>()
        }
    };
    (raw, length as libc::socklen_t)
}

/// The most datagrams of one [`send_segments`] that all kernels accept (UDP_MAX_SEGMENTS of linux/udp.h).
pub const MOST_SEGMENTS: usize = 64;

const _: () = assert!(align_of::<libc::sockaddr_in>() <= align_of::<libc::sockaddr_in6>());
const _: () = assert!(size_of::<libc::sockaddr_in>() <= size_of::<libc::sockaddr_in6>());

/// Receives a datagram, and returns its length and its sender. Bytes that do not fit into `buffer` are lost.
pub fn recv_from(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    let (received, _, peer) = net::recvfrom(fd, buffer, RecvFlags::empty())?;
    let peer = peer.ok_or(io::ErrorKind::InvalidData)?;
    Ok((received, internet(peer)?))
}

/// Receives a datagram on a connected socket, and returns its length. Bytes that do not fit into `buffer` are lost.
pub fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (received, _) = net::recv(fd, buffer, RecvFlags::empty())?;
    Ok(received)
}

#[cfg(test)]
mod tests {
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
    fn segments_arrive_as_datagrams() {
        for address in loopbacks() {
            let here = bind(address, &BindOptions::default()).unwrap();
            let there = bind(address, &BindOptions::default()).unwrap();
            let to = local_addr(there.as_fd()).unwrap();
            match send_segments(here.as_fd(), b"abcdefgh", 3, Some(to)) {
                Err(error) if is_without_segments(&error) => {
                    println!("skipped: this kernel does not segment datagrams: {error}");
                    continue;
                }
                sent => assert_eq!(sent.unwrap(), 8),
            }
            connect(here.as_fd(), to).unwrap();
            assert_eq!(send_segments(here.as_fd(), b"ij", 3, None).unwrap(), 2);
            for expected in [&b"abc"[..], b"def", b"gh", b"ij"] {
                let mut buffer = [0; 10];
                until_readable(there.as_fd());
                let received = recv(there.as_fd(), &mut buffer).unwrap();
                assert_eq!(&buffer[..received], expected);
            }
        }
    }

    #[test]
    fn an_address_is_shared_only_on_request() {
        for address in loopbacks() {
            let options = BindOptions {
                reuse_port: true,
                v6_only: Some(true),
                ..BindOptions::default()
            };
            let first = bind(address, &options).unwrap();
            let address = local_addr(first.as_fd()).unwrap();
            bind(address, &options).unwrap();
            assert!(bind(address, &BindOptions::default()).is_err());
        }
    }
}
