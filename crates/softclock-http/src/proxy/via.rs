//! The name in Via, by which a proxy recognises requests that it has passed on before (RFC 9110, section 7.6.3).
//!
//! A request that returns to a proxy that has forwarded it would loop until descriptors run out, as each round takes
//! two. Each proxy on the path appends its name to Via, so a proxy that finds its own name there has found a loop. The
//! default name is unique to the process, so that several proxies can be chained without configured names.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use http::Version;
use http::header::{HeaderMap, HeaderValue, VIA};

use crate::syntax::head::is_token;

/// A name for a proxy in Via: a token of at most 64 bytes.
///
/// Proxies that forward to each other need different names, as each refuses requests that carry its own name.
///
/// ```
/// use softclock_http::ViaName;
///
/// assert_eq!("edge-1".parse::<ViaName>().unwrap().to_string(), "edge-1");
/// assert!("edge 1".parse::<ViaName>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViaName(Arc<str>);

/// The name is not a token of 1 to 64 bytes: letters, digits, and some of `!#$%&'*+-.^_`|~`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViaNameError;

impl fmt::Display for ViaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ViaName {
    type Err = ViaNameError;

    fn from_str(text: &str) -> Result<Self, ViaNameError> {
        let is_name = (1..=64).contains(&text.len()) && is_token(text);
        is_name.then(|| Self(text.into())).ok_or(ViaNameError)
    }
}

impl fmt::Display for ViaNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name in Via has 1 to 64 letters, digits, dots, dashes or underscores")
    }
}

impl std::error::Error for ViaNameError {}

/// The elements that a proxy appends to Via.
#[derive(Clone, Debug)]
pub(super) struct Via {
    name: Arc<str>,
    /// The elements for requests, by the version in which they arrived.
    requests: [String; 3],
    /// The elements for responses, by the version in which they arrived.
    responses: [HeaderValue; 3],
}

impl Via {
    /// Uses `name`, or else one that is unique to this process. The unique name is for requests only: responses carry
    /// `softclock`, which does not tell processes apart.
    pub(super) fn new(name: Option<&ViaName>) -> Self {
        let is_named = name.is_some();
        let name = name.map_or_else(|| Arc::clone(&UNIQUE), |name| Arc::clone(&name.0));
        let requests = VERSIONS.map(|version| format!("{version} {name}"));
        let value = |text: &String| HeaderValue::try_from(text).expect("a token is a value");
        let named = || requests.each_ref().map(value);
        Self {
            responses: if is_named { named() } else { UNNAMED },
            requests,
            name,
        }
    }

    /// Returns the element for a request that arrived in this version.
    pub(super) fn in_request(&self, version: Version) -> &[u8] {
        self.requests[place(version)].as_bytes()
    }

    /// Returns the element for a response that arrived in this version.
    pub(super) fn in_response(&self, version: Version) -> &HeaderValue {
        &self.responses[place(version)]
    }

    /// Returns whether this proxy has forwarded a request with these fields before.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let values = headers.get_all(VIA).into_iter();
        let mut elements = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
        // An element is a protocol, a name and perhaps a comment.
        elements.any(|element| {
            let mut words = element.split(u8::is_ascii_whitespace);
            let name = words.by_ref().filter(|word| !word.is_empty()).nth(1);
            name.is_some_and(|name| name.eq_ignore_ascii_case(self.name.as_bytes()))
        })
    }
}

fn place(version: Version) -> usize {
    match version {
        Version::HTTP_10 => 0,
        Version::HTTP_2 => 2,
        _ => 1,
    }
}

const VERSIONS: [&str; 3] = ["1.0", "1.1", "2.0"];

const PRODUCT: &str = "softclock";

/// The elements for responses of an unnamed proxy. Constants, as cloning them counts no references.
const UNNAMED: [HeaderValue; 3] = [
    HeaderValue::from_static("1.0 softclock"),
    HeaderValue::from_static("1.1 softclock"),
    HeaderValue::from_static("2.0 softclock"),
];

/// The default name, the same in all threads and after reloads.
static UNIQUE: LazyLock<Arc<str>> = LazyLock::new(|| {
    // 48 random bits from the standard library's only source of them.
    let random = RandomState::new().hash_one(std::process::id()) >> 16;
    format!("{PRODUCT}-{random:012x}").into()
});

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in(via: &Via, values: &[&str]) -> bool {
        let field = |value: &&str| (VIA, HeaderValue::from_str(value).unwrap());
        via.is_in(&values.iter().map(field).collect())
    }

    #[test]
    fn a_proxy_finds_its_own_name_only() {
        let edge = Via::new(Some(&"edge".parse().unwrap()));
        for values in [
            &["1.1 edge"][..],
            &["1.0 a, HTTP/1.1\tEDGE (a comment) , 2.0 b"],
            &["1.1 a", "2.0  edge"],
        ] {
            assert!(is_in(&edge, values), "{values:?}");
        }
        for values in [
            &[][..],
            &["edge"],
            &["1.1 edge2, 1.1 a (edge)"],
            &["edge edge2"],
            &[",,"],
        ] {
            assert!(!is_in(&edge, values), "{values:?}");
        }
    }

    #[test]
    fn the_default_is_the_process_s_and_clients_do_not_get_it() {
        let via = Via::new(None);
        let sent = String::from_utf8(via.in_request(Version::HTTP_11).into()).unwrap();
        assert!(is_in(&Via::new(None), &[&sent]), "{sent}");
        assert_eq!(sent.len(), "1.1 softclock-0123456789ab".len());
        assert_eq!(via.in_response(Version::HTTP_11), "1.1 softclock");
        let named = Via::new(Some(&"edge".parse().unwrap()));
        assert_eq!(named.in_request(Version::HTTP_2), b"2.0 edge");
        assert_eq!(named.in_response(Version::HTTP_10), "1.0 edge");
    }

    #[test]
    fn names_are_tokens() {
        for name in ["", "a b", "a,b", "a(b)", "\u{e9}", &"a".repeat(65)] {
            assert_eq!(name.parse::<ViaName>(), Err(ViaNameError), "{name}");
        }
    }
}
