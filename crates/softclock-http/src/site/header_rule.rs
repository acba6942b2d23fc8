//! Rules for response header fields: `PATTERN=Name: value`.

use std::fmt;
use std::str::FromStr;

use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, DATE, EXPIRES, HeaderMap, HeaderName,
    HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VARY,
};

/// A header field for the responses to certain paths.
///
/// The pattern is compared with the whole decoded path, including the first slash; `*` in it matches any number of any
/// characters, including slashes. The path of an index file includes its name: `/docs/index.html`, not `/docs/`.
///
/// A field replaces one of the same name that the server or an earlier rule has set; only Vary is added to. An empty
/// value removes the field. Errors and redirects get the fields as well, except those that control caching
/// (Cache-Control, Expires and the like), so that no client keeps an error for as long as a good response.
///
/// ```
/// use softclock_http::HeaderRule;
///
/// let rule: HeaderRule = "/assets/*=Cache-Control: max-age=31536000, immutable".parse().unwrap();
/// assert!("*=Content-Length: 5".parse::<HeaderRule>().is_err());
/// # drop(rule);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    pattern: String,
    name: HeaderName,
    /// `None` removes the field.
    value: Option<HeaderValue>,
}

/// The reason why a rule is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderRuleError {
    /// The text does not have the form of a rule.
    Form,
    /// The pattern begins with neither a slash nor a star, so it cannot match.
    Pattern,
    /// The name is not valid for a header field.
    Name,
    /// Only the server may set the field, as it frames messages or concerns the connection.
    Reserved,
    /// The value contains control characters.
    Value,
}

impl fmt::Display for HeaderRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => {
                "write PATTERN=Name: value, such as '/assets/*=Cache-Control: max-age=60'"
            }
            Self::Pattern => "start the pattern with / or *",
            Self::Name => "this name is not valid for a header field",
            Self::Reserved => {
                "only the server can set this field: it frames messages or concerns the connection"
            }
            Self::Value => "a value must not contain control characters",
        })
    }
}

impl std::error::Error for HeaderRuleError {}

impl HeaderRule {
    /// Creates a rule that sets this field in responses to paths that match `pattern`, or removes it if `value` is
    /// empty.
    ///
    /// # Errors
    /// See [`HeaderRuleError`].
    pub fn new(pattern: &str, name: &str, value: &str) -> Result<Self, HeaderRuleError> {
        if !pattern.starts_with(['/', '*']) {
            return Err(HeaderRuleError::Pattern);
        }
        let name = HeaderName::from_str(name.trim()).map_err(|_| HeaderRuleError::Name)?;
        if is_reserved(&name) {
            return Err(HeaderRuleError::Reserved);
        }
        let value = value.trim_matches([' ', '\t']);
        if value.contains(|character: char| character.is_ascii_control()) {
            return Err(HeaderRuleError::Value);
        }
        let value = match value {
            "" => None,
            value => Some(
                HeaderValue::from_bytes(value.as_bytes()).map_err(|_| HeaderRuleError::Value)?,
            ),
        };
        Ok(Self {
            pattern: pattern.into(),
            name,
            value,
        })
    }

    /// Applies the rule to the response to a request for `path`.
    pub(crate) fn apply(&self, path: &[u8], status: StatusCode, headers: &mut HeaderMap) {
        if !matches(self.pattern.as_bytes(), path) {
            return;
        }
        let good = status.is_success() || status == StatusCode::NOT_MODIFIED;
        match &self.value {
            None => drop(headers.remove(&self.name)),
            Some(_) if is_of_caching(&self.name) && !good => {}
            // The server's own Vary must stay, as caches depend on it.
            Some(value) if self.name == VARY => drop(headers.append(VARY, value.clone())),
            Some(value) => drop(headers.insert(self.name.clone(), value.clone())),
        }
    }
}

impl FromStr for HeaderRule {
    type Err = HeaderRuleError;

    fn from_str(text: &str) -> Result<Self, HeaderRuleError> {
        let (pattern, field) = text.split_once('=').ok_or(HeaderRuleError::Form)?;
        let (name, value) = field.split_once(':').ok_or(HeaderRuleError::Form)?;
        Self::new(pattern, name, value)
    }
}

