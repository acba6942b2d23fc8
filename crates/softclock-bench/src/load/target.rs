//! The resource that clients request, and its server.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A resource with the scheme `http`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The server's address.
    pub address: SocketAddr,
    /// The value of the field Host.
    pub host: String,
    /// The path and query.
    pub path: String,
}

/// The reason for which a text is not a target.
#[derive(Debug)]
pub enum TargetError {
    /// The text is not of the form `http://HOST[:PORT][/PATH]`.
    Malformed(String),
    /// The host name has no address.
    Unknown(String),
}

impl Target {
    /// Creates a target for `path` at this address.
    pub fn new(address: SocketAddr, path: &str) -> Self {
        Self {
            address,
            host: address.to_string(),
            path: path.into(),
        }
    }

    /// Returns the request, with this value of the field Connection.
    pub(super) fn request(&self, connection: &str) -> Vec<u8> {
        let Self { host, path, .. } = self;
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: {connection}\r\n\r\n")
            .into_bytes()
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let malformed = || TargetError::Malformed(text.into());
        let rest = text.strip_prefix("http://").ok_or_else(malformed)?;
        let (host, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let plain = |byte: u8| byte.is_ascii_graphic();
        if host.is_empty() || !text.bytes().all(plain) {
            return Err(malformed());
        }
        // A colon after the brackets of an IPv6 address, or in any other host, begins a port.
        let bare = host
            .rsplit(']')
            .next()
            .is_some_and(|end| !end.contains(':'));
        let with_port = if bare {
            format!("{host}:80")
        } else {
            host.into()
        };
        let mut addresses = with_port
            .to_socket_addrs()
            .map_err(|_| TargetError::Unknown(host.into()))?;
        Ok(Self {
            address: addresses
                .next()
                .ok_or_else(|| TargetError::Unknown(host.into()))?,
            host: host.into(),
            path: path.into(),
        })
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) => {
                write!(f, "'{text}' is not a URL of the form http://HOST:PORT/PATH")
            }
            Self::Unknown(host) => write!(f, "cannot resolve the host {host}"),
        }
    }
}

impl std::error::Error for TargetError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let parse = |text: &str| text.parse::<Target>();
        let target = parse("http://127.0.0.1:8080/a?b").unwrap();
        assert_eq!(target.address, "127.0.0.1:8080".parse().unwrap());
        assert_eq!((&*target.host, &*target.path), ("127.0.0.1:8080", "/a?b"));
        let target = parse("http://[::1]").unwrap();
        assert_eq!(target.address, "[::1]:80".parse().unwrap());
        assert_eq!(target.path, "/");
        for bad in [
            "127.0.0.1:80",
            "https://a/",
            "http://",
            "http:///a",
            "http://a b/",
        ] {
            assert!(
                matches!(parse(bad), Err(TargetError::Malformed(_))),
                "{bad}"
            );
        }
        let unknown = parse("http://127.0.0.1:http/").unwrap_err();
        assert!(matches!(unknown, TargetError::Unknown(_)));
    }
}
