//! Splits a stream of bytes into HTTP/2 frames (RFC 9113, section 4.1) without keeping their payload.

/// The parser of one direction's frames.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes of the client's preface still to come.
    preface: usize,
    /// The header of the current frame; its first `have` bytes have arrived.
    header: [u8; HEADER_BYTES],
    have: usize,
    /// Bytes of the payload still to come.
    left: usize,
}

/// A part of a frame, from [`Frames::next`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part<'a> {
    /// The complete header of the next frame.
    Header(Header),
    /// Some bytes of the current frame's payload.
    Payload(&'a [u8]),
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// The length of the payload.
    pub(super) bytes: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Frames {
    /// Creates a parser of a client's output, which begins with the preface.
    pub(super) const fn from_client() -> Self {
        Self::behind(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len())
    }

    /// Creates a parser of a server's output.
    pub(super) const fn from_server() -> Self {
        Self::behind(0)
    }

    const fn behind(preface: usize) -> Self {
        Self {
            preface,
            header: [0; HEADER_BYTES],
            have: 0,
            left: 0,
        }
    }

    /// Removes the next part from the start of `bytes` and returns it; `None` when all of `bytes` is consumed.
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Part<'a>> {
        let preface = take(bytes, self.preface);
        self.preface -= preface.len();
        // Inside a payload: pass on as much of it as has arrived.
        if self.left > 0 {
            let payload = take(bytes, self.left);
            self.left -= payload.len();
            return (!payload.is_empty()).then_some(Part::Payload(payload));
        }
        // Collect the header, which may arrive in pieces.
        let more = take(bytes, HEADER_BYTES - self.have);
        self.header[self.have..self.have + more.len()].copy_from_slice(more);
        self.have += more.len();
        if self.have < HEADER_BYTES {
            return None;
        }
        let header = Header::of(&self.header);
        self.have = 0;
        self.left = header.bytes;
        Some(Part::Header(header))
    }
}

impl Header {
    fn of(&[a, b, c, kind, flags, stream @ ..]: &[u8; HEADER_BYTES]) -> Self {
        Self {
            bytes: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }

    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

fn take<'a>(bytes: &mut &'a [u8], max: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(max.min(bytes.len()));
    *bytes = rest;
    taken
}

const HEADER_BYTES: usize = 9;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(slices: &[&[u8]]) -> (Vec<Header>, Vec<u8>) {
        let mut frames = Frames::from_client();
        let (mut headers, mut payload) = (Vec::new(), Vec::new());
        for mut slice in slices.iter().copied() {
            while let Some(part) = frames.next(&mut slice) {
                match part {
                    Part::Header(header) => headers.push(header),
                    Part::Payload(bytes) => payload.extend_from_slice(bytes),
                }
            }
            assert!(slice.is_empty());
        }
        (headers, payload)
    }

    #[test]
    fn slices_of_any_size_hold_the_same_frames() {
        let mut stream = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        stream.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        stream.extend([0, 0, 3, 1, 5, 0x80, 0, 1, 2, b'a', b'b', b'c']);
        stream.extend([0, 0, 1, 99, 0, 0, 0, 0, 7, b'd']);
        let whole = parts(&[&stream]);
        assert_eq!(whole.1, b"abcd");
        let header = |bytes, kind, flags, stream| Header {
            bytes,
            kind,
            flags,
            stream,
        };
        let expected = [
            header(0, 4, 0, 0),
            header(3, 1, 5, 0x102),
            header(1, 99, 0, 7),
        ];
        assert_eq!(whole.0, expected);
        for size in 1..stream.len() {
            let slices: Vec<_> = stream.chunks(size).collect();
            assert_eq!(parts(&slices), whole, "{size}");
        }
    }
}
