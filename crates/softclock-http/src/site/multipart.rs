//! Several ranges in one response: multipart/byteranges (RFC 9110, section 14.6).

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HeaderValue;

use crate::site::file_body::FileBody;
use crate::site::open_files::OpenFile;
use crate::syntax::range::ByteRange;

/// The heads and boundaries around the parts, from which the total length is known.
#[derive(Debug)]
pub(crate) struct Multipart {
    boundary: String,
    parts: Vec<(String, ByteRange)>,
    end: String,
}

impl Multipart {
    /// Creates the heads of parts of a representation with this length and type. The boundary is random, so content
    /// cannot have been made to contain it.
    pub(crate) fn new(ranges: &[ByteRange], length: u64, media_type: Option<&HeaderValue>) -> Self {
        Self::with_boundary(random_boundary(), ranges, length, media_type)
    }

    fn with_boundary(
        boundary: String,
        ranges: &[ByteRange],
        length: u64,
        media_type: Option<&HeaderValue>,
    ) -> Self {
        let media_type = media_type.and_then(|value| value.to_str().ok());
        let content_type = media_type.map_or(String::new(), |t| format!("Content-Type: {t}\r\n"));
        let mut parts = Vec::with_capacity(ranges.len());
        for (number, &range) in ranges.iter().enumerate() {
            // The line end before a boundary belongs to the boundary, not to the part before it.
            let line_end = if number == 0 { "" } else { "\r\n" };
            let content_range = range.content_range(length);
            let head = format!(
                "{line_end}--{boundary}\r\n{content_type}Content-Range: {content_range}\r\n\r\n"
            );
            parts.push((head, range));
        }
        Self {
            end: format!("\r\n--{boundary}--\r\n"),
            boundary,
            parts,
        }
    }

    /// Returns the value of Content-Type.
    pub(crate) fn content_type(&self) -> HeaderValue {
        let text = format!("multipart/byteranges; boundary={}", self.boundary);
        HeaderValue::from_str(&text).expect("a boundary is hexadecimal")
    }

    /// Returns the value of Content-Length.
    pub(crate) fn len(&self) -> u64 {
        let parts = self.parts.iter();
        let parts = parts.map(|(head, range)| range.len().saturating_add(head.len() as u64));
        parts.fold(self.end.len() as u64, u64::saturating_add)
    }

    /// Returns the body made of content in memory.
    pub(crate) fn of_bytes(self, content: &Bytes) -> Parts {
        self.assemble(|range| Piece::Bytes(range.slice(content)))
    }

    /// Returns the body made of a file.
    pub(crate) fn of_file(self, file: &OpenFile) -> Parts {
        self.assemble(|range| Piece::File(FileBody::of(file.clone(), Some(range))))
    }

    fn assemble(self, content: impl Fn(ByteRange) -> Piece) -> Parts {
        let remaining = self.len();
        let mut pieces = VecDeque::with_capacity(2 * self.parts.len() + 1);
        for (head, range) in self.parts {
            pieces.push_back(Piece::Bytes(head.into()));
            pieces.push_back(content(range));
        }
        pieces.push_back(Piece::Bytes(self.end.into()));
        Parts { pieces, remaining }
    }
}

/// A body of several pieces; at most one chunk of a file is in memory.
pub struct Parts {
    pieces: VecDeque<Piece>,
    remaining: u64,
}

enum Piece {
    Bytes(Bytes),
    File(FileBody),
}

impl Parts {
    pub(crate) const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Ready with the next bytes, at most `max`; `None` at the end.
    pub(crate) fn poll_chunk(
        &mut self,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            let chunk = match self.pieces.front_mut() {
                None => return Poll::Ready(Ok(None)),
                Some(Piece::Bytes(bytes)) => {
                    Some(bytes.split_to(max.min(bytes.len()))).filter(|b| !b.is_empty())
                }
                Some(Piece::File(file)) => std::task::ready!(file.poll_chunk(max, cx))?,
            };
            match chunk {
                Some(chunk) => {
                    self.remaining -= chunk.len() as u64;
                    return Poll::Ready(Ok(Some(chunk)));
                }
                None => drop(self.pieces.pop_front()),
            }
        }
    }

    /// See [`FileBody::release_turn`].
    pub(crate) fn release_turn(&mut self) {
        if let Some(Piece::File(file)) = self.pieces.front_mut() {
            file.release_turn();
        }
    }
}

/// Returns 128 random bits in hexadecimal. The keys of a `RandomState` are random numbers of the kernel, so clients
/// cannot predict its hashes.
fn random_boundary() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::range::{Selection, select};
    use std::task::Waker;

    fn ranges(field: &str, length: u64) -> Vec<ByteRange> {
        match select(field.as_bytes(), length) {
            Selection::Parts(ranges) => ranges,
            other => panic!("{other:?}"),
        }
    }

    fn collect(mut parts: Parts) -> Vec<u8> {
        let mut all = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Ok(Some(chunk))) = parts.poll_chunk(usize::MAX, &mut cx) {
            all.extend_from_slice(&chunk);
        }
        assert_eq!(parts.remaining(), 0);
        all
    }

    #[test]
    fn as_the_rfc_writes_it() {
        let ranges = ranges("bytes=0-1,7-", 10);
        let media_type = HeaderValue::from_static("text/plain");
        let multipart = Multipart::with_boundary("B".into(), &ranges, 10, Some(&media_type));
        assert_eq!(multipart.content_type(), "multipart/byteranges; boundary=B");
        let len = multipart.len();
        let text = collect(multipart.of_bytes(&Bytes::from_static(b"0123456789")));
        let expected = "--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\n01\r\n\
                        --B\r\nContent-Type: text/plain\r\nContent-Range: bytes 7-9/10\r\n\r\n789\r\n--B--\r\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert_eq!(len, expected.len() as u64);
    }

    #[test]
    fn boundaries_differ() {
        assert_ne!(random_boundary(), random_boundary());
        assert_eq!(random_boundary().len(), 32);
    }

    #[test]
    fn lengths_do_not_overflow() {
        let ranges = ranges("bytes=0-9223372036854775807,9223372036854775809-", u64::MAX);
        assert_eq!(Multipart::new(&ranges, u64::MAX, None).len(), u64::MAX);
    }
}
