//! The facts about received datagrams for which a socket asks the kernel, and the ECN field.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt;

use super::super::common::set_option;
use super::super::options::{ECN_BITS, change_class, class};

/// The facts that a socket records about each datagram, for [`recv_batch`](super::recv_batch). Other functions do not
/// return them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvOptions {
    /// Records the destination address if the socket is bound to a wildcard (IP_PKTINFO, IPV6_RECVPKTINFO). Has no
    /// effect on sockets bound to one address. On by default.
    pub destinations: bool,
    /// Records the ECN field (IP_RECVTOS, IPV6_RECVTCLASS), for IPv4 also on a dual-stack socket. Off by default.
    pub ecn: bool,
    /// Records the time at which the kernel received the datagram (SO_TIMESTAMPNS). Off by default, since the kernel
    /// stamps the packets of all sockets while one asks for it.
    pub time_stamps: bool,
    /// Lets the kernel join consecutive datagrams of a flow if they have the same length (UDP_GRO), which saves most
    /// of their cost. Off by default: every receive needs a buffer of
    /// [`RecvBatch::MOST_BYTES`](super::RecvBatch::MOST_BYTES) then, and single receives return joined datagrams
    /// without telling their lengths.
    pub gro: bool,
}

impl Default for RecvOptions {
    fn default() -> Self {
        Self {
            destinations: true,
            ecn: false,
            time_stamps: false,
            gro: false,
        }
    }
}

impl RecvOptions {
    /// Sets the options on a socket that is to be bound to `address`. Makes a system call or two for each.
    pub(super) fn apply(&self, fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
        if self.destinations && address.ip().is_unspecified() {
            let (level, option) = match address {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
                // Has IPv4-mapped addresses for IPv4.
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
            };
            let set = set_option(fd, level, option, 1u32);
            set.map_err(|error| {
                lacking(error, "destination addresses (IP_PKTINFO)", "destinations")
            })?;
        }
        if self.ecn {
            let set = record_ecn(fd, address);
            set.map_err(|error| lacking(error, "ECN fields (IP_RECVTOS)", "ecn"))?;
        }
        if self.time_stamps {
            let set = set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1u32);
            set.map_err(|error| lacking(error, "time stamps (SO_TIMESTAMPNS)", "time_stamps"))?;
        }
        if self.gro {
            let set = set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1u32);
            set.map_err(|error| {
                lacking(error, "joined datagrams (UDP_GRO, since Linux 5.0)", "gro")
            })?;
        }
        Ok(())
    }
}

fn record_ecn(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv6() {
        sockopt::set_ipv6_recvtclass(fd, true)?;
    }
    // On an IPv6 socket, too: it concerns the IPv4 packets that the socket receives.
    Ok(sockopt::set_ip_recvtos(fd, true)?)
}

/// Replaces the error of a kernel without the option by one that says how to do without. Returns others unchanged.
fn lacking(error: io::Error, wanted: &str, field: &str) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::EINVAL) => {
            let text = format!(
                "this kernel has no {wanted} for UDP sockets: bind without RecvOptions::{field} ({error})"
            );
            io::Error::new(io::ErrorKind::Unsupported, text)
        }
        _ => error,
    }
}

/// The ECN field of a packet (RFC 3168, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not use ECN.
    #[default]
    NotEct = 0,
    /// ECN-capable transport, codepoint ECT(1).
    Ect1 = 1,
    /// ECN-capable transport, codepoint ECT(0).
    Ect0 = 2,
    /// A router on the path had congestion.
    Ce = 3,
}

impl Ecn {
    /// Returns the field of an IPv4 type of service or an IPv6 traffic class: its lowest two bits.
    pub const fn of_traffic_class(class: u8) -> Self {
        match class & ECN_BITS {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// Sets the ECN field of the datagrams that the socket sends, and keeps their DSCP. An IPv6 socket uses it for IPv4
/// destinations, too. Makes three or five system calls.
pub fn set_ecn(fd: BorrowedFd<'_>, ecn: Ecn) -> io::Result<()> {
    change_class(fd, !ECN_BITS, ecn as u8)
}

/// Returns the ECN field of the datagrams that the socket sends. Two system calls.
pub fn ecn(fd: BorrowedFd<'_>) -> io::Result<Ecn> {
    Ok(Ecn::of_traffic_class(class(fd)?))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::super::common::testing::loopbacks;
    use super::super::{BindOptions, bind};
    use super::*;

    #[test]
    fn a_kernel_without_an_option_is_an_error_that_says_what_to_do() {
        let error = io::Error::from_raw_os_error(libc::ENOPROTOOPT);
        let error = lacking(error, "joined datagrams (UDP_GRO, since Linux 5.0)", "gro");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(text.contains("bind without RecvOptions::gro"), "{text}");
        let other = lacking(io::Error::from_raw_os_error(libc::ENOMEM), "", "");
        assert_eq!(other.raw_os_error(), Some(libc::ENOMEM));
    }

    #[test]
    fn the_ecn_field_leaves_the_rest_of_the_class() {
        for address in loopbacks() {
            let socket = bind(address, &BindOptions::default()).unwrap();
            sockopt::set_ip_tos(&socket, 0xb8).unwrap();
            for ecn in [Ecn::Ect0, Ecn::Ce, Ecn::NotEct, Ecn::Ect1] {
                set_ecn(socket.as_fd(), ecn).unwrap();
                let tos = sockopt::ip_tos(&socket).unwrap();
                assert_eq!((tos & 0xfc, Ecn::of_traffic_class(tos)), (0xb8, ecn));
                assert_eq!(super::ecn(socket.as_fd()).unwrap(), ecn);
                if address.is_ipv6() {
                    let class = sockopt::ipv6_tclass(&socket).unwrap();
                    assert_eq!(Ecn::of_traffic_class(class as u8), ecn);
                }
            }
        }
    }
}
