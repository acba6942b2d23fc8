//! Why a request is refused.

use std::fmt;

use http::StatusCode;

/// What is wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The request line is longer than the limit.
    LineTooLong,
    /// The head is longer than the limit.
    HeadTooLong,
    /// More field lines than the limit.
    TooManyFields,
    /// The method is no token.
    Method,
    /// The target is none of the forms of RFC 9112, section 3.2, or holds what no target may.
    Target,
    /// There is no version behind the target.
    Version,
    /// A version, but neither HTTP/1.1 nor HTTP/1.0.
    UnsupportedVersion,
    /// CR without LF, or LF without CR.
    LineEnd,
    /// A field's name is empty, no token, or not followed by a colon at once.
    Name,
    /// A line starts with white space.
    Folding,
    /// A control character in a field's value.
    Value,
    /// Content-Length is no number, or there are several.
    Length,
    /// Transfer-Encoding is repeated, in HTTP/1.0, or `chunked` is not all it says.
    Coding,
    /// Transfer-Encoding names codings other than `chunked`.
    UnknownCoding,
    /// Both Content-Length and Transfer-Encoding.
    LengthAndCoding,
    /// Host is missing, repeated, or no host.
    Host,
    /// The framing of a chunked body.
    Chunk,
    /// A field that may not be a trailer, or trailers too long.
    Trailer,
}

impl Fault {
    /// The status of the response.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::LineTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadTooLong | Self::TooManyFields => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::UnsupportedVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::UnknownCoding => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// A sentence for whoever wrote the client.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::LineTooLong => "the request line is too long.",
            Self::HeadTooLong => "the head is too long.",
            Self::TooManyFields => "there are too many header fields.",
            Self::Method => "the method is malformed.",
            Self::Target => "the target is malformed.",
            Self::Version => "the request line does not end with a version.",
            Self::UnsupportedVersion => "only HTTP/1.1 and HTTP/1.0 are understood here.",
            Self::LineEnd => "lines end with CR LF.",
            Self::Name => "a field's name is malformed.",
            Self::Folding => "fields may not be folded.",
            Self::Value => "a field's value has control characters.",
            Self::Length => "Content-Length is not one number.",
            Self::Coding => "Transfer-Encoding is misused.",
            Self::UnknownCoding => "only the transfer coding chunked is understood here.",
            Self::LengthAndCoding => "both Content-Length and Transfer-Encoding are there.",
            Self::Host => "a request needs one Host field that names a host.",
            Self::Chunk => "the framing of the chunks is broken.",
            Self::Trailer => "the trailers are not acceptable.",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for Fault {}
