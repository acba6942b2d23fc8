//! Validators and conditional requests (RFC 9110, sections 8.8 and 13).
//!
//! The entity tag of a file consists of its length, its modification time in nanoseconds and its inode. It changes
//! whenever the content does, with one exception: a program rewrites the file in place with the same length, and either
//! does so within one tick of the file system's clock (1 to 4 ms) or sets the old modification time again. Replacing a
//! file by rename, as editors and deployments do, changes the inode and so the tag.

use std::time::SystemTime;

use http::header::{
    HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE,
};
use softclock::fs::Metadata;

use crate::syntax::coding::Coding;

/// A strong entity tag, including its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityTag(HeaderValue);

impl EntityTag {
    /// Returns the tag of a file with this coding. The coding is part of the tag, so that a sibling that is a hard link
    /// to the original has a different one.
    pub fn of_file(metadata: &Metadata, coding: Coding) -> Self {
        let (len, modified_ns) = (metadata.len(), metadata.modified_ns());
        Self::from_parts(len, modified_ns, metadata.inode(), coding)
    }

    fn from_parts(len: u64, modified_ns: i128, inode: u64, coding: Coding) -> Self {
        let mut tag = Vec::with_capacity(56);
        tag.push(b'"');
        push_hex(&mut tag, len);
        tag.push(b'-');
        // The conversion wraps, which is harmless: 64 bits of nanoseconds distinguish any two times within 584 years.
        push_hex(&mut tag, modified_ns as u64);
        tag.push(b'-');
        push_hex(&mut tag, inode);
        if let Some(suffix) = coding.suffix().strip_prefix('.') {
            tag.push(b'-');
            tag.extend_from_slice(suffix.as_bytes());
        }
        tag.push(b'"');
        Self(HeaderValue::from_bytes(&tag).expect("letters, digits, dashes and quotes"))
    }

    /// Returns the tag of content that is part of the program. `tag` must be ASCII, in quotes.
    pub(crate) fn of_static(tag: &'static [u8]) -> Self {
        let tag = std::str::from_utf8(tag).expect("ASCII");
        Self(HeaderValue::from_static(tag))
    }

    /// Returns the value of the ETag field.
    pub fn to_header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// Compares strongly with one member of a list; a weak tag never matches.
    fn matches_strongly(&self, other: &[u8]) -> bool {
        self.0.as_bytes() == other
    }

    fn matches_weakly(&self, other: &[u8]) -> bool {
        self.matches_strongly(other.strip_prefix(b"W/").unwrap_or(other))
    }
}

/// A time that HTTP can express: whole seconds from 1970 to 9999.
///
/// ```
/// use http::HeaderValue;
/// use softclock_http::conditional::HttpTime;
///
/// let rfc_850 = HeaderValue::from_static("Sunday, 06-Nov-94 08:49:37 GMT");
/// let time = HttpTime::parse(&rfc_850).unwrap();
/// assert_eq!(time.to_header(), "Sun, 06 Nov 1994 08:49:37 GMT");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpTime(u64);

impl HttpTime {
    /// Returns the second that contains `time`; `None` outside 1970 to 9999.
    pub fn new(time: SystemTime) -> Option<Self> {
        let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
        (since_epoch < YEAR_10000).then_some(Self(since_epoch))
    }

    /// Parses any of the three formats of RFC 9110, section 5.6.7.
    pub fn parse(field: &HeaderValue) -> Option<Self> {
        Self::new(httpdate::parse_http_date(field.to_str().ok()?).ok()?)
    }

    /// Returns the value of a date field.
    pub fn to_header(self) -> HeaderValue {
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(self.0);
        let text = httpdate::fmt_http_date(time);
        HeaderValue::from_str(&text).expect("a date is ASCII")
    }
}

/// The validators of a representation, with which conditions of a request are compared.
#[derive(Clone, Debug)]
pub struct Validators {
    /// The entity tag.
    pub etag: EntityTag,
    /// The time of the last modification, not later than the current time.
    pub modified: Option<HttpTime>,
}

/// The result of evaluating the preconditions of a GET or HEAD request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answer as without preconditions.
    Proceed,
    /// The client's copy is current (304).
    NotModified,
    /// The representation is not in a state that the request requires (412).
    PreconditionFailed,
}

