//! Content codings, and a client's preferences among them (RFC 9110, section 12.5.3).

use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue};

/// The coding of a stored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// The file itself, not compressed.
    Identity,
    /// A sibling with `.gz` appended to the name.
    Gzip,
    /// A sibling with `.zst` appended.
    Zstd,
    /// A sibling with `.br` appended.
    Brotli,
}

impl Coding {
    /// All codings, ordered so that later ones win among those that a client accepts equally.
    pub const ALL: [Self; CODINGS] = [Self::Identity, Self::Gzip, Self::Zstd, Self::Brotli];

    /// All codings except the identity.
    pub const COMPRESSED: [Self; CODINGS - 1] = [Self::Gzip, Self::Zstd, Self::Brotli];

    /// Returns the suffix of files with this coding, including the dot.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Identity => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
            Self::Brotli => ".br",
        }
    }

    /// Returns the value of Content-Encoding; `None` for the identity.
    pub const fn content_encoding(self) -> Option<HeaderValue> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some(HeaderValue::from_static("gzip")),
            Self::Zstd => Some(HeaderValue::from_static("zstd")),
            Self::Brotli => Some(HeaderValue::from_static("br")),
        }
    }

    fn named(name: &[u8]) -> Option<Self> {
        const NAMES: [(&str, Coding); 5] = [
            ("identity", Coding::Identity),
            ("gzip", Coding::Gzip),
            ("x-gzip", Coding::Gzip),
            ("zstd", Coding::Zstd),
            ("br", Coding::Brotli),
        ];
        let found = NAMES
            .iter()
            .find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
        found.map(|&(_, coding)| coding)
    }
}

/// A client's weight for each coding, in thousandths; 0 refuses it.
///
/// ```
/// use http::header::{ACCEPT_ENCODING, HeaderMap};
/// use softclock_http::coding::{Coding, Preference};
///
/// let mut headers = HeaderMap::new();
/// headers.insert(ACCEPT_ENCODING, "gzip;q=0.5, br".parse()?);
/// let preference = Preference::of(&headers);
/// assert_eq!(preference.choose(|_| true), Some(Coding::Brotli));
/// assert_eq!(preference.choose(|coding| coding != Coding::Brotli), Some(Coding::Gzip));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preference([u16; CODINGS]);

impl Preference {
    /// Returns the preference of a request with these header fields. Without Accept-Encoding only the identity is
    /// accepted.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(ACCEPT_ENCODING).iter().peekable();
        if values.peek().is_none() {
            return Self::IDENTITY;
        }
        let mut named = [None; CODINGS];
        let mut others = None;
        for value in values {
            for member in value.as_bytes().split(|&byte| byte == b',') {
                let Some((name, quality)) = parse(member) else {
                    continue;
                };
                if name == b"*" {
                    others = Some(quality);
                } else if let Some(coding) = Coding::named(name) {
                    named[coding as usize] = Some(quality);
                }
            }
        }
        let mut quality = named.map(|named| named.or(others).unwrap_or(0));
        // The identity is acceptable even if it is not listed, but only as the last choice.
        if (named[0], others) == (None, None) {
            quality[0] = LEAST;
        }
        Self(quality)
    }

    /// Returns the best coding among those `available`; `None` if all of them are refused.
    pub fn choose(self, available: impl Fn(Coding) -> bool) -> Option<Coding> {
        let available = Coding::ALL
            .into_iter()
            .filter(|&coding| self.0[coding as usize] > 0 && available(coding));
        // `max_by_key` returns the last of equal ones, which is the best coding.
        available.max_by_key(|&coding| self.0[coding as usize])
    }

    const IDENTITY: Self = Self([1_000, 0, 0, 0]);
}

/// Returns the name and weight of a list member; `None` if the weight is malformed, which makes the member count as
/// absent.
fn parse(member: &[u8]) -> Option<(&[u8], u16)> {
    let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next()?;
    let Some(weight) = parts.next() else {
        return Some((name, 1_000));
    };
    let digits = match weight {
        [b'q' | b'Q', b'=', digits @ ..] if parts.next().is_none() => digits,
        _ => return None,
    };
    Some((name, thousandths(digits)?))
}

