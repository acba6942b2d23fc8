//! Parses the server's frames strictly.

use std::collections::BTreeMap;
use std::io;

use futures_lite::AsyncReadExt;
use softclock::timeout;

use crate::limits::ANSWER;
use crate::transport::Reader;

/// A frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// The reason why no further frame arrives.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    End,
    Late,
}

/// The next frame.
pub(crate) async fn next(reader: &mut Reader) -> Result<Frame, Stop> {
    let read = async {
        let mut head = [0; 9];
        reader.read_exact(&mut head).await?;
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let len = u32::from_be_bytes([0, high, middle, low]);
        let mut payload = vec![0; len as usize];
        reader.read_exact(&mut payload).await?;
        io::Result::Ok(Frame {
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
            payload,
        })
    };
    match timeout(ANSWER, read).await {
        Ok(Ok(frame)) => Ok(frame),
        Ok(Err(_)) => Err(Stop::End),
        Err(_) => Err(Stop::Late),
    }
}

/// The contents of a field block, as far as they are readable without Huffman's table: servers must not index anything
/// here.
#[derive(Default, Debug)]
pub(crate) struct Fields {
    pub(crate) status: u16,
    pub(crate) has_length: bool,
}

impl Fields {
    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        let mut fields = Self::default();
        let mut rest = block;
        while let &[first, ..] = rest {
            let (bits, is_literal) = match first {
                0x80.. => (7, false),
                0x40.. => (6, true),
                0x20.. => {
                    integer(&mut rest, 5)?;
                    continue;
                }
                _ => (4, true),
            };
            let index = integer(&mut rest, bits)?;
            if !is_literal {
                let statuses = BTreeMap::from([
                    (8, 200),
                    (9, 204),
                    (10, 206),
                    (11, 304),
                    (12, 400),
                    (13, 404),
                    (14, 500),
                ]);
                fields.status = statuses.get(&index).copied().unwrap_or(fields.status);
                continue;
            }
            if index == 0 {
                string(&mut rest)?;
            }
            let (value, is_coded) = string(&mut rest)?;
            match index {
                8..=14 => fields.status = number(value, is_coded)?,
                28 => fields.has_length = true,
                _ => {}
            }
        }
        Some(fields)
    }
}

/// RFC 7541, section 5.1.
fn integer(rest: &mut &[u8], bits: u32) -> Option<usize> {
    let (&first, more) = rest.split_first()?;
    *rest = more;
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(first) & most;
    if value < most {
        return Some(value);
    }
    for shift in (0..28).step_by(7) {
        let (&byte, more) = rest.split_first()?;
        *rest = more;
        value += usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Its bytes, and whether they are in Huffman's code.
fn string<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], bool)> {
    let is_coded = rest.first()? & 0x80 != 0;
    let len = integer(rest, 7)?;
    let (value, more) = rest.split_at_checked(len)?;
    *rest = more;
    Some((value, is_coded))
}

/// Three digits. In Huffman's code 0, 1 and 2 have five bits, and the others six.
fn number(value: &[u8], is_coded: bool) -> Option<u16> {
    if !is_coded {
        return std::str::from_utf8(value).ok()?.parse().ok();
    }
    let mut bits = value
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| u16::from(byte >> bit & 1)));
    let mut take = |count: usize| (0..count).try_fold(0, |sum, _| Some(sum * 2 + bits.next()?));
    let mut number = 0;
    for _ in 0..3 {
        let five = take(5)?;
        let digit = if five < 3 {
            five
        } else {
            (five * 2 + take(1)?).checked_sub(22)?
        };
        number = number * 10 + digit;
    }
    Some(number)
}

#[test]
fn statuses_are_read_in_any_form() {
    for (block, status) in [
        (&b"\x20\x88"[..], 200),
        (b"\x48\x03502", 502),
        (b"\x48\x82\x6c\x02", 502),
        (b"\x08\x03103", 103),
    ] {
        assert_eq!(
            Fields::decode(block).map(|fields| fields.status),
            Some(status),
            "{block:x?}"
        );
    }
    assert!(Fields::decode(b"\x89\x0f\x0d\x015").is_some_and(|fields| fields.has_length));
}
