//! Addresses to listen on, parsed from text.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// An address to listen on, with or without TLS.
///
/// As text: `IP:PORT`, `[IPV6]:PORT`, `:PORT`, `unix:PATH`, `systemd` or `systemd:NAME`, each with an optional prefix
/// `tls:`. With port 0 the kernel chooses a free port.
///
/// ```
/// use softclock_http::{ListenAddress, Place};
///
/// let address: ListenAddress = "tls:[::1]:8443".parse()?;
/// assert!(address.tls && matches!(address.place, Place::One(_)));
///
/// let error = "localhost:80".parse::<ListenAddress>().unwrap_err();
/// assert_eq!(error.to_string(), "write 127.0.0.1:80 or [::1]:80");
/// # Ok::<(), softclock_http::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// The place to listen at.
    pub place: Place,
    /// Whether clients must use TLS there.
    pub tls: bool,
}

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// One address and port. `[::]` means IPv6 only, so that `0.0.0.0` may be used beside it.
    One(SocketAddr),
    /// A port on all addresses of the machine.
    All(u16),
    /// A Unix stream socket at this path.
    Unix(PathBuf),
    /// The sockets that the service manager passed, or only those with this name.
    Systemd(Option<String>),
}

impl ListenAddress {
    /// The default of servers: `127.0.0.1:8080` without TLS.
    pub const DEFAULT: Self = Self::plain(Place::One(SocketAddr::new(
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        8080,
    )));

    /// Returns an address at `place` without TLS.
    pub const fn plain(place: Place) -> Self {
        Self { place, tls: false }
    }

    /// Returns the address with another port, or unchanged if it has none.
    pub(crate) fn with_port(&self, port: u16) -> Self {
        let place = match &self.place {
            Place::One(address) => Place::One(SocketAddr::new(address.ip(), port)),
            Place::All(_) => Place::All(port),
            other => other.clone(),
        };
        Self {
            place,
            tls: self.tls,
        }
    }
}

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (tls, place) = match text.strip_prefix("tls:") {
            Some(place) => (true, place),
            None => (false, text),
        };
        Ok(Self {
            place: place.parse()?,
            tls,
        })
    }
}

impl FromStr for Place {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Ok(address) = text.parse() {
            return Ok(Self::One(address));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return unix_path(path);
        }
        if let Some(Ok(port)) = text.strip_prefix(':').map(str::parse) {
            return Ok(Self::All(port));
        }
        match text.strip_prefix("systemd") {
            Some("") => return Ok(Self::Systemd(None)),
            Some(name) if name.len() > 1 && name.starts_with(':') => {
                return Ok(Self::Systemd(Some(name[1..].into())));
            }
            _ => {}
        }
        Err(AddressError::new(advice(text)))
    }
}

fn unix_path(path: &str) -> Result<Place, AddressError> {
    match path.len() {
        0 => Err(AddressError::new(
            "write the path too: unix:/run/softclock.sock",
        )),
        1..=LONGEST_PATH if !path.contains('\0') => Ok(Place::Unix(path.into())),
        _ => Err(AddressError::new(format!(
            "paths of sockets have {LONGEST_PATH} bytes at most; choose a shorter one"
        ))),
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "tls:" } else { "" })?;
        self.place.fmt(f)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(address) => address.fmt(f),
            Self::All(port) => write!(f, ":{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Systemd(None) => f.write_str("systemd"),
            Self::Systemd(Some(name)) => write!(f, "systemd:{name}"),
        }
    }
}

/// The error for text that is not an address to listen on. Its `Display` output suggests a correction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    advice: String,
}

impl AddressError {
    fn new(advice: impl Into<String>) -> Self {
        Self {
            advice: advice.into(),
        }
    }
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
    if text.starts_with('/') {
        return format!("write unix:{text} for a socket of this path");
    }
    "write IP:PORT, [IPV6]:PORT, :PORT, unix:PATH or systemd".into()
}

/// The size of `sun_path` in the kernel's `struct sockaddr_un`, less the final zero.
const LONGEST_PATH: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let one = |text: &str| Ok(Place::One(text.parse().unwrap()));
        assert_eq!("127.0.0.1:80".parse(), one("127.0.0.1:80"));
        assert_eq!("[::1]:0".parse(), one("[::1]:0"));
        assert_eq!(":8080".parse(), Ok(Place::All(8080)));
        assert_eq!("unix:/a b".parse(), Ok(Place::Unix("/a b".into())));
        assert_eq!("systemd".parse(), Ok(Place::Systemd(None)));
        let named = Place::Systemd(Some("web".into()));
        assert_eq!("systemd:web".parse(), Ok(named));
        assert_eq!("127.0.0.1:8080".parse(), Ok(ListenAddress::DEFAULT));
        let tls = ListenAddress {
            place: Place::All(443),
            tls: true,
        };
        assert_eq!("tls::443".parse(), Ok(tls));
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
            "unix:",
            "/run/x",
            "systemd:",
            "systemdx",
            "tls:",
            "tls:tls::1",
            &format!("unix:/{}", "x".repeat(107)),
        ] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn text_and_port() {
        for text in [
            "127.0.0.1:80",
            "[::1]:80",
            ":80",
            "unix:/x",
            "systemd:a",
            "tls::80",
        ] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.with_port(0).to_string(), text.replace("80", "0"));
        }
    }
}