/// Parses a weight such as `0`, `0.5` or `1.000` (one digit, and at most three after the point) into thousandths.
fn thousandths(text: &[u8]) -> Option<u16> {
    let (whole, fraction) = match text {
        [whole] | [whole, b'.'] => (*whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (*whole, fraction),
        _ => return None,
    };
    if !matches!(whole, b'0' | b'1') || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().chain(b"000").take(3);
    let value = digits.fold(u16::from(whole - b'0'), |value, digit| {
        value * 10 + u16::from(digit - b'0')
    });
    (value <= 1_000).then_some(value)
}

/// The number of codings.
pub const CODINGS: usize = 4;

/// The weight of an identity that is not listed: not above any weight that can be written, except 0.
const LEAST: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use Coding::{Brotli, Gzip, Identity, Zstd};

    fn preference(field: &str) -> Preference {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(field).unwrap());
        Preference::of(&headers)
    }

    #[test]
    fn everything_is_there() {
        for (field, expected) in [
            ("", Some(Identity)),
            ("gzip", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("GZip", Some(Gzip)),
            ("gzip, deflate, br, zstd", Some(Brotli)),
            ("gzip, deflate, zstd", Some(Zstd)),
            ("gzip;q=0.5", Some(Gzip)),
            ("gzip;q=0.5, br;q=0.4", Some(Gzip)),
            ("gzip;q=0.5, identity;q=0.6", Some(Identity)),
            ("gzip;q=0.500 ,identity ; q=0.499", Some(Gzip)),
            ("br;q=0, *", Some(Zstd)),
            ("*", Some(Brotli)),
            ("*;q=0", None),
            ("*;q=0, identity", Some(Identity)),
            ("*;q=0, gzip;q=0.001", Some(Gzip)),
            ("identity;q=0", None),
            ("identity;q=0, gzip", Some(Gzip)),
            ("identity;q=0, *;q=0.1", Some(Brotli)),
            ("deflate", Some(Identity)),
            ("gzip;q=2", Some(Identity)),
            ("gzip;q=1.001", Some(Identity)),
            ("gzip;q=0.1234", Some(Identity)),
            ("gzip;q=x", Some(Identity)),
            ("gzip;level=9", Some(Identity)),
            ("gzip;q=1.;x", Some(Identity)),
            (",, ,gzip", Some(Gzip)),
        ] {
            assert_eq!(preference(field).choose(|_| true), expected, "{field:?}");
        }
    }

    #[test]
    fn what_is_missing_is_not_chosen() {
        let only = |one| move |coding| coding == Identity || coding == one;
        let all = preference("br, zstd, gzip;q=0.1");
        assert_eq!(all.choose(only(Gzip)), Some(Gzip));
        assert_eq!(all.choose(only(Identity)), Some(Identity));
        assert_eq!(preference("br, identity;q=0").choose(only(Gzip)), None);
        assert_eq!(Preference::of(&HeaderMap::new()), Preference::IDENTITY);
    }

    #[test]
    fn several_lines_are_one_list() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT_ENCODING, HeaderValue::from_static("br;q=0.1"));
        headers.append(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(Preference::of(&headers).choose(|_| true), Some(Gzip));
    }

    proptest::proptest! {
        #[test]
        fn refused_is_not_sent(weights in proptest::collection::vec((0usize..6, 0u16..=10), 0..8)) {
            const NAMES: [&str; 6] = ["identity", "gzip", "zstd", "br", "*", "other"];
            let text = |&(name, tenths): &(usize, u16)| {
                format!("{};q={}.{}", NAMES[name], tenths / 10, tenths % 10)
            };
            let field: Vec<_> = weights.iter().map(text).collect();
            let said = |name| weights.iter().rfind(|(n, _)| *n == name).map(|&(_, tenths)| tenths);
            let weight = |coding: Coding| said(coding as usize).or(said(4));
            let chosen = preference(&field.join(", ")).choose(|_| true);
            let Some(chosen) = chosen else {
                proptest::prop_assert_eq!(weight(Identity), Some(0));
                return Ok(());
            };
            let unsaid_identity = chosen == Identity && weight(Identity).is_none();
            proptest::prop_assert!(unsaid_identity || weight(chosen) > Some(0), "{field:?}");
            for other in Coding::ALL {
                proptest::prop_assert!(weight(other) <= weight(chosen).max(Some(0)), "{field:?}");
            }
        }

        #[test]
        fn weights(text in "[01](\\.[0-9]{0,3})?") {
            let expected = text.parse::<f64>().unwrap() * 1_000.0;
            let expected = (expected <= 1_000.0).then(|| expected.round() as u16);
            proptest::prop_assert_eq!(thousandths(text.as_bytes()), expected);
        }
    }
}
