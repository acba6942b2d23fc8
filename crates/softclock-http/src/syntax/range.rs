//! The Range header field (RFC 9110, section 14).

use bytes::Bytes;

/// Bytes `first..=last` of a representation; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    first: u64,
    last: u64,
}

impl ByteRange {
    /// Returns the position of the first byte.
    pub const fn first(self) -> u64 {
        self.first
    }

    /// Returns the number of bytes.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a range holds at least one byte"
    )]
    pub const fn len(self) -> u64 {
        self.last - self.first + 1
    }

    /// Returns this part of `content`, or less if the range exceeds it.
    pub(crate) fn slice(self, content: &Bytes) -> Bytes {
        let end = usize::try_from(self.last).map_or(content.len(), |last| {
            content.len().min(last.saturating_add(1))
        });
        let first = usize::try_from(self.first).map_or(end, |first| first.min(end));
        content.slice(first..end)
    }

    /// Returns whether the ranges overlap, or adjoin without a gap.
    const fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    fn join(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }

    /// Returns the value of Content-Range for a representation of `length` bytes.
    pub fn content_range(self, length: u64) -> String {
        format!("bytes {}-{}/{length}", self.first, self.last)
    }
}

/// The part of a representation that a request selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The whole representation: the request has no range, or one that must or may be ignored.
    Whole,
    /// One part (206).
    Part(ByteRange),
    /// Several parts that neither adjoin nor overlap (206, multipart/byteranges).
    Parts(Vec<ByteRange>),
    /// No part within the representation (416).
    Unsatisfiable,
}

/// Returns the selection of a Range field's value from a representation of `length` bytes. The work is linear in the
/// field's length.
///
/// A field that is malformed or in another unit is ignored, as the RFC requires. Ranges that overlap or adjoin are
/// joined, in the place of the first of them; ranges beyond the end are left out. More than [`PARTS_MAX`] parts,
/// counted as they are met, select the whole representation, as section 14.2 permits: clients do not need that many,
/// and each part costs the server more than the client.
///
/// ```
/// use softclock_http::range::{Selection, select};
///
/// let Selection::Part(range) = select(b"bytes=-100", 1_000) else {
///     panic!("one part");
/// };
/// assert_eq!(range.content_range(1_000), "bytes 900-999/1000");
/// assert_eq!(select(b"bytes=1000-", 1_000), Selection::Unsatisfiable);
/// ```
pub fn select(field: &[u8], length: u64) -> Selection {
    let Some(set) = range_set(field) else {
        return Selection::Whole;
    };
    let mut parts = Vec::new();
    let mut any = false;
    let specs = set.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    for spec in specs.filter(|spec| !spec.is_empty()) {
        any = true;
        // One malformed range makes the whole field invalid.
        let Some(spec) = RangeSpec::parse(spec) else {
            return Selection::Whole;
        };
        match spec.of(length) {
            Satisfied::By(range) => merge(&mut parts, range),
            Satisfied::Emptily => return Selection::Whole,
            Satisfied::Not => {}
        }
        // Checked at each range, which bounds the work of merging.
        if parts.len() > PARTS_MAX {
            return Selection::Whole;
        }
    }
    match (any, parts.as_slice()) {
        (false, _) => Selection::Whole,
        (true, []) => Selection::Unsatisfiable,
        (true, [one]) => Selection::Part(*one),
        (true, _) => Selection::Parts(parts),
    }
}

/// Adds `range`, joined with those that it overlaps or adjoins, in the place of the first of them.
fn merge(parts: &mut Vec<ByteRange>, mut range: ByteRange) {
    let mut place = parts.len();
    // A joined range may touch parts that the original did not, so the search starts again.
    while let Some(at) = parts.iter().position(|part| part.touches(range)) {
        range = parts.remove(at).join(range);
        place = place.min(at);
    }
    parts.insert(place.min(parts.len()), range);
}

