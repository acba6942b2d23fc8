//! Counts the field lines of an HPACK block (RFC 7541, section 6) without decoding them.

/// The counter of one header block, which may arrive in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FieldLines {
    stage: Stage,
    count: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Start,
    /// Inside an integer of several bytes, which this many strings follow.
    Number { strings: u8 },
    /// Before the length of a string; it and its successors are this many strings.
    Length { strings: u8 },
    /// Inside a string's length of several bytes.
    LongLength {
        strings: u8,
        length: u32,
        shift: u32,
    },
    /// Inside a string, with `left` bytes to come.
    String { strings: u8, left: u32 },
}

impl FieldLines {
    /// Returns the number of lines so far. An update of the dynamic table's size counts as a line, as it costs as much
    /// work.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Takes the next bytes of the block. Malformed HPACK gives an arbitrary count, at most one for each byte.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = rest;
            self.stage = match self.stage {
                Stage::Start => self.begin(byte),
                Stage::Number { strings } if byte & MORE != 0 => Stage::Number { strings },
                Stage::Number { strings } => Stage::before(strings),
                Stage::Length { strings } => match u32::from(byte & !HUFFMAN) {
                    0x7f => Stage::LongLength {
                        strings,
                        length: 0x7f,
                        shift: 0,
                    },
                    length => Stage::inside(strings, length),
                },
                Stage::LongLength {
                    strings,
                    length,
                    shift,
                } => {
                    let more = u32::from(byte & !MORE)
                        .checked_shl(shift)
                        .unwrap_or(u32::MAX);
                    let (length, shift) = (length.saturating_add(more), shift + 7);
                    match byte & MORE != 0 {
                        true => Stage::LongLength {
                            strings,
                            length,
                            shift,
                        },
                        false => Stage::inside(strings, length),
                    }
                }
                Stage::String { strings, left } => {
                    // `byte` is the first of the bytes to come; skip the others that are here.
                    let now = (left as usize - 1).min(bytes.len());
                    bytes = &bytes[now..];
                    Stage::inside(strings, left - 1 - now as u32)
                }
            };
        }
    }

    fn begin(&mut self, byte: u8) -> Stage {
        self.count += 1;
        // The bits of the index or size, and the number of strings that follow an index of zero (a literal name) and
        // any other index.
        let (mask, unnamed, named) = match byte {
            0x80.. => (0x7f, 0, 0),
            0x40.. => (0x3f, 2, 1),
            0x20.. => (0x1f, 0, 0),
            _ => (0x0f, 2, 1),
        };
        match byte & mask {
            0 => Stage::before(unnamed),
            number if number == mask => Stage::Number { strings: named },
            _ => Stage::before(named),
        }
    }
}

impl Stage {
    const fn before(strings: u8) -> Self {
        match strings {
            0 => Self::Start,
            _ => Self::Length { strings },
        }
    }

    const fn inside(strings: u8, left: u32) -> Self {
        match left {
            0 => Self::before(strings - 1),
            _ => Self::String { strings, left },
        }
    }
}

/// Set in each byte of a long integer but the last.
const MORE: u8 = 0x80;

/// Set in the first byte of a string's length if the string is Huffman-coded.
const HUFFMAN: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pieces: &[&[u8]]) -> usize {
        let mut lines = FieldLines::default();
        pieces.iter().for_each(|piece| lines.push(piece));
        assert!(matches!(lines.stage, Stage::Start), "{lines:?}");
        lines.count()
    }

    #[test]
    fn lines_of_each_form() {
        let long = [&[0x00, 0x7f, 0x81, 0x01][..], &[b'n'; 256], &[0x01, b'v']].concat();
        for (block, lines) in [
            (&b""[..], 0),
            // RFC 7541, C.2.1 to C.2.4.
            (b"\x40\x0acustom-key\x0dcustom-header", 1),
            (b"\x04\x0c/sample/path", 1),
            (b"\x10\x08password\x06secret", 1),
            (b"\x82", 1),
            // C.4.1, Huffman-coded.
            (
                b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
                4,
            ),
            // Updates of the table's size, and an index of two bytes.
            (b"\x3f\xe1\x1f\x20\xff\x00\x82", 4),
            // Names with indices of two bytes, and empty strings.
            (b"\x7f\x00\x00\x0f\x11\x01v\x40\x00\x00", 3),
            (&long, 1),
        ] {
            assert_eq!(count(&[block]), lines, "{block:?}");
            let bytes: Vec<_> = block.chunks(1).collect();
            assert_eq!(count(&bytes), lines, "{block:?} byte by byte");
            for place in 0..block.len() {
                let (start, rest) = block.split_at(place);
                assert_eq!(count(&[start, rest]), lines, "{block:?} in two");
            }
        }
    }

    #[test]
    fn nonsense_is_counted_without_harm() {
        let mut lines = FieldLines::default();
        lines.push(&[0x00, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        lines.push(&[0xff; 10_000]);
        assert!(lines.count() <= 10_010);
    }
}
