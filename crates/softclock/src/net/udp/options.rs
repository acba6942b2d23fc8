//! Socket options.

use std::io;
use std::net::IpAddr;

use softclock_linux::socket;
use softclock_linux::socket::udp::Ecn;
use softclock_net::stack::DatagramOptions;

use super::UdpSocket;
use crate::net::carrier::{BUFFER, kernel_option};
use crate::net::options::UdpOption;

/// Socket options. A socket of a [stack](crate::net::stack) has the ECN field, the DSCP, the hop limits, the loop of
/// groups and, on the thread that has opened the stack, groups; the others fail there with
/// [`io::ErrorKind::Unsupported`]. [`as_kernel_fd`](Self::as_kernel_fd) gives access to further ones of the kernel.
///
/// # Example
/// A receiver of a group on the local link, and a sender that reaches it:
/// ```no_run
/// use std::net::{IpAddr, Ipv4Addr};
///
/// use softclock::net::UdpSocket;
///
/// # async fn groups() -> std::io::Result<()> {
/// let group = IpAddr::from([239, 255, 7, 7]);
/// let receiver = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 5007))?;
/// receiver.join_multicast(group, 0)?;
///
/// let sender = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
/// sender.set_multicast_hops(1)?;
/// sender.send_to(b"to all", (group, 5007)).await?;
/// # Ok(())
/// # }
/// ```
impl UdpSocket {
    /// Sets the ECN field of the datagrams that this socket sends. The default is [`Ecn::NotEct`].
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_ecn(&self, ecn: Ecn) -> io::Result<()> {
        self.io.set(UdpOption::Ecn(ecn))
    }

