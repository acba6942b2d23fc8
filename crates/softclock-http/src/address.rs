//! Addresses to listen on, as people write them.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use softclock::net::{ListenOptions, TcpListener};

/// An address to listen on; `IP:PORT`, `[IPV6]:PORT` or `:PORT` as text. Port 0 takes any free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// One address and port. `[::]` means IPv6 only, so that `0.0.0.0` may stand beside it.
    One(SocketAddr),
    /// A port on all addresses of the machine.
    All(u16),
}

impl ListenAddress {
    /// Where `softclock serve` listens unless told otherwise.
    pub const DEFAULT: Self = Self::One(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080));

    pub(crate) const fn port(self) -> u16 {
        match self {
            Self::One(address) => address.port(),
            Self::All(port) => port,
        }
    }

    /// The same with another port.
    pub(crate) const fn with_port(self, port: u16) -> Self {
        match self {
            Self::One(address) => Self::One(SocketAddr::new(address.ip(), port)),
            Self::All(_) => Self::All(port),
        }
    }

    /// Listens, inside a runtime. All addresses are one IPv6 socket that takes IPv4 too, or an IPv4 socket on
    /// machines without IPv6.
    pub(crate) fn bind(self, reuse_port: bool) -> io::Result<TcpListener> {
        let options = |v6_only| ListenOptions {
            reuse_port,
            v6_only: Some(v6_only),
            ..ListenOptions::default()
        };
        match self {
            Self::One(address) => TcpListener::bind_with(address, &options(true)),
            Self::All(port) => {
                match TcpListener::bind_with((Ipv6Addr::UNSPECIFIED, port), &options(false)) {
                    // What tells that IPv6 is missing varies with how it is; these errors do not.
                    Err(error) if !is_final(&error) => {
                        TcpListener::bind_with((Ipv4Addr::UNSPECIFIED, port), &options(true))
                    }
                    result => result,
                }
            }
        }
    }
}

fn is_final(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
    )
}

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Ok(address) = text.parse() {
            return Ok(Self::One(address));
        }
        if let Some(Ok(port)) = text.strip_prefix(':').map(str::parse) {
            return Ok(Self::All(port));
        }
        Err(AddressError {
            advice: advice(text),
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(address) => address.fmt(f),
            Self::All(port) => write!(f, ":{port}"),
        }
    }
}

/// Text that is no address to listen on; displays what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    advice: String,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.advice)
    }
}

impl std::error::Error for AddressError {}

fn advice(text: &str) -> String {
    if text.parse::<u16>().is_ok() {
        return format!("write :{text} for this port on all addresses, or 127.0.0.1:{text}");
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return format!("write 127.0.0.1:{port} or [::1]:{port}");
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return format!("a port is missing; write {address}:8080");
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<Ipv6Addr>() {
        return format!("a port is missing; write [{address}]:8080");
    }
    "write IP:PORT, [IPV6]:PORT or :PORT".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let one = |text: &str| Ok(ListenAddress::One(text.parse().unwrap()));
        assert_eq!("127.0.0.1:80".parse(), one("127.0.0.1:80"));
        assert_eq!("[::1]:0".parse(), one("[::1]:0"));
        assert_eq!(":8080".parse(), Ok(ListenAddress::All(8080)));
        assert_eq!("127.0.0.1:8080".parse(), Ok(ListenAddress::DEFAULT));
        for wrong in [
            "",
            ":",
            "80",
            ":65536",
            "::1",
            "[::1]",
            "127.0.0.1",
            "localhost:80",
            "x:y",
        ] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn text_and_port() {
        for text in ["127.0.0.1:80", "[::1]:80", ":80"] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.port()), (text, 80));
            assert_eq!(address.with_port(0).to_string(), text.replace("80", "0"));
        }
    }
}
