//! The URLs of upstreams.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use http::HeaderValue;
use http::uri::{Authority, PathAndQuery};
use percent_encoding::percent_decode_str;

/// The URL of an upstream: `http://HOST[:PORT][/PREFIX]` or `unix:PATH`. The default port is 80.
///
/// The proxy prepends the prefix to the paths of requests. It then refuses paths with a segment `..`, which might lead
/// out of the prefix.
///
/// ```
/// use softclock_http::UpstreamUrl;
///
/// let url: UpstreamUrl = "http://app:3000/api/".parse()?;
/// assert_eq!(url.to_string(), "http://app:3000/api");
///
/// let error = "app:3000".parse::<UpstreamUrl>().unwrap_err();
/// assert_eq!(error.to_string(), "write http://app:3000");
/// # Ok::<(), softclock_http::UpstreamUrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamUrl {
    pub(super) address: UpstreamAddress,
    /// Empty, or a path that starts with a slash and does not end with one.
    prefix: String,
    /// The value of Host for requests that do not keep the client's.
    host: HeaderValue,
}

/// The address of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UpstreamAddress {
    Address(SocketAddr),
    /// A name, which must be resolved, and a port.
    Name(String, u16),
    Unix(PathBuf),
}

impl UpstreamUrl {
    /// Appends the target of a request to `head`: `asked`, below the prefix.
    pub(super) fn write_target(&self, head: &mut Vec<u8>, asked: &PathAndQuery) {
        let asked = asked.as_str();
        if asked != "*" {
            head.extend_from_slice(self.prefix.as_bytes());
            // A target may consist of a query only.
            if !asked.starts_with('/') {
                head.push(b'/');
            }
        }
        head.extend_from_slice(asked.as_bytes());
    }

    /// Returns whether the URL has a path prefix, below which requests must stay.
    pub(super) fn has_prefix(&self) -> bool {
        !self.prefix.is_empty()
    }

    /// Returns the host and port of the URL, as a value of Host.
    pub(super) fn host(&self) -> &HeaderValue {
        &self.host
    }
}

impl FromStr for UpstreamUrl {
    type Err = UpstreamUrlError;

    fn from_str(text: &str) -> Result<Self, UpstreamUrlError> {
        if text.contains(char::is_control) {
            return Err(malformed());
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.is_empty() {
                true => Err(UpstreamUrlError::new("write unix:PATH")),
                false => Ok(Self {
                    address: UpstreamAddress::Unix(path.into()),
                    prefix: String::new(),
                    host: HeaderValue::from_static("localhost"),
                }),
            };
        }
        let rest = text
            .strip_prefix("http://")
            .ok_or_else(|| UpstreamUrlError::new(advice(text)))?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let host = HeaderValue::from_str(authority).map_err(|_| malformed())?;
        Ok(Self {
            address: address(authority)?,
            prefix: prefix(path)?,
            host,
        })
    }
}

/// Returns whether any recipient could find a segment `..` in a path: literal, encoded, between encoded slashes or
/// backslashes, or with parameters. After a prefix, such a segment may lead out of it. Refusing it harms no normal
/// client, as clients resolve these segments themselves (RFC 3986, section 5.2.4).
pub(super) fn may_climb(path: &str) -> bool {
    let decoded: Cow<'_, [u8]> = percent_decode_str(path).into();
    let mut segments = decoded.split(|byte| matches!(byte, b'/' | b'\\'));
    segments.any(|segment| segment == b".." || segment.starts_with(b"..;"))
}

/// Parses `HOST[:PORT]`. IPv6 addresses have brackets.
fn address(authority: &str) -> Result<UpstreamAddress, UpstreamUrlError> {
    if authority.contains('@') {
        return Err(UpstreamUrlError::new("leave out the user and password"));
    }
    let parsed: Authority = authority.parse().map_err(|_| malformed())?;
    let host = parsed.host();
    let rest = &authority[host.len()..];
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => 80,
        // `Authority` accepts any text after a closing bracket.
        None => return Err(malformed()),
        Some(digits) => match digits.parse() {
            // `parse` accepts a sign, which a port must not have.
            Ok(port @ 1..) if !digits.starts_with('+') => port,
            _ => return Err(UpstreamUrlError::new("a port is 1 to 65535")),
        },
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match (bare.parse::<IpAddr>(), bare.len() == host.len()) {
        (Ok(address @ IpAddr::V4(_)), true) | (Ok(address @ IpAddr::V6(_)), false) => {
            Ok(UpstreamAddress::Address(SocketAddr::new(address, port)))
        }
        (Err(_), true) if !host.is_empty() => Ok(UpstreamAddress::Name(host.into(), port)),
        _ => Err(malformed()),
    }
}

/// Parses the path of a URL, and removes slashes at its end.
fn prefix(path: &str) -> Result<String, UpstreamUrlError> {
    if path.contains(['?', '#']) {
        return Err(UpstreamUrlError::new("a prefix has no query"));
    }
    let prefix = path.trim_end_matches('/');
    match prefix.is_empty() || prefix.parse::<PathAndQuery>().is_ok() {
        true => Ok(prefix.into()),
        false => Err(malformed()),
    }
}