/// Evaluates the preconditions of a GET or HEAD request in the order of RFC 9110, section 13.2.2.
pub fn evaluate(headers: &HeaderMap, current: &Validators) -> Outcome {
    // If-Unmodified-Since is ignored beside If-Match, and If-Modified-Since beside If-None-Match.
    if headers.contains_key(IF_MATCH) {
        if !any_tag(headers, IF_MATCH, |tag| current.etag.matches_strongly(tag)) {
            return Outcome::PreconditionFailed;
        }
    } else if let (Some(since), Some(modified)) =
        (date(headers, IF_UNMODIFIED_SINCE), current.modified)
        && modified > since
    {
        return Outcome::PreconditionFailed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        if any_tag(headers, IF_NONE_MATCH, |tag| {
            current.etag.matches_weakly(tag)
        }) {
            return Outcome::NotModified;
        }
    } else if let (Some(since), Some(modified)) =
        (date(headers, IF_MODIFIED_SINCE), current.modified)
        && modified <= since
    {
        return Outcome::NotModified;
    }
    Outcome::Proceed
}

/// Returns whether a Range field applies (RFC 9110, section 13.1.5): if there is no If-Range, or if that matches the
/// current state. A date matches only if the file cannot have changed again within its second.
pub fn if_range_holds(headers: &HeaderMap, current: &Validators, now: SystemTime) -> bool {
    let Some(field) = headers.get(IF_RANGE) else {
        return true;
    };
    // A date never begins like a tag (RFC 9110, section 13.1.5).
    if field.as_bytes().starts_with(b"\"") || field.as_bytes().starts_with(b"W/") {
        return current.etag.matches_strongly(field.as_bytes());
    }
    match (HttpTime::parse(field), current.modified, HttpTime::new(now)) {
        (Some(named), Some(modified), Some(now)) => named == modified && modified < now,
        _ => false,
    }
}

/// Returns whether any member of the field's list is `*` or satisfies `matches`. Malformed members match nothing.
fn any_tag(headers: &HeaderMap, name: HeaderName, matches: impl Fn(&[u8]) -> bool) -> bool {
    headers.get_all(name).iter().any(|value| {
        let value = value.as_bytes().trim_ascii();
        value == b"*" || TagList(value).any(&matches)
    })
}

/// Returns the date in a field; `None` if the field is absent, repeated or malformed.
fn date(headers: &HeaderMap, name: HeaderName) -> Option<HttpTime> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => HttpTime::parse(value),
        _ => None,
    }
}

/// The entity tags of a list, including `W/` and quotes. Commas may occur within the quotes of a tag.
struct TagList<'a>(&'a [u8]);

impl<'a> Iterator for TagList<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self
            .0
            .iter()
            .position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let list = &self.0[start..];
        let opening = if list.starts_with(b"W/") { 2 } else { 0 };
        if list.get(opening) != Some(&b'"') {
            return None;
        }
        let inside = &list[opening + 1..];
        let closing = inside.iter().position(|&byte| byte == b'"')?;
        let (tag, rest) = list.split_at(opening + closing + 2);
        self.0 = rest;
        Some(tag)
    }
}

/// Appends `number` in hexadecimal, in about a tenth of the time of `format!`.
fn push_hex(text: &mut Vec<u8>, number: u64) {
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        let digit = (number >> (4 * place)) & 15;
        text.push(b"0123456789abcdef"[digit as usize]);
    }
}

