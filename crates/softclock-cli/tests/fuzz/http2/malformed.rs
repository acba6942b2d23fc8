//! Streams that must not be served, and frames that must end the connection.

use crate::random::Random;

use super::frames::{
    self, CONTINUATION, DATA, END_HEADERS, GOAWAY, HEADERS, PING, PRIORITY, PUSH_PROMISE,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
};

/// Changes the fields of a request so that it must be refused; returns the name of the change.
pub(crate) fn spoil(fields: &mut Vec<(String, String)>, random: &mut Random) -> String {
    match random.within(0..=5) {
        0..=2 => {
            let (name, value) = random.pick(FIELDS);
            let field = (name.to_owned(), value.to_owned());
            // Pseudo fields come before the others.
            let at = if name.starts_with(':') {
                0
            } else {
                fields.len()
            };
            fields.insert(at, field);
            format!("{name:?}: {value:?}")
        }
        3 => {
            let (name, _) = fields.remove(random.within(0..=2));
            format!("without {name}")
        }
        4 => {
            let again = fields[random.within(0..=2)].clone();
            let name = again.0.clone();
            fields.insert(1, again);
            format!("two of {name}")
        }
        _ => {
            let late = fields.remove(random.within(0..=2));
            let name = late.0.clone();
            fields.push(late);
            format!("{name} behind other fields")
        }
    }
}

/// Fields that no request may have.
pub(crate) const FIELDS: &[(&str, &str)] = &[
    ("X-Upper", "a"),
    ("x y", "a"),
    ("x:y", "a"),
    ("x\r\ny", "a"),
    ("", "a"),
    ("x", "a\r\nsmuggled: 1"),
    ("x", "a\n\nGET /smuggled HTTP/1.1"),
    ("x", "a\rb"),
    ("x", "a\0b"),
    ("connection", "keep-alive"),
    ("proxy-connection", "close"),
    ("transfer-encoding", "chunked"),
    ("transfer-encoding", "identity"),
    ("te", "gzip"),
    ("upgrade", "h2c"),
    ("content-length", "x"),
    ("content-length", "-1"),
    (":unknown", "a"),
    (":status", "200"),
];

/// Frames after which the connection must end.
pub(crate) fn fatal(next_stream: u32, random: &mut Random) -> Vec<u8> {
    let stream = next_stream;
    match random.within(0..=19) {
        0 => frame(DATA, 0, 0, b"x"),
        1 => frame(DATA, 0, stream + 20, b"x"),
        2 => frame(HEADERS, END_HEADERS, 0, b"\x82"),
        3 => frame(HEADERS, END_HEADERS, stream + 1, b"\x82"),
        4 => frame(
            HEADERS,
            END_HEADERS,
            stream,
            b"\xff\xff\xff\xff\xff\xff\xff",
        ),
        5 => frame(HEADERS, END_HEADERS | 8, stream, b"\xffxx"),
        6 => [
            frame(HEADERS, 0, stream, b"\x82"),
            frame(PING, 0, 0, &[0; 8]),
        ]
        .concat(),
        7 => frame(CONTINUATION, END_HEADERS, stream, b"\x82"),
        8 => frame(SETTINGS, 0, 0, &[0; 5]),
        9 => frame(SETTINGS, 1, 0, &[0; 6]),
        10 => frame(SETTINGS, 0, 1, &[]),
        11 => frames::settings(&[(2, 2)]),
        12 => frames::settings(&[(4, u32::MAX)]),
        13 => frame(PING, 0, 0, &[0; 7]),
        14 => frame(PING, 0, 1, &[0; 8]),
        15 => frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
        16 => [
            frames::window_update(0, i32::MAX as u32),
            frames::window_update(0, i32::MAX as u32),
        ]
        .concat(),
        17 => frame(RST_STREAM, 0, stream + 20, &[0; 4]),
        18 => frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        _ => frame(SETTINGS, 0, 0, &[0; 20_001]),
    }
}

/// Frames without an effect.
pub(crate) fn harmless(random: &mut Random) -> Vec<u8> {
    match random.within(0..=5) {
        0 => frame(PING, 0, 0, &random.next().to_be_bytes()),
        1 => frames::settings(&[(3, 100), (0xfafa, 7)]),
        2 => frame(
            PRIORITY,
            0,
            1 + 2 * random.within(0..=50) as u32,
            &[0, 0, 0, 0, 9],
        ),
        3 => frame(0xfa, 0xff, random.next() as u32 >> 1, &random.bytes(20)),
        4 => frames::settings(&[]),
        _ => frame(GOAWAY + 0x40, 0, 0, b"greased"),
    }
}

/// Many frames without an effect.
pub(crate) fn flood(random: &mut Random) -> Vec<u8> {
    let one = harmless(random);
    one.repeat(random.pick(&[1_000, 20_000]))
}
