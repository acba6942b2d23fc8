//! The options of sockets, as values: a carrier has one function for all of them.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use softclock_linux::socket::udp::Ecn;
use softclock_net::tcp::keepalive::KeepAlive;

/// An option of a TCP connection, with its value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TcpOption {
    NoDelay(bool),
    NotsentLowat(u32),
    /// `Some` resets the connection when it is closed.
    Linger(Option<Duration>),
    KeepAlive(KeepAlive),
    UserTimeout(Option<Duration>),
    Dscp(u8),
    HopLimit(u8),
    SendBuffer(usize),
    RecvBuffer(usize),
}

/// An option of a UDP socket, with its value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UdpOption {
    Ecn(Ecn),
    Dscp(u8),
    HopLimit(u8),
    SendBuffer(usize),
    RecvBuffer(usize),
    Broadcast(bool),
    /// A group, and the index of an interface.
    Join(IpAddr, u32),
    Leave(IpAddr, u32),
    MulticastLoop(bool),
    MulticastHops(u8),
    MulticastInterface(u32),
}

impl TcpOption {
    /// The error of a carrier that does not have this option.
    pub(crate) fn unsupported(self) -> io::Error {
        match self {
            Self::SendBuffer(_) | Self::RecvBuffer(_) => unsupported(
                "buffer sizes of a connection: set those of all connections in StackOptions::tcp",
            ),
            other => unsupported(&format!("option {other:?}")),
        }
    }
}

impl UdpOption {
    /// The error of a carrier that does not have this option.
    pub(crate) fn unsupported(self) -> io::Error {
        match self {
            Self::SendBuffer(_) | Self::RecvBuffer(_) => unsupported(
                "buffer sizes of a socket: set those of all sockets in StackOptions::channel",
            ),
            Self::Join(..) | Self::Leave(..) => unsupported("groups that sockets join"),
            other => unsupported(&format!("option {other:?}")),
        }
    }
}

/// The error of an operation that only sockets of the kernel have.
pub(crate) fn unsupported(what: &str) -> io::Error {
    let reason = format!("a socket that is not of the kernel has no {what}");
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

/// Checks a differentiated services code point, which the kernel does itself.
pub(crate) fn check_dscp(dscp: u8) -> io::Result<()> {
    let reason = "a DSCP has six bits: give a value from 0 to 63";
    match dscp {
        0..=63 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, reason)),
    }
}
