//! The Range header field (RFC 9110, section 14).

/// Bytes `first..=last` of a representation; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    first: u64,
    last: u64,
}

impl ByteRange {
    /// Position of the first byte.
    pub const fn first(self) -> u64 {
        self.first
    }

    /// Number of bytes.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a range holds at least one byte"
    )]
    pub const fn len(self) -> u64 {
        self.last - self.first + 1
    }

    /// The value of Content-Range.
    pub fn content_range(self, length: u64) -> String {
        format!("bytes {}-{}/{length}", self.first, self.last)
    }
}

/// What of a representation a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of it: no range, or one that must or may be ignored.
    Whole,
    /// One part (206).
    Part(ByteRange),
    /// A part that the representation does not have (416).
    Unsatisfiable,
}

/// What a Range field's value selects from a representation of `length` bytes.
///
/// A field that is malformed or in another unit is ignored, as the RFC asks. So is one with several ranges, as it
/// permits.
pub fn select(field: &[u8], length: u64) -> Selection {
    let Some(set) = range_set(field) else {
        return Selection::Whole;
    };
    let mut specs = set
        .split(|&byte| byte == b',')
        .map(trim)
        .filter(|spec| !spec.is_empty());
    match (specs.next().map(RangeSpec::parse), specs.next()) {
        (Some(Some(spec)), None) => spec.of(length),
        _ => Selection::Whole,
    }
}

/// The value of Content-Range in a 416 response.
pub fn unsatisfied_content_range(length: u64) -> String {
    format!("bytes */{length}")
}

enum RangeSpec {
    From { first: u64, last: Option<u64> },
    Suffix { len: u64 },
}

impl RangeSpec {
    fn parse(spec: &[u8]) -> Option<Self> {
        let dash = spec.iter().position(|&byte| byte == b'-')?;
        let (before, after) = (&spec[..dash], &spec[dash + 1..]);
        if before.is_empty() {
            return Some(Self::Suffix {
                len: number(after)?,
            });
        }
        let first = number(before)?;
        let last = if after.is_empty() {
            None
        } else {
            Some(number(after)?)
        };
        match last {
            Some(last) if last < first => None,
            _ => Some(Self::From { first, last }),
        }
    }

    fn of(&self, length: u64) -> Selection {
        match *self {
            Self::From { first, .. } if first >= length => Selection::Unsatisfiable,
            Self::From { first, last } => {
                let last = last.map_or(length - 1, |last| last.min(length - 1));
                Selection::Part(ByteRange { first, last })
            }
            Self::Suffix { len: 0 } => Selection::Unsatisfiable,
            // Satisfiable by the RFC, but Content-Range has no way to say "all of nothing".
            Self::Suffix { .. } if length == 0 => Selection::Whole,
            Self::Suffix { len } => {
                let first = length.saturating_sub(len);
                Selection::Part(ByteRange {
                    first,
                    last: length - 1,
                })
            }
        }
    }
}

fn range_set(field: &[u8]) -> Option<&[u8]> {
    let (unit, set) = field.split_at_checked(UNIT.len())?;
    unit.eq_ignore_ascii_case(UNIT).then_some(set)
}

/// Digits only; numbers too big to be true count as the biggest.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let value = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(value))
    })
}

fn trim(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii()
}

const UNIT: &[u8] = b"bytes=";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(first: u64, last: u64) -> Selection {
        Selection::Part(ByteRange { first, last })
    }

    #[test]
    fn single_ranges() {
        for (field, expected) in [
            ("bytes=0-0", part(0, 0)),
            ("bytes=0-", part(0, 99)),
            ("BYTES=10-19", part(10, 19)),
            ("bytes= 10-19 ,", part(10, 19)),
            ("bytes=90-1000", part(90, 99)),
            ("bytes=-1", part(99, 99)),
            ("bytes=-100", part(0, 99)),
            ("bytes=-101", part(0, 99)),
            ("bytes=0-99999999999999999999999999", part(0, 99)),
            ("bytes=100-", Selection::Unsatisfiable),
            (
                "bytes=99999999999999999999999999-",
                Selection::Unsatisfiable,
            ),
            ("bytes=-0", Selection::Unsatisfiable),
        ] {
            assert_eq!(select(field.as_bytes(), 100), expected, "{field}");
        }
    }

    #[test]
    fn malformed_and_multiple_ranges_are_ignored() {
        for field in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=2-1",
            "bytes=+1-2",
            "bytes=1 -2",
            "items=0-1",
            "bytes 0-1",
            "bytes=0x1-2",
            "bytes=1-2-3",
            "bytes=0-1,5-6",
            "bytes=0-1,x",
        ] {
            assert_eq!(select(field.as_bytes(), 100), Selection::Whole, "{field}");
        }
    }

    #[test]
    fn an_empty_representation_has_no_part() {
        assert_eq!(select(b"bytes=0-", 0), Selection::Unsatisfiable);
        assert_eq!(select(b"bytes=-5", 0), Selection::Whole);
    }

    #[test]
    fn content_range() {
        let range = ByteRange { first: 2, last: 5 };
        assert_eq!(range.content_range(10), "bytes 2-5/10");
        assert_eq!((range.first(), range.len()), (2, 4));
        assert_eq!(unsatisfied_content_range(10), "bytes */10");
    }

    proptest! {
        #[test]
        fn parts_lie_inside(field in "bytes=[0-9]{0,3}-[0-9]{0,3}", length in 0u64..500) {
            if let Selection::Part(range) = select(field.as_bytes(), length) {
                prop_assert!(range.first <= range.last && range.last < length);
            }
        }

        #[test]
        fn nothing_panics(field in proptest::collection::vec(any::<u8>(), 0..40), length: u64) {
            select(&field, length);
            select(&[b"bytes=", field.as_slice()].concat(), length);
        }
    }
}
