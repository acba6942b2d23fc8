//! Converts the path of a request to the path of a file below the root.
//!
//! A path is decoded once, segment by segment. A path that could name another file to a program between the client and
//! this server is refused: one with dot segments, plain or encoded (clients remove them, RFC 3986 section 5.2.4), an
//! encoded slash, or a NUL. Names that start with a dot are treated as missing, except `.well-known` at the top (RFC
//! 8615). A backslash is an ordinary character. As the last line of defence, [`Root`](softclock::fs::Root) makes the
//! kernel refuse to open any file outside the root.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// A path below the root, decoded and checked.
///
/// ```
/// use softclock_http::path::{PathError, RequestPath};
/// use std::path::Path;
///
/// let path = RequestPath::parse("/a%20b/c.html")?;
/// assert_eq!(path.relative(), Path::new("a b/c.html"));
/// assert_eq!(RequestPath::parse("/a/%2e%2e/b"), Err(PathError::Malformed));
/// # Ok::<(), PathError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPath {
    /// Non-empty segments joined by `/`; empty for the root.
    relative: Vec<u8>,
    /// Whether the request's path ended with a slash.
    directory: bool,
}

/// The reason why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// The path does not start with a slash, or contains `%` without two hexadecimal digits, an encoded slash or NUL,
    /// or a dot segment.
    Malformed,
    /// A segment is a hidden name: it starts with a dot.
    Hidden,
}

impl RequestPath {
    /// Decodes the path of a request target. Work and memory are linear in its length.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn parse(path: &str) -> Result<Self, PathError> {
        let segments = path.strip_prefix('/').ok_or(PathError::Malformed)?;
        let mut relative = Vec::with_capacity(segments.len());
        // Empty segments are skipped: `//` names the same file as `/`.
        for segment in segments.split('/').filter(|segment| !segment.is_empty()) {
            if !relative.is_empty() {
                relative.push(b'/');
            }
            let start = relative.len();
            decode_segment(segment.as_bytes(), &mut relative)?;
            check_name(&relative[start..], start == 0)?;
        }
        let directory = segments.is_empty() || segments.ends_with('/');
        Ok(Self {
            relative,
            directory,
        })
    }

    /// Returns whether the request's path ended with a slash.
    pub const fn is_directory(&self) -> bool {
        self.directory
    }

    /// Returns the path relative to the root; `.` for the root itself.
    pub fn relative(&self) -> &Path {
        if self.relative.is_empty() {
            return Path::new(".");
        }
        Path::new(OsStr::from_bytes(&self.relative))
    }

    /// Returns the path relative to the root as bytes; empty for the root itself.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.relative
    }

    /// Like [`as_bytes`](Self::as_bytes), with a slash at the end of a directory below the root.
    pub(crate) fn name_bytes(&self) -> Cow<'_, [u8]> {
        if self.directory && !self.relative.is_empty() {
            [&self.relative, &b"/"[..]].concat().into()
        } else {
            self.as_bytes().into()
        }
    }

    /// Returns the path of the index file `name` in this directory.
    pub fn index(&self, name: &str) -> Self {
        let mut relative = Vec::with_capacity(self.relative.len() + 1 + name.len());
        relative.extend_from_slice(&self.relative);
        if !relative.is_empty() {
            relative.push(b'/');
        }
        relative.extend_from_slice(name.as_bytes());
        Self {
            relative,
            directory: false,
        }
    }

    /// Returns a reference to this path with a slash at the end, relative to the URL of the request. Such a reference
    /// cannot name another host, and stays valid behind a proxy that maps this server below a prefix.
    pub fn directory_reference(&self, query: Option<&str>) -> String {
        let name = self
            .relative
            .rsplit(|&byte| byte == b'/')
            .next()
            .unwrap_or_default();
        let mut reference = format!("./{}/", percent_encode(name, UNSAFE_IN_SEGMENT));
        if let Some(query) = query {
            reference.push('?');
            reference.push_str(query);
        }
        reference
    }
}

fn decode_segment(segment: &[u8], decoded: &mut Vec<u8>) -> Result<(), PathError> {
    let mut rest = segment;
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, tail) = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, tail),
                _ => return Err(PathError::Malformed),
            },
            (b'%', _) => return Err(PathError::Malformed),
            (byte, tail) => (byte, tail),
        };
        // Encoded or not, these would change the meaning of the path after decoding.
        if byte == b'/' || byte == 0 {
            return Err(PathError::Malformed);
        }
        decoded.push(byte);
        rest = tail;
    }
    Ok(())
}

