//! The options of sockets, as values: a carrier has one function for all of them.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use softclock_linux::socket::udp::Ecn;
use softclock_net::stack::DatagramOptions;
use softclock_net::tcp::keepalive::KeepAlive;
use softclock_net::tcp::settings::Settings;

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
    /// Checks the value, which the kernel does itself.
    pub(crate) fn check(self) -> io::Result<()> {
        match self {
            Self::Dscp(dscp) => check_dscp(dscp),
            Self::HopLimit(hops) => check_hop_limit(hops),
            _ => Ok(()),
        }
    }

    /// Changes the setting for which the option stands, if there is one.
    pub(crate) fn apply(self, settings: &mut Settings) {
        match self {
            Self::NoDelay(on) => settings.send.has_nagle = !on,
            Self::KeepAlive(keep_alive) => settings.keep_alive = keep_alive,
            Self::UserTimeout(timeout) => settings.send.user_timeout = timeout,
            Self::Dscp(dscp) => settings.dscp = dscp,
            Self::HopLimit(hops) => settings.hop_limit = hops,
            Self::NotsentLowat(_) | Self::Linger(_) | Self::SendBuffer(_) | Self::RecvBuffer(_) => {
            }
        }
    }

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
    /// Returns the options of the datagrams to send, with this one.
    ///
    /// # Errors
    /// `InvalidInput` for a value out of its range, `Unsupported` for an option that is not among them.
    pub(crate) fn applied(self, mut options: DatagramOptions) -> io::Result<DatagramOptions> {
        let class = &mut options.traffic_class;
        match self {
            Self::Ecn(ecn) => *class = with_ecn(*class, ecn),
            Self::Dscp(dscp) => {
                check_dscp(dscp)?;
                *class = dscp << 2 | Ecn::of_traffic_class(*class) as u8;
            }
            Self::HopLimit(hops) => {
                check_hop_limit(hops)?;
                options.hop_limit = hops;
            }
            Self::MulticastLoop(on) => options.loops_groups = on,
            Self::MulticastHops(hops) => options.group_hop_limit = hops,
            other => return Err(other.unsupported()),
        }
        Ok(options)
    }

    /// The error of a carrier that does not have this option.
    pub(crate) fn unsupported(self) -> io::Error {
        match self {
            Self::SendBuffer(_) | Self::RecvBuffer(_) => unsupported(
                "buffer sizes of a socket: set those of all sockets in StackOptions::channel",
            ),
            Self::Join(..) | Self::Leave(..) => unsupported(
                "groups here: on a stack, the thread that has opened it by AF_PACKET or TAP can join and leave groups, at \
                 interface 0 or the stack's",
            ),
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
fn check_dscp(dscp: u8) -> io::Result<()> {
    let reason = "a DSCP has six bits: give a value from 0 to 63";
    match dscp {
        0..=63 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, reason)),
    }
}

/// Checks a hop limit for packets to single hosts, which the kernel does itself.
fn check_hop_limit(hops: u8) -> io::Result<()> {
    let reason = "a packet without hops reaches no host: give a hop limit from 1 to 255";
    match hops {
        0 => Err(io::Error::new(io::ErrorKind::InvalidInput, reason)),
        _ => Ok(()),
    }
}

/// Returns the traffic class with this ECN field.
pub(crate) const fn with_ecn(class: u8, ecn: Ecn) -> u8 {
    class >> 2 << 2 | ecn as u8
}
