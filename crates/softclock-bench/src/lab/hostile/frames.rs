//! HTTP/2 frames as bytes, valid or not, and a counter of the server's answers (RFC 9113, RFC 7541).

/// A frame type (RFC 9113, section 6), as are the next constants.
pub const HEADERS: u8 = 0x1;
/// See [`HEADERS`].
pub const PRIORITY: u8 = 0x2;
/// See [`HEADERS`].
pub const RST_STREAM: u8 = 0x3;
/// See [`HEADERS`].
pub const SETTINGS: u8 = 0x4;
/// See [`HEADERS`].
pub const PING: u8 = 0x6;
/// See [`HEADERS`].
pub const GOAWAY: u8 = 0x7;
/// See [`HEADERS`].
pub const WINDOW_UPDATE: u8 = 0x8;
/// See [`HEADERS`].
pub const CONTINUATION: u8 = 0x9;
/// A type that no specification defines; receivers ignore such frames.
pub const UNKNOWN: u8 = 0x42;

/// A frame flag (RFC 9113, section 6.1).
pub const END_STREAM: u8 = 0x1;
/// See [`END_STREAM`].
pub const END_HEADERS: u8 = 0x4;

/// The largest payload that every server accepts (RFC 9113, section 4.2).
pub const MAX_PAYLOAD: usize = 16 << 10;

/// Returns a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a payload of a frame");
    let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
    frame.extend_from_slice(&length.to_be_bytes()[1..]);
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Returns the start of a client's connection: the preface, its settings with the window of each stream, and the
/// largest window for the connection.
pub fn opening(stream_window: u32) -> Vec<u8> {
    let mut settings = 0x4_u16.to_be_bytes().to_vec();
    settings.extend_from_slice(&stream_window.to_be_bytes());
    let more = MAX_WINDOW - DEFAULT_WINDOW;
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &settings),
        frame(WINDOW_UPDATE, 0, 0, &more.to_be_bytes()),
    ]
    .concat()
}

/// Returns the header block of a GET request with additional fields, none of which enters the dynamic table.
pub fn get_block(path: &str, fields: impl IntoIterator<Item = (String, String)>) -> Vec<u8> {
    // `:method: GET` and `:scheme: https` of the static table.
    let mut block = vec![0x82, 0x87];
    block.push(0x04);
    text(&mut block, path);
    block.push(0x01);
    text(&mut block, "localhost");
    for (name, value) in fields {
        field(&mut block, 0x00, &name, &value);
    }
    block
}

/// Appends a field with a new name. `form` decides whether it enters the dynamic table: 0x40 (yes) or 0x00 (no).
pub fn field(block: &mut Vec<u8>, form: u8, name: &str, value: &str) {
    block.push(form);
    text(block, name);
    text(block, value);
}

/// Appends a string without Huffman coding.
fn text(block: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    if length < 0x7f {
        block.push(length as u8);
    } else {
        block.push(0x7f);
        length -= 0x7f;
        while length >= 0x80 {
            block.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        block.push(length as u8);
    }
    block.extend_from_slice(text.as_bytes());
}

/// Returns the frames of a request: HEADERS, and CONTINUATION frames as its block needs.
pub fn request(stream: u32, block: &[u8]) -> Vec<u8> {
    let mut pieces = block.chunks(MAX_PAYLOAD).peekable();
    let mut bytes = Vec::with_capacity(block.len() + HEADER_BYTES);
    let (mut kind, mut flags) = (HEADERS, END_STREAM);
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            flags |= END_HEADERS;
        }
        bytes.extend(frame(kind, flags, stream, piece));
        (kind, flags) = (CONTINUATION, 0);
    }
    bytes
}

/// A parser that counts a server's answers.
#[derive(Debug, Default)]
pub struct Answers {
    header: [u8; HEADER_BYTES],
    filled: usize,
    /// Bytes of the current payload that have not arrived.
    payload: usize,
    /// Streams that ended with a response or were reset.
    pub ended: u64,
    /// Whether the server has sent GOAWAY.
    pub going_away: bool,
}

impl Answers {
    /// Processes the next bytes of the connection.
    pub fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // Payloads are only skipped; they may span any number of reads.
            let skipped = self.payload.min(bytes.len());
            self.payload -= skipped;
            bytes = &bytes[skipped..];
            // A header may also be split between reads.
            let taken = (HEADER_BYTES - self.filled).min(bytes.len());
            self.header[self.filled..][..taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEADER_BYTES {
                self.filled = 0;
                self.on_header();
            }
        }
    }

    fn on_header(&mut self) {
        let [a, b, c, kind, flags, ..] = self.header;
        self.payload = u32::from_be_bytes([0, a, b, c]) as usize;
        match kind {
            DATA | HEADERS if flags & END_STREAM != 0 => self.ended += 1,
            RST_STREAM => self.ended += 1,
            GOAWAY => self.going_away = true,
            _ => {}
        }
    }
}

const DATA: u8 = 0x0;

const HEADER_BYTES: usize = 9;

/// The largest flow-control window.
pub const MAX_WINDOW: u32 = (1 << 31) - 1;

const DEFAULT_WINDOW: u32 = (1 << 16) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_their_header() {
        assert_eq!(frame(PING, 0, 0, &[7; 8])[..9], [0, 0, 8, 6, 0, 0, 0, 0, 0]);
        assert_eq!(
            frame(RST_STREAM, 0, 0x0102_0304, &8_u32.to_be_bytes()),
            [0, 0, 4, 3, 0, 1, 2, 3, 4, 0, 0, 0, 8]
        );
    }

    #[test]
    fn strings_have_their_length() {
        let length = |bytes| {
            let mut block = Vec::new();
            text(&mut block, &"a".repeat(bytes));
            block.truncate(block.len() - bytes);
            block
        };
        assert_eq!(length(3), [3]);
        assert_eq!(length(127), [0x7f, 0]);
        // RFC 7541, appendix C.1.2, encodes 1337 with a prefix of five bits; here the prefix has seven.
        assert_eq!(length(1337), [0x7f, 0xba, 0x09]);
    }

    #[test]
    fn a_large_request_continues() {
        let bytes = request(3, &[0; MAX_PAYLOAD + 1]);
        assert_eq!(bytes[3..5], [HEADERS, END_STREAM]);
        let second = &bytes[HEADER_BYTES + MAX_PAYLOAD..];
        assert_eq!(second[..5], [0, 0, 1, CONTINUATION, END_HEADERS]);
    }

    #[test]
    fn answers_are_counted_however_they_are_cut() {
        let bytes = [
            frame(SETTINGS, 0, 0, &[0; 6]),
            frame(HEADERS, END_HEADERS, 1, &[1; 20]),
            frame(DATA, END_STREAM, 1, &[0; 300]),
            frame(RST_STREAM, 0, 3, &[0; 4]),
            frame(GOAWAY, 0, 0, &[0; 8]),
        ]
        .concat();
        for size in [1, 7, 9, 10, 1000] {
            let mut answers = Answers::default();
            for piece in bytes.chunks(size) {
                answers.take(piece);
            }
            assert_eq!((answers.ended, answers.going_away), (2, true), "{size}");
        }
    }
}