/// Seconds from 1970 to the first date that HTTP cannot express.
const YEAR_10000: u64 = 253_402_300_800;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MODIFIED: u64 = 784_111_777;
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sunday, 06-Nov-94 08:49:38 GMT";

    fn current() -> Validators {
        let etag = EntityTag::from_parts(0x10, 0x20, 0x30, Coding::Identity);
        Validators {
            etag,
            modified: Some(HttpTime(MODIFIED)),
        }
    }

    fn outcome(fields: &[(HeaderName, &'static str)]) -> Outcome {
        evaluate(&map(fields), &current())
    }

    fn map(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name.clone(), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn if_none_match() {
        use Outcome::{NotModified, Proceed};
        for (value, expected) in [
            ("\"10-20-30\"", NotModified),
            ("W/\"10-20-30\"", NotModified),
            ("\"a,b\", \"10-20-30\"", NotModified),
            ("*", NotModified),
            ("\"other\"", Proceed),
            ("10-20-30", Proceed),
            ("\"10-20-30", Proceed),
            ("", Proceed),
        ] {
            assert_eq!(outcome(&[(IF_NONE_MATCH, value)]), expected, "{value}");
        }
        let two_lines = [(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, "\"10-20-30\"")];
        assert_eq!(outcome(&two_lines), NotModified);
    }

    #[test]
    fn if_match_compares_strongly() {
        use Outcome::{PreconditionFailed, Proceed};
        for (value, expected) in [
            ("\"10-20-30\"", Proceed),
            ("*", Proceed),
            ("\"x\" , ,\"10-20-30\"", Proceed),
            ("W/\"10-20-30\"", PreconditionFailed),
            ("\"other\"", PreconditionFailed),
            ("nonsense", PreconditionFailed),
        ] {
            assert_eq!(outcome(&[(IF_MATCH, value)]), expected, "{value}");
        }
    }

    #[test]
    fn dates() {
        use Outcome::{NotModified, PreconditionFailed, Proceed};
        for (name, value, expected) in [
            (IF_MODIFIED_SINCE, EARLIER, Proceed),
            (IF_MODIFIED_SINCE, SAME, NotModified),
            (IF_MODIFIED_SINCE, LATER, NotModified),
            (IF_MODIFIED_SINCE, "yesterday", Proceed),
            (IF_UNMODIFIED_SINCE, EARLIER, PreconditionFailed),
            (IF_UNMODIFIED_SINCE, SAME, Proceed),
            (IF_UNMODIFIED_SINCE, LATER, Proceed),
            (IF_UNMODIFIED_SINCE, "yesterday", Proceed),
        ] {
            assert_eq!(
                outcome(&[(name.clone(), value)]),
                expected,
                "{name}: {value}"
            );
        }
    }

    #[test]
    fn tags_go_before_dates_and_match_before_none_match() {
        use Outcome::{NotModified, PreconditionFailed, Proceed};
        let tag = "\"10-20-30\"";
        assert_eq!(
            outcome(&[(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, LATER)]),
            Proceed
        );
        assert_eq!(
            outcome(&[(IF_MATCH, tag), (IF_UNMODIFIED_SINCE, EARLIER)]),
            Proceed
        );
        assert_eq!(
            outcome(&[(IF_MATCH, "\"x\""), (IF_NONE_MATCH, tag)]),
            PreconditionFailed
        );
        assert_eq!(
            outcome(&[(IF_MATCH, tag), (IF_NONE_MATCH, tag)]),
            NotModified
        );
        assert_eq!(
            outcome(&[(IF_UNMODIFIED_SINCE, LATER), (IF_NONE_MATCH, tag)]),
            NotModified
        );
    }

    #[test]
    fn without_a_date_of_its_own_dates_say_nothing() {
        let undated = Validators {
            modified: None,
            ..current()
        };
        for name in [IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE] {
            assert_eq!(
                evaluate(&map(&[(name, EARLIER)]), &undated),
                Outcome::Proceed
            );
        }
    }

    #[test]
    fn if_range() {
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED);
        let much_later = then + Duration::from_secs(60);
        let holds = |value, now| if_range_holds(&map(&[(IF_RANGE, value)]), &current(), now);
        assert!(if_range_holds(&HeaderMap::new(), &current(), much_later));
        assert!(holds("\"10-20-30\"", much_later));
        assert!(!holds("W/\"10-20-30\"", much_later));
        assert!(!holds("\"x\"", much_later));
        assert!(holds(SAME, much_later));
        assert!(!holds(SAME, then), "it may change again within this second");
        assert!(!holds(LATER, much_later));
        assert!(!holds("nonsense", much_later));
    }

    #[test]
    fn times_outside_http_are_left_out() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(HttpTime::new(epoch - Duration::from_secs(1)), None);
        assert_eq!(HttpTime::new(epoch + Duration::from_secs(YEAR_10000)), None);
        let last = HttpTime::new(epoch + Duration::from_secs(YEAR_10000 - 1)).unwrap();
        assert_eq!(last.to_header(), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(HttpTime(MODIFIED).to_header(), SAME);
    }

    #[test]
    fn tags_of_old_files() {
        let before_epoch = EntityTag::from_parts(1, -1, 2, Coding::Gzip).to_header();
        let mut zero = Vec::new();
        push_hex(&mut zero, 0);
        assert_eq!(zero, b"0");
        assert_eq!(before_epoch, format!("\"1-{:x}-2-gz\"", -1i64).as_str());
    }

    proptest::proptest! {
        #[test]
        fn hexadecimal(number: u64) {
            let mut text = Vec::new();
            push_hex(&mut text, number);
            proptest::prop_assert_eq!(text, format!("{number:x}").into_bytes());
        }

        #[test]
        fn no_list_panics(value in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40)) {
            TagList(&value).count();
        }
    }
}