/// Returns the text to write instead of `text`, which has no known scheme.
fn advice(text: &str) -> String {
    if text.starts_with("https://") {
        return "upstreams are reached without TLS; write http://HOST:PORT".into();
    }
    if text.starts_with('/') && Path::new(text).file_name().is_some() {
        return format!("write unix:{text} for a socket of this path");
    }
    if !text.contains("://") && address(text.split('/').next().unwrap_or(text)).is_ok() {
        return format!("write http://{text}");
    }
    MALFORMED.into()
}

fn malformed() -> UpstreamUrlError {
    UpstreamUrlError::new(MALFORMED)
}

const MALFORMED: &str = "write http://HOST:PORT, http://HOST:PORT/PREFIX or unix:PATH";

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            UpstreamAddress::Address(address) => write!(f, "http://{address}{}", self.prefix),
            UpstreamAddress::Name(name, port) => write!(f, "http://{name}:{port}{}", self.prefix),
            UpstreamAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The error of an invalid upstream URL. Displays as one line of advice, such as `write http://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamUrlError {
    advice: String,
}

impl UpstreamUrlError {
    fn new(advice: impl Into<String>) -> Self {
        Self {
            advice: advice.into(),
        }
    }
}

impl fmt::Display for UpstreamUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.advice)
    }
}

impl std::error::Error for UpstreamUrlError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_prefixes() {
        for (text, shown, prefix, host) in [
            (
                "http://127.0.0.1:80",
                "http://127.0.0.1:80",
                "",
                "127.0.0.1:80",
            ),
            ("http://[::1]:8080/", "http://[::1]:8080", "", "[::1]:8080"),
            ("http://app", "http://app:80", "", "app"),
            ("http://a.b:9/c/d/", "http://a.b:9/c/d", "/c/d", "a.b:9"),
            ("unix:/run/a b", "unix:/run/a b", "", "localhost"),
        ] {
            let url: UpstreamUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!((&*url.prefix, url.host().to_str().unwrap()), (prefix, host));
            assert_eq!(
                url.to_string().parse::<UpstreamUrl>().unwrap().address,
                url.address
            );
        }
    }

    #[test]
    fn requests_stay_below_the_prefix() {
        let target = |url: &str, asked: &str| {
            let url: UpstreamUrl = url.parse().unwrap();
            let mut target = Vec::new();
            url.write_target(&mut target, &asked.parse().unwrap());
            String::from_utf8(target).unwrap()
        };
        for (asked, bare, below) in [
            ("/", "/", "/p/"),
            ("/a?b", "/a?b", "/p/a?b"),
            ("?b", "/?b", "/p/?b"),
            // A fragment, which only HTTP/2 clients can send, is cut off.
            ("#b", "/", "/p/"),
            ("*", "*", "*"),
        ] {
            assert_eq!(target("http://a", asked), bare);
            assert_eq!(target("http://a/p/", asked), below);
        }
    }

    #[test]
    fn paths_that_lead_up() {
        for path in [
            "/..",
            "/../x",
            "/a/..",
            "/a/../b",
            "//..//x",
            "/%2e%2E/x",
            "/.%2e",
            "/..%2fx",
            "/a%2F..",
            "/..;a=b/x",
            "/..%3b/x",
            "/..%5cx",
            "/..\\x",
        ] {
            assert!(may_climb(path), "{path}");
        }
        for path in [
            "/",
            "*",
            "/a..b/..c/d..",
            "/...",
            "/./x",
            "/%2e",
            "/a;../b",
            "/%252e%252e",
        ] {
            assert!(!may_climb(path), "{path}");
        }
    }

    #[test]
    fn mistakes_are_one_line_that_helps() {
        for (text, part) in [
            ("https://a", "without TLS"),
            ("127.0.0.1:80", "write http://127.0.0.1:80"),
            ("a:80/x", "write http://a:80/x"),
            ("/run/x", "write unix:/run/x"),
            ("unix:", "write unix:PATH"),
            ("", "write http://HOST"),
            ("http://", "write http://HOST"),
            ("http://:80", "write http://HOST"),
            ("http://a:0", "a port is"),
            ("http://a:x", "a port is"),
            ("http://a:+80", "a port is"),
            ("http://a:65536", "a port is"),
            ("http://u:p@a", "password"),
            ("http://a/?x", "no query"),
            ("http://a#x", "no query"),
            ("http://a b/", "write http://HOST"),
            ("http://[::1", "write http://HOST"),
            ("http://[::1]x", "write http://HOST"),
            ("http://a/ x", "write http://HOST"),
            ("ftp://a", "write http://HOST"),
            ("unix:/a\nb", "write http://HOST"),
            ("/a\nb", "write http://HOST"),
        ] {
            let line = text.parse::<UpstreamUrl>().unwrap_err().to_string();
            assert!(
                line.contains(part) && !line.contains('\n'),
                "{text}: {line}"
            );
        }
    }
}
