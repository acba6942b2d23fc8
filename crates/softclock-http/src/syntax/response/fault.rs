//! Why a response is refused.

use std::fmt;

/// What is wrong with a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It does not begin with a version and a status.
    StatusLine,
    /// A field line is malformed.
    Field,
    /// Its head is longer than [`HEAD_BYTES`](super::HEAD_BYTES), or has more than 100 fields.
    TooLong,
    /// Content-Length is no number, or there are several that differ.
    Length,
    /// Transfer-Encoding is not `chunked` alone, or in HTTP/1.0.
    Coding,
    /// The framing of a chunked body, or its trailers.
    Chunk,
    /// The connection ended before the response did.
    Truncated,
}

impl Fault {
    const fn sentence(self) -> &'static str {
        match self {
            Self::StatusLine => "the status line is malformed",
            Self::Field => "a field is malformed",
            Self::TooLong => "the head is too long",
            Self::Length => "Content-Length is not one number",
            Self::Coding => "a transfer coding that is not known",
            Self::Chunk => "the framing of the chunks is broken",
            Self::Truncated => "it ended too soon",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for Fault {}
