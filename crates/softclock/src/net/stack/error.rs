//! Why a stack cannot be opened, or has ended.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::{fmt, io};

use softclock_linux::link::{ClaimError, DeviceError};

use super::{DelayError, RouteError, TcpSettingsError};

/// Why a stack cannot be opened, or has ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum StackError {
    /// No interface has this name.
    Find(String, io::Error),
    /// Another process of softclock uses the interface.
    Claim(String, ClaimError),
    /// The device cannot be opened.
    Open(DeviceError),
    /// No address was given.
    NoAddress,
    /// The addresses or routers contradict each other.
    Routes(RouteError),
    /// The host has this address, too.
    HostAddress(IpAddr),
    /// The host's addresses were to be shared, with AF_PACKET or a TAP device.
    HostNeedsXdp,
    /// The host's addresses were to be shared, and addresses of the stack's own were given.
    HostAndOwn,
    /// The host has no address on the interface that could be shared.
    NoHostAddress(String),
    /// The host's addresses were to be shared, without a port.
    NoHostPort,
    /// A port of the host cannot be reserved.
    HostPort(SocketAddr, io::Error),
    /// The longest packet is shorter than the second number of bytes: 576, or 1280 with an address of IPv6.
    MtuTooShort(u16, u16),
    /// The TAP device cannot have packets of this length.
    Mtu(u16, io::Error),
    /// A setting of TCP is out of its range, or contradicts another one.
    Tcp(TcpSettingsError),
    /// The runtime has a stack already.
    Exists,
    /// [`Architecture::NiLrp`](super::Architecture::NiLrp) was asked for with AF_PACKET or a TAP device, where no XDP
    /// program can demultiplex.
    NeedsXdp,
    /// The runtime cannot watch the device, or there is no runtime on this thread.
    Watch(io::Error),
    /// The interrupts of this interface cannot be delayed.
    Interrupts(String, DelayError),
    /// The file of the capture cannot be created.
    Capture(PathBuf, io::Error),
    /// The interface was deleted.
    Gone(String),
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Find(interface, error) => write!(f, "cannot find interface {interface}: {error}"),
            Self::Claim(interface, error) => write!(f, "cannot use {interface}: {error}"),
            Self::Open(error) => error.fmt(f),
            Self::NoAddress => f.write_str("a stack needs an address"),
            Self::Routes(error) => error.fmt(f),
            Self::HostAddress(address) => {
                write!(
                    f,
                    "{address} is an address of the host, and cannot be the stack's too"
                )
            }
            Self::HostNeedsXdp => f.write_str(
                "only AF_XDP shares the host's addresses, on an existing interface: otherwise the host, too, receives \
                 the packets to the ports, and refuses them",
            ),
            Self::HostAndOwn => f.write_str(
                "a stack that shares the host's addresses has no address of its own, on the link neither",
            ),
            Self::NoHostAddress(interface) => {
                write!(f, "the host has no address on {interface} to share")
            }
            Self::NoHostPort => f.write_str("a stack that shares the host's addresses needs a port"),
            Self::HostPort(address, error) => {
                write!(f, "cannot take {address} from the host: {error}")
            }
            Self::MtuTooShort(bytes, least) => {
                write!(f, "an MTU of {bytes} is too short: choose at least {least}")
            }
            Self::Mtu(bytes, error) => write!(
                f,
                "the TAP device cannot have an MTU of {bytes}: {error}; choose a lower one"
            ),
            Self::Tcp(error) => error.fmt(f),
            Self::Exists => f.write_str("the runtime has a stack already"),
            Self::NeedsXdp => f.write_str(
                "ni-lrp needs AF_XDP, whose program demultiplexes, on an existing interface",
            ),
            Self::Watch(error) => write!(f, "cannot watch the device: {error}"),
            Self::Interrupts(interface, error) => {
                write!(f, "cannot delay the interrupts of {interface}: {error}")
            }
            Self::Capture(path, error) => {
                write!(f, "cannot create the capture {}: {error}", path.display())
            }
            Self::Gone(interface) => write!(f, "{interface} is gone"),
        }
    }
}

impl std::error::Error for StackError {}
