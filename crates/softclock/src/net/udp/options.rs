//! Socket options.

use std::io;
use std::net::IpAddr;

use softclock_linux::socket;
use softclock_linux::socket::udp::Ecn;

use super::UdpSocket;
use crate::net::carrier::buffer_bytes;
use crate::net::options::UdpOption;

/// Socket options. A socket of a [stack](crate::net::stack) has the ECN field and the DSCP; the others fail there with
/// [`io::ErrorKind::Unsupported`]. [`as_kernel_fd`](Self::as_kernel_fd) gives access to further ones of the kernel.
impl UdpSocket {
    /// Sets the ECN field of the datagrams that this socket sends. The default is [`Ecn::NotEct`].
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_ecn(&self, ecn: Ecn) -> io::Result<()> {
        self.io.set(UdpOption::Ecn(ecn))
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

    /// Sets the hop limit of the datagrams that this socket sends to single hosts, at least 1 (`IP_TTL`,
    /// `IPV6_UNICAST_HOPS`).
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for 0; otherwise those of `setsockopt(2)`.
    pub fn set_hop_limit(&self, hops: u8) -> io::Result<()> {
        self.io.set(UdpOption::HopLimit(hops))
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
        buffer_bytes(self.io.as_kernel(), socket::send_buffer_bytes)
    }

    /// Returns the size of the receive buffer with the kernel's bookkeeping (`SO_RCVBUF`).
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn recv_buffer_bytes(&self) -> io::Result<usize> {
        buffer_bytes(self.io.as_kernel(), socket::recv_buffer_bytes)
    }

    /// Allows datagrams to broadcast addresses of IPv4 (`SO_BROADCAST`). Off by default.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.io.set(UdpOption::Broadcast(on))
    }

    /// Joins a multicast group at the interface with this index, or at the one that the routes choose if it is 0
    /// (`IP_ADD_MEMBERSHIP`, `IPV6_ADD_MEMBERSHIP`). The socket leaves its groups when it is dropped.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`: [`io::ErrorKind::InvalidInput`] if `group` is no multicast address of the socket's
    /// family, [`io::ErrorKind::AddrInUse`] if the socket is a member already, and `ENODEV` if there is no such
    /// interface.
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
    /// `IPV6_MULTICAST_LOOP`). On by default.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_multicast_loop(&self, on: bool) -> io::Result<()> {
        self.io.set(UdpOption::MulticastLoop(on))
    }

    /// Sets the hop limit of the datagrams that this socket sends to groups: 0 for this host, 1, the default, for the
    /// link (`IP_MULTICAST_TTL`, `IPV6_MULTICAST_HOPS`).
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_multicast_hops(&self, hops: u8) -> io::Result<()> {
        self.io.set(UdpOption::MulticastHops(hops))
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