/// Returns the value of Content-Range in a 416 response.
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

    fn of(&self, length: u64) -> Satisfied {
        match *self {
            Self::From { first, .. } if first >= length => Satisfied::Not,
            Self::From { first, last } => {
                let last = last.map_or(length - 1, |last| last.min(length - 1));
                Satisfied::By(ByteRange { first, last })
            }
            Self::Suffix { len: 0 } => Satisfied::Not,
            Self::Suffix { .. } if length == 0 => Satisfied::Emptily,
            Self::Suffix { len } => {
                let first = length.saturating_sub(len);
                Satisfied::By(ByteRange {
                    first,
                    last: length - 1,
                })
            }
        }
    }
}

enum Satisfied {
    By(ByteRange),
    /// Satisfiable by the RFC, but Content-Range cannot express an empty range.
    Emptily,
    Not,
}

fn range_set(field: &[u8]) -> Option<&[u8]> {
    let (unit, set) = field.split_at_checked(UNIT.len())?;
    unit.eq_ignore_ascii_case(UNIT).then_some(set)
}

/// Parses digits; a number that is too large becomes the largest one.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let value = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(value))
    })
}

/// The most parts of one response.
pub const PARTS_MAX: usize = 16;

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
    fn malformed_ranges_are_ignored() {
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
            "bytes=0-1,x",
            "bytes=0-1,5-4",
            ",",
            "bytes=,",
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
    fn several_ranges() {
        for (field, expected) in [
            ("bytes=0-1,5-6", &[(0, 1), (5, 6)][..]),
            ("bytes=5-6, 0-1", &[(5, 6), (0, 1)]),
            ("bytes=0-1,,500-,-1", &[(0, 1), (99, 99)]),
            ("bytes=0-1,50-60,2-3", &[(0, 3), (50, 60)]),
            ("bytes=50-60,0-1,55-70,1-5", &[(50, 70), (0, 5)]),
            ("bytes=0-1,10-11,20-21,1-10", &[(0, 11), (20, 21)]),
        ] {
            let parts = expected
                .iter()
                .map(|&(first, last)| ByteRange { first, last });
            let expected = Selection::Parts(parts.collect());
            assert_eq!(select(field.as_bytes(), 100), expected, "{field}");
        }
        assert_eq!(select(b"bytes=0-4,5-9", 100), part(0, 9));
        assert_eq!(select(b"bytes=0-,0-,-100,7-7", 100), part(0, 99));
        assert_eq!(select(b"bytes=100-,200-300", 100), Selection::Unsatisfiable);
    }

    #[test]
    fn too_many_ranges_are_the_whole() {
        let field = |parts: usize| {
            let specs: Vec<_> = (0..parts).map(|n| format!("{}-{}", 3 * n, 3 * n)).collect();
            format!("bytes={}", specs.join(","))
        };
        let Selection::Parts(parts) = select(field(PARTS_MAX).as_bytes(), 1_000) else {
            panic!("sixteen are allowed")
        };
        assert_eq!(parts.len(), PARTS_MAX);
        let more = select(field(PARTS_MAX + 1).as_bytes(), 1_000);
        assert_eq!(more, Selection::Whole);
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
        fn parts_are_what_was_asked_for(
            specs in proptest::collection::vec((0u64..120, 0u64..40), 1..14),
            length in 1u64..100,
        ) {
            let text: Vec<_> = specs.iter().map(|(f, n)| format!("{f}-{}", f + n)).collect();
            let field = format!("bytes={}", text.join(","));
            let asked = |at: u64| specs.iter().any(|&(f, n)| (f..=f + n).contains(&at));
            let parts = match select(field.as_bytes(), length) {
                Selection::Parts(parts) => parts,
                Selection::Part(part) => vec![part],
                Selection::Unsatisfiable => vec![],
                Selection::Whole => return Err(TestCaseError::fail("not malformed")),
            };
            for at in 0..length + 50 {
                let given = parts.iter().filter(|p| (p.first..=p.last).contains(&at)).count();
                prop_assert_eq!(given, usize::from(at < length && asked(at)), "{} of {}", at, field);
            }
            for (at, part) in parts.iter().enumerate() {
                prop_assert!(parts[at + 1..].iter().all(|other| !part.touches(*other)));
            }
        }

        #[test]
        fn nothing_panics(field in proptest::collection::vec(any::<u8>(), 0..40), length: u64) {
            select(&field, length);
            select(&[b"bytes=", field.as_slice()].concat(), length);
        }
    }
}