fn check_name(name: &[u8], at_top: bool) -> Result<(), PathError> {
    match name {
        b"." | b".." => Err(PathError::Malformed),
        b".well-known" if at_top => Ok(()),
        [b'.', ..] => Err(PathError::Hidden),
        _ => Ok(()),
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

/// All characters except the unreserved ones of RFC 3986. Among them are `\`, which browsers treat as a slash, and `:`.
pub(crate) const UNSAFE_IN_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Component;

    fn relative(path: &str) -> Result<String, PathError> {
        let parsed = RequestPath::parse(path)?;
        Ok(String::from_utf8_lossy(parsed.relative().as_os_str().as_bytes()).into_owned())
    }

    #[test]
    fn plain_paths() {
        assert_eq!(relative("/").unwrap(), ".");
        assert_eq!(relative("/a/b.html").unwrap(), "a/b.html");
        assert_eq!(relative("//a///b/").unwrap(), "a/b");
        assert_eq!(relative("/a%20b%c3%A9").unwrap(), "a bé");
        assert_eq!(
            relative("/.well-known/security.txt").unwrap(),
            ".well-known/security.txt"
        );
        assert_eq!(relative("/a..b/...c").unwrap_err(), PathError::Hidden);
        assert_eq!(relative("/a..b/c..").unwrap(), "a..b/c..");
        assert!(RequestPath::parse("/a/").unwrap().is_directory());
        assert!(!RequestPath::parse("/a").unwrap().is_directory());
    }

    #[test]
    fn hostile_paths() {
        for path in [
            "/..",
            "/../x",
            "/a/../b",
            "/%2e%2e/x",
            "/%2E./x",
            "/.%2e",
            "/.",
            "/a/%2e/b",
            "/a%2Fb",
            "/..%2fetc",
            "/a%00.html",
            "/%",
            "/%2",
            "/%zz",
            "/%+1",
            "",
            "*",
            "a/b",
        ] {
            assert_eq!(relative(path), Err(PathError::Malformed), "{path}");
        }
        for path in [
            "/.git/config",
            "/a/.htaccess",
            "/a/.well-known/x",
            "/%2egit",
            "/...",
        ] {
            assert_eq!(relative(path), Err(PathError::Hidden), "{path}");
        }
    }

    #[test]
    fn decoded_once_and_backslash_is_a_letter() {
        assert_eq!(relative("/%252e%252e/x").unwrap(), "%2e%2e/x");
        assert_eq!(relative("/a%5c..%5cb").unwrap(), "a\\..\\b");
        assert_eq!(relative("/..\\x").unwrap_err(), PathError::Hidden);
    }

    #[test]
    fn index_of_root_and_of_a_directory() {
        let index = |path| RequestPath::parse(path).unwrap().index("index.html");
        assert_eq!(index("/").relative(), Path::new("index.html"));
        assert_eq!(index("/a/").relative(), Path::new("a/index.html"));
    }

    #[test]
    fn references_stay_on_this_host() {
        let reference = |path, query| RequestPath::parse(path).unwrap().directory_reference(query);
        assert_eq!(reference("/a/b", None), "./b/");
        assert_eq!(reference("/a/b", Some("x=1&y")), "./b/?x=1&y");
        assert_eq!(reference("//evil.example", None), "./evil.example/");
        assert_eq!(
            reference("/%5C%5Cevil.example", None),
            "./%5C%5Cevil.example/"
        );
        assert_eq!(reference("/http:x", None), "./http%3Ax/");
        assert_eq!(
            reference("/%0d%0aSet-Cookie:x", None),
            "./%0D%0ASet-Cookie%3Ax/"
        );
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_stays_below(path in "/([.]|%2[eEfF]|%5c|%00|%25|/|[a-z]|\\\\){0,24}") {
            if let Ok(parsed) = RequestPath::parse(&path) {
                let relative = parsed.relative();
                prop_assert!(!relative.as_os_str().as_bytes().contains(&0));
                prop_assert!(relative.components().all(|component| match component {
                    Component::Normal(name) => !name.as_bytes().starts_with(b"."),
                    Component::CurDir => relative == Path::new("."),
                    _ => false,
                }), "{relative:?}");
            }
        }

        #[test]
        fn any_name_survives_encoding(name in proptest::collection::vec(1u8.., 1..20)) {
            prop_assume!(!name.contains(&b'/') && name[0] != b'.');
            let path = format!("/{}", percent_encode(&name, UNSAFE_IN_SEGMENT));
            let parsed = RequestPath::parse(&path).unwrap();
            prop_assert_eq!(parsed.relative().as_os_str().as_bytes(), name.as_slice());
        }
    }
}
