//! The reasons to refuse a response.

use std::fmt;

/// An error in a response, for which it is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The response does not begin with a version and a status.
    StatusLine,
    /// A field line is malformed.
    Field,
    /// The head is longer than [`HEAD_BYTES`](super::HEAD_BYTES), or has more than 100 fields.
    TooLong,
    /// Content-Length is not a number, or occurs more than once with different values.
    Length,
    /// Transfer-Encoding is not `chunked` alone, or is used in HTTP/1.0.
    Coding,
    /// The framing of a chunked body, or its trailers, are malformed.
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
            Self::Coding => "Transfer-Encoding is not chunked alone, or is used in HTTP/1.0",
            Self::Chunk => "the framing of the chunks is broken",
            Self::Truncated => "the connection ended before the response did",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for Fault {}
