//! Frames and field blocks of HTTP/2 as a client writes them, right and wrong.

use crate::random::Random;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 0x20;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![len[1], len[2], len[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let pair = |&(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(
        SETTINGS,
        0,
        0,
        &values.iter().flat_map(pair).collect::<Vec<_>>(),
    )
}

pub(crate) fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// Fields as literals that are never indexed, without Huffman's code.
pub(crate) fn block(fields: &[(String, String)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0x10);
        for text in [name, value] {
            push_length(&mut bytes, text.len());
            // Each character stands for one byte, so that any byte is possible.
            bytes.extend(text.chars().map(|char| char as u8));
        }
    }
    bytes
}

fn push_length(bytes: &mut Vec<u8>, len: usize) {
    if len < 127 {
        bytes.push(len as u8);
        return;
    }
    bytes.push(127);
    let mut rest = len - 127;
    while rest >= 128 {
        bytes.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    bytes.push(rest as u8);
}

/// A field block in a HEADERS frame and perhaps CONTINUATION frames, at most `most` frames together.
pub(crate) fn headers(
    stream: u32,
    block: &[u8],
    ends: bool,
    most: usize,
    random: &mut Random,
) -> Vec<u8> {
    let pieces = random.split(block, most);
    let mut bytes = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let end_headers = if number + 1 == pieces.len() {
            END_HEADERS
        } else {
            0
        };
        if number > 0 {
            bytes.extend(frame(CONTINUATION, end_headers, stream, piece));
            continue;
        }
        let mut flags = end_headers | if ends { END_STREAM } else { 0 };
        let mut payload = piece.clone();
        if random.chance(20) {
            flags |= WITH_PRIORITY;
            let on = if stream > 1 { stream - 2 } else { 0 };
            payload = [&on.to_be_bytes()[..], &[random.next() as u8], &payload].concat();
        }
        if random.chance(20) {
            flags |= PADDED;
            payload = padded(&payload, random);
        }
        bytes.extend(frame(HEADERS, flags, stream, &payload));
    }
    bytes
}

fn padded(payload: &[u8], random: &mut Random) -> Vec<u8> {
    let padding = random.within(0..=255);
    [&[padding as u8][..], payload, &vec![0; padding]].concat()
}

/// A body in DATA frames.
pub(crate) fn data(stream: u32, body: &[u8], random: &mut Random) -> Vec<Vec<u8>> {
    let mut pieces: Vec<Vec<u8>> = body.chunks(16_000).map(<[u8]>::to_vec).collect();
    if random.chance(30) {
        pieces = pieces
            .iter()
            .flat_map(|piece| random.split(piece, 4))
            .collect();
    }
    if pieces.is_empty() {
        pieces.push(Vec::new());
    }
    let last = pieces.len() - 1;
    let frames = pieces.into_iter().enumerate().map(|(number, piece)| {
        let end = if number == last { END_STREAM } else { 0 };
        match random.chance(10) {
            true => frame(DATA, end | PADDED, stream, &padded(&piece, random)),
            false => frame(DATA, end, stream, &piece),
        }
    });
    frames.collect()
}
