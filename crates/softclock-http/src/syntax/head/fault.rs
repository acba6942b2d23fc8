//! The reasons to refuse a request.

use std::fmt;

use http::StatusCode;

/// An error in a request, for which it is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The request line is longer than the limit.
    LineTooLong,
    /// The head is longer than the limit.
    HeadTooLong,
    /// The head has more field lines than the limit.
    TooManyFields,
    /// The method is not a token.
    Method,
    /// The target has none of the forms of RFC 9112, section 3.2, or contains a byte that no target may contain.
    Target,
    /// No version follows the target.
    Version,
    /// The version is neither HTTP/1.1 nor HTTP/1.0.
    UnsupportedVersion,
    /// A line ends with CR without LF, or with LF without CR.
    LineEnd,
    /// A field name is empty, not a token, or not directly followed by a colon.
    Name,
    /// A field line starts with white space (obsolete folding).
    Folding,
    /// A field value contains a control character.
    Value,
    /// Content-Length is not a number, or occurs more than once.
    Length,
    /// Transfer-Encoding is repeated, is used in HTTP/1.0, or lists more than `chunked`.
    Coding,
    /// Transfer-Encoding lists codings other than `chunked`.
    UnknownCoding,
    /// The head has both Content-Length and Transfer-Encoding.
    LengthAndCoding,
    /// Host is missing, repeated, or not a host.
    Host,
    /// The framing of a chunked body is malformed.
    Chunk,
    /// A field is not allowed as a trailer, or the trailers are too long.
    Trailer,
}

impl Fault {
    /// Returns the status of the response.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::LineTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadTooLong | Self::TooManyFields => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::UnsupportedVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::UnknownCoding => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns a sentence for the response's page, addressed to the developer of the client.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::LineTooLong => "the request line is too long.",
            Self::HeadTooLong => "the head is too long.",
            Self::TooManyFields => "there are too many header fields.",
            Self::Method => "the method is malformed.",
            Self::Target => "the target is malformed.",
            Self::Version => "the request line does not end with a version.",
            Self::UnsupportedVersion => "only HTTP/1.1 and HTTP/1.0 are supported.",
            Self::LineEnd => "lines end with CR LF.",
            Self::Name => "a field's name is malformed.",
            Self::Folding => "fields may not be folded.",
            Self::Value => "a field's value contains control characters.",
            Self::Length => "Content-Length is not one number.",
            Self::Coding => "Transfer-Encoding must be chunked, once, in HTTP/1.1.",
            Self::UnknownCoding => "only the transfer coding chunked is supported.",
            Self::LengthAndCoding => "the request has both Content-Length and Transfer-Encoding.",
            Self::Host => "a request needs one Host field that names a host.",
            Self::Chunk => "the framing of the chunks is broken.",
            Self::Trailer => "the trailers are too long or contain a field that is not allowed.",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for Fault {}