/// Returns whether the field is hop-by-hop, frames a message, or depends on the single response.
fn is_reserved(name: &HeaderName) -> bool {
    const NAMES: [HeaderName; 8] = [
        CONNECTION,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        DATE,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    NAMES.contains(name) || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

fn is_of_caching(name: &HeaderName) -> bool {
    name == CACHE_CONTROL
        || name == EXPIRES
        || name.as_str().ends_with("-cache-control")
        || name == "surrogate-control"
}

/// Returns whether `pattern` matches all of `text`. The work is bounded by the product of their lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut next) = (0, 0);
    // The last star seen: its position in the pattern, and the end of the text that it matches so far. On a mismatch
    // this star is extended by one byte. Earlier stars need not be, as the last one can match the same bytes.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(next) {
            Some(b'*') => {
                star = Some((next, at));
                next += 1;
            }
            Some(&byte) if byte == text[at] => {
                at += 1;
                next += 1;
            }
            _ => {
                let Some((place, swallowed)) = star else {
                    return false;
                };
                star = Some((place, swallowed + 1));
                (at, next) = (swallowed + 1, place + 1);
            }
        }
    }
    pattern[next..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, path, expected) in [
            ("*", "/", true),
            ("*", "/a/b", true),
            ("/", "/", true),
            ("/", "/a", false),
            ("/assets/*", "/assets/a/b.js", true),
            ("/assets/*", "/assets", false),
            ("*.js", "/a/b.js", true),
            ("*.js", "/a/b.jsx", false),
            ("/a*b*c", "/a-b-b-c", true),
            ("/a*b*c", "/a-b-b", false),
            ("/a**", "/a", true),
            ("/*/x", "/a/b/x", true),
        ] {
            let matched = matches(pattern.as_bytes(), path.as_bytes());
            assert_eq!(matched, expected, "{pattern} {path}");
        }
    }

    #[test]
    fn mistakes() {
        use HeaderRuleError::{Form, Name, Pattern, Reserved, Value};
        for (text, error) in [
            ("x", Form),
            ("*=x", Form),
            ("assets/*=A: b", Pattern),
            ("=A: b", Pattern),
            ("*=A b: c", Name),
            ("*=: c", Name),
            ("*=Content-Length: 1", Reserved),
            ("*=transfer-encoding: chunked", Reserved),
            ("*=Connection:", Reserved),
            ("*=Keep-Alive: 5", Reserved),
            ("*=A: b\r\nSet-Cookie: x", Value),
            ("*=A: \u{1}", Value),
            ("*=A: b\0", Value),
        ] {
            assert_eq!(text.parse::<HeaderRule>().unwrap_err(), error, "{text:?}");
            assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn fields_are_set_added_and_removed() {
        let apply = |rules: &[&str], status| {
            let mut headers = HeaderMap::new();
            headers.insert("server", HeaderValue::from_static("s"));
            headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
            for rule in rules {
                let rule = rule.parse::<HeaderRule>().unwrap();
                rule.apply(b"/a", status, &mut headers);
            }
            headers
        };
        let headers = apply(
            &["*=Server:", "/a=X: 1", "*=X: 2", "/b=Y: 1"],
            StatusCode::OK,
        );
        assert_eq!(headers["x"], "2");
        assert!(!headers.contains_key("server") && !headers.contains_key("y"));
        assert_eq!(
            apply(&["*=Vary: origin"], StatusCode::OK)
                .get_all(VARY)
                .iter()
                .count(),
            2
        );
        let rules = ["*=Cache-Control: immutable", "*=X: 1"];
        let headers = apply(&rules, StatusCode::NOT_FOUND);
        assert!(!headers.contains_key(CACHE_CONTROL) && headers.contains_key("x"));
        assert!(apply(&rules, StatusCode::NOT_MODIFIED).contains_key(CACHE_CONTROL));
    }

    proptest::proptest! {
        #[test]
        fn matching_against_a_simple_one(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            fn simple(pattern: &[u8], text: &[u8]) -> bool {
                match (pattern, text) {
                    ([], []) => true,
                    ([b'*', rest @ ..], _) => (0..=text.len()).any(|n| simple(rest, &text[n..])),
                    ([a, pattern @ ..], [b, text @ ..]) => a == b && simple(pattern, text),
                    _ => false,
                }
            }
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            proptest::prop_assert_eq!(matches(pattern, text), simple(pattern, text));
        }
    }
}