    /// Returns the ECN field of the datagrams that this socket sends.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn ecn(&self) -> io::Result<Ecn> {
        let own = |options: DatagramOptions| Ecn::of_traffic_class(options.traffic_class);
        self.io.option(socket::udp::ecn, own)
    }

    /// Sets the differentiated services code point of the datagrams that this socket sends, 0 to 63 (`IP_TOS`,
    /// `IPV6_TCLASS`; RFC 2474). The ECN field stays.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a value above 63; otherwise those of `setsockopt(2)`.
    pub fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        self.io.set(UdpOption::Dscp(dscp))?;
        self.dscp.set(Some(dscp));
        Ok(())
    }

    /// Returns the differentiated services code point of the datagrams that this socket sends.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn dscp(&self) -> io::Result<u8> {
        self.io
            .option(socket::dscp, |options| options.traffic_class >> 2)
    }

    /// Sets the hop limit of the datagrams that this socket sends to single hosts, at least 1 (`IP_TTL`,
    /// `IPV6_UNICAST_HOPS`).
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for 0; otherwise those of `setsockopt(2)`.
    pub fn set_hop_limit(&self, hops: u8) -> io::Result<()> {
        self.io.set(UdpOption::HopLimit(hops))
    }

    /// Returns the hop limit of the datagrams that this socket sends to single hosts.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn hop_limit(&self) -> io::Result<u8> {
        self.io
            .option(socket::hop_limit, |options| options.hop_limit)
    }

    /// Requests a send buffer of about `bytes` (`SO_SNDBUF`). The kernel doubles the value, for its bookkeeping, and
    /// limits it to net.core.wmem_max.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_send_buffer_bytes(&self, bytes: usize) -> io::Result<()> {
        self.io.set(UdpOption::SendBuffer(bytes))
    }

    /// Requests a receive buffer of about `bytes` (`SO_RCVBUF`). The kernel doubles the value, for its bookkeeping, and
    /// limits it to net.core.rmem_max. Datagrams that find it full are lost.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_recv_buffer_bytes(&self, bytes: usize) -> io::Result<()> {
        self.io.set(UdpOption::RecvBuffer(bytes))
    }

    /// Returns the size of the send buffer with the kernel's bookkeeping (`SO_SNDBUF`).
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn send_buffer_bytes(&self) -> io::Result<usize> {
        kernel_option(self.io.as_kernel(), BUFFER, socket::send_buffer_bytes)
    }

    /// Returns the size of the receive buffer with the kernel's bookkeeping (`SO_RCVBUF`).
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn recv_buffer_bytes(&self) -> io::Result<usize> {
        kernel_option(self.io.as_kernel(), BUFFER, socket::recv_buffer_bytes)
    }

    /// Allows datagrams to broadcast addresses of IPv4 (`SO_BROADCAST`). Off by default.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.io.set(UdpOption::Broadcast(on))
    }

    /// Returns whether datagrams to broadcast addresses are allowed.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] with a [stack](crate::net::stack); otherwise those of `getsockopt(2)`.
    pub fn broadcast(&self) -> io::Result<bool> {
        let what = "option Broadcast";
        kernel_option(self.io.as_kernel(), what, socket::udp::broadcast)
    }

    /// Joins a multicast group at the interface with this index, or at the one that the routes choose if it is 0
    /// (`IP_ADD_MEMBERSHIP`, `IPV6_ADD_MEMBERSHIP`). The socket leaves its groups when it is dropped.
    ///
    /// With a [stack](crate::net::stack), `interface` is 0 or the index of the stack's. The stack sends no reports
    /// (IGMP, MLD): behind a switch that needs them, only groups of the link are received. AF_XDP leaves what is sent
    /// to groups to the host, so a group cannot be joined there.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`: [`io::ErrorKind::InvalidInput`] if `group` is no multicast address of the socket's
    /// family, [`io::ErrorKind::AddrInUse`] if the socket is a member already, and `ENODEV` if there is no such
    /// interface. [`io::ErrorKind::Unsupported`] with a stack on AF_XDP or of another thread, or for another interface
    /// than the stack's; [`io::ErrorKind::QuotaExceeded`] for more than 1024 groups of a stack.
    pub fn join_multicast(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        self.io.set(UdpOption::Join(group, interface))
    }

    /// Leaves a group that [`join_multicast`](Self::join_multicast) has joined with the same interface.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`: [`io::ErrorKind::AddrNotAvailable`] if the socket is not a member.
    pub fn leave_multicast(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        self.io.set(UdpOption::Leave(group, interface))
    }

    /// Sets whether members on this host receive what this socket sends to a group (`IP_MULTICAST_LOOP`,
    /// `IPV6_MULTICAST_LOOP`). On by default. With a [stack](crate::net::stack), the host is the stack.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`. [`io::ErrorKind::Unsupported`] for `false` with the stack of another thread.
    pub fn set_multicast_loop(&self, on: bool) -> io::Result<()> {
        self.io.set(UdpOption::MulticastLoop(on))
    }

    /// Returns whether members on this host receive what this socket sends to a group.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn multicast_loop(&self) -> io::Result<bool> {
        self.io
            .option(socket::udp::multicast_loop, |options| options.loops_groups)
    }

    /// Sets the hop limit of the datagrams that this socket sends to groups: 0 for this host, 1, the default, for the
    /// link (`IP_MULTICAST_TTL`, `IPV6_MULTICAST_HOPS`).
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_multicast_hops(&self, hops: u8) -> io::Result<()> {
        self.io.set(UdpOption::MulticastHops(hops))
    }

    /// Returns the hop limit of the datagrams that this socket sends to groups.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn multicast_hops(&self) -> io::Result<u8> {
        self.io.option(socket::udp::multicast_hops, |options| {
            options.group_hop_limit
        })
    }

    /// Sets the interface by which this socket sends to groups, as an index; 0 leaves it to the routes
    /// (`IP_MULTICAST_IF`, `IPV6_MULTICAST_IF`).
    ///
    /// # Errors
    /// Those of `setsockopt(2)`, if there is no such interface.
    pub fn set_multicast_interface(&self, interface: u32) -> io::Result<()> {
        self.io.set(UdpOption::MulticastInterface(interface))
    }
}
