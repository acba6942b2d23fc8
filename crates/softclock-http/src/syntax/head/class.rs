//! Classes of bytes, and fast scanning of runs within a class.

/// Tokens (RFC 9110, section 5.6.2): methods and field names.
pub(super) const TOKEN: u8 = 1;
/// Bytes of a path. Browsers send more than RFC 3986 allows, such as `|` and `^`. Bytes that browsers always escape are
/// refused, and so is `#`, at which some servers would cut off the rest.
pub(super) const PATH: u8 = 1 << 1;
/// Bytes of a query.
pub(super) const QUERY: u8 = 1 << 2;
/// Bytes of field values (RFC 9110, section 5.5), including white space and bytes beyond ASCII.
pub(super) const VALUE: u8 = 1 << 3;
/// Bytes of a registered name or an IPv4 address (RFC 3986, section 3.2.2), except escapes, and except commas, at which
/// some servers split the host as a list.
pub(super) const HOST: u8 = 1 << 4;
/// Bytes of an IPv6 address within its brackets.
pub(super) const LITERAL: u8 = 1 << 5;

/// Returns the length of the run of `class` at the start of `bytes`.
pub(super) fn run(bytes: &[u8], class: u8) -> usize {
    let mut at = 0;
    // Eight lookups need only one branch, and their bits show where the run ends.
    while let Some(eight) = bytes[at..].first_chunk::<8>() {
        let mut others = 0;
        for (place, &byte) in eight.iter().enumerate() {
            others |= u32::from(!is(byte, class)) << place;
        }
        if others != 0 {
            return at + others.trailing_zeros() as usize;
        }
        at += 8;
    }
    let rest = &bytes[at..];
    let end = rest.iter().position(|&byte| !is(byte, class));
    at + end.unwrap_or(rest.len())
}

/// Like [`run`] for [`VALUE`], but with arithmetic in place of lookups, as values make up most of a head.
pub(super) fn value_run(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = bytes[at..].first_chunk() {
        let controls = controls(u64::from_le_bytes(*word));
        if controls == 0 {
            at += 8;
            continue;
        }
        at += controls.trailing_zeros() as usize / 8;
        // A tab is the only control character that a value may contain.
        if bytes[at] != b'\t' {
            return at;
        }
        at += 1;
    }
    at + run(&bytes[at..], VALUE)
}

pub(super) fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Returns a word with the highest bit set in each byte that is below 0x20 or is 0x7f. It is exact up to the first such
/// byte: the subtraction borrows only from bytes after it.
const fn controls(word: u64) -> u64 {
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let delete = word ^ (ONES * 0x7f);
    let is_delete = delete.wrapping_sub(ONES) & !delete;
    (below_space | is_delete) & (ONES * 0x80)
}

const ONES: u64 = 0x0101_0101_0101_0101;

static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = classes_of(byte as u8);
        byte += 1;
    }
    classes
};

const fn classes_of(byte: u8) -> u8 {
    let mut classes = 0;
    if byte.is_ascii_alphanumeric() || in_set(byte, b"!#$%&'*+-.^_`|~") {
        classes |= TOKEN;
    }
    if byte.is_ascii_graphic() && !in_set(byte, b"\"#<>") {
        classes |= QUERY;
        if byte != b'`' && byte != b'?' {
            classes |= PATH;
        }
    }
    if byte == b'\t' || (byte >= b' ' && byte != 0x7f) {
        classes |= VALUE;
    }
    if byte.is_ascii_alphanumeric() || in_set(byte, b"-._~!$&'()*+;=") {
        classes |= HOST;
    }
    if byte.is_ascii_hexdigit() || in_set(byte, b":.") {
        classes |= LITERAL;
    }
    classes
}

const fn in_set(byte: u8, set: &[u8]) -> bool {
    let mut i = 0;
    while i < set.len() {
        if set[i] == byte {
            return true;
        }
        i += 1;
    }
    false
}

/// The beginning of a name or value, for comparison with short names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<const N: usize> {
    bytes: [u8; N],
    /// The number of all bytes, including those that did not fit.
    len: usize,
}

impl<const N: usize> Default for Word<N> {
    fn default() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }
}

impl<const N: usize> Word<N> {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..) {
            let n = room.len().min(bytes.len());
            room[..n].copy_from_slice(&bytes[..n]);
        }
        self.len = self.len.saturating_add(bytes.len());
    }

    /// Makes the word empty.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn is(&self, word: &[u8]) -> bool {
        self.get()
            .is_some_and(|known| known.eq_ignore_ascii_case(word))
    }

    pub(super) fn starts_with(&self, word: &[u8]) -> bool {
        let n = self.len.min(N);
        self.bytes[..n]
            .get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the word, unless it was too long.
    pub(super) fn get(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_at_a_time_are_as_one_at_a_time() {
        for other in [b'a', b' ', 0x80, 0xff, 0x7e] {
            for place in 0..20 {
                for byte in 0..=255 {
                    let mut bytes = [other; 20];
                    bytes[place] = byte;
                    let one_by_one = bytes.iter().take_while(|&&byte| is(byte, VALUE));
                    let expected = one_by_one.count();
                    assert_eq!(value_run(&bytes), expected, "{byte} at {place}");
                    assert_eq!(run(&bytes, VALUE), expected, "{byte} at {place}");
                }
            }
        }
    }

    #[test]
    fn words_longer_than_their_room_are_nothing_known() {
        let mut word = Word::<20>::default();
        word.push(b"Content-");
        word.push(b"Length");
        assert!(word.is(b"content-length") && word.starts_with(b"CONTENT"));
        word.push(&[b'x'; 100]);
        word.push(b"x");
        assert!(!word.is(b"content-length"));
        assert_eq!(word.get(), None);
    }
}
