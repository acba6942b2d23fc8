//! Bodies of responses.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use httparse::{EMPTY_HEADER, Status};

use super::{Fault, Framing};
use crate::syntax::head::{Chunked, Fields, Section};

/// The state of reading a body.
#[derive(Debug)]
pub(super) enum Body {
    /// The head has not been read yet.
    Awaited,
    /// A body with this number of bytes left.
    Sized(u64),
    Chunked(Box<Chunks>),
    Close,
    /// The body is complete, with its trailers if it has any.
    Complete(Option<Box<HeaderMap>>),
    Failed(Fault),
}

/// The framing and trailers of a chunked body.
#[derive(Debug)]
pub(super) struct Chunks {
    framing: Chunked,
    fields: Fields,
    /// The lines after the last chunk.
    trailers: Vec<u8>,
}

impl Body {
    pub(super) fn of(framing: Framing) -> Self {
        match framing {
            Framing::Sized(0) => Self::Complete(None),
            Framing::Sized(length) => Self::Sized(length),
            Framing::Chunked => Self::Chunked(Box::new(Chunks::new())),
            Framing::Close => Self::Close,
        }
    }

    /// Decodes the body, and passes each piece of content to `take`; returns the number of bytes that belong to the
    /// body.
    pub(super) fn decode(&mut self, received: &[u8], mut take: impl FnMut(&[u8])) -> usize {
        let mut at = 0;
        while at < received.len() {
            let rest = &received[at..];
            match self {
                Self::Sized(left) => {
                    let n = usize::try_from(*left).map_or(rest.len(), |n| n.min(rest.len()));
                    take(&rest[..n]);
                    *left -= n as u64;
                    at += n;
                    if *left == 0 {
                        *self = Self::Complete(None);
                    }
                }
                Self::Close => {
                    take(rest);
                    at = received.len();
                }
                Self::Chunked(chunks) => match chunks.step(rest, &mut take) {
                    Ok(n) => {
                        at += n;
                        if chunks.framing.is_complete() {
                            *self = chunks.end();
                        }
                    }
                    Err(fault) => *self = Self::Failed(fault),
                },
                // The remaining bytes do not belong to the body.
                Self::Awaited | Self::Complete(_) | Self::Failed(_) => break,
            }
        }
        at
    }

    pub(super) fn on_close(&mut self) {
        match self {
            Self::Close => *self = Self::Complete(None),
            Self::Complete(_) | Self::Failed(_) => {}
            _ => *self = Self::Failed(Fault::Truncated),
        }
    }
}

impl Chunks {
    fn new() -> Self {
        let mut fields = Fields::new();
        fields.restart(Section::Trailers, MAX_TRAILERS);
        Self {
            framing: Chunked::padded(),
            fields,
            trailers: Vec::new(),
        }
    }

    fn step(&mut self, bytes: &[u8], take: &mut impl FnMut(&[u8])) -> Result<usize, Fault> {
        // The state before the step determines the kind of the bytes that it consumes.
        let (in_data, in_trailers) = (self.framing.is_in_data(), self.framing.is_in_trailers());
        let step = self.framing.step(bytes, &mut self.fields);
        let piece = &bytes[..step.map_err(|_| Fault::Chunk)?.consumed];
        if in_data {
            take(piece);
        } else if in_trailers {
            self.trailers.extend_from_slice(piece);
        }
        Ok(piece.len())
    }

    /// Returns the complete body, or the fault if its trailers cannot be parsed.
    fn end(&self) -> Body {
        // Nearly all chunked bodies have no trailers.
        if self.trailers == b"\r\n" {
            return Body::Complete(None);
        }
        let mut headers = [EMPTY_HEADER; MAX_TRAILERS];
        let parsed = httparse::parse_headers(&self.trailers, &mut headers);
        let Ok(Status::Complete((_, parsed))) = parsed else {
            return Body::Failed(Fault::Chunk);
        };
        let mut fields = HeaderMap::new();
        for header in parsed {
            let name = HeaderName::from_bytes(header.name.as_bytes());
            let value = HeaderValue::from_bytes(header.value);
            let (Ok(name), Ok(value)) = (name, value) else {
                return Body::Failed(Fault::Chunk);
            };
            fields.append(name, value);
        }
        Body::Complete(Some(Box::new(fields)))
    }
}

/// The most field lines after a body.
const MAX_TRAILERS: usize = 100;
