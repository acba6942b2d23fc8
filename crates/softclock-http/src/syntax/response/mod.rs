//! A strict reader of HTTP/1 responses as bytes, for a client that passes them on.
//!
//! Heads are parsed by httparse; what decides where a response ends is decided here, and in doubt it is refused: a proxy
//! that takes for a response's end what its upstream did not mean as one gives the rest to the wrong client. No I/O, no
//! clock, and the same outcome however the bytes are cut into reads.
//!
//! | part | file |
//! |---|---|
//! | a response from its first byte to its last, and the interim ones before it | this one |
//! | status line and fields (RFC 9112, sections 4 and 5), lengths and codings (section 6.3) | `head.rs` |
//! | what a body holds | `body.rs` |
//! | reasons to refuse | `fault.rs` |
//!
//! As strict as the scanner of requests ([`head`](crate::syntax::head)), but for what servers do send and what leaves
//! no doubt of where a response ends: lines of a head that end with LF alone, a Content-Length that is repeated with
//! the same number, and spaces behind the size of a chunk.
//!
//! Refused are: empty lines before a status line, folded fields, lengths that differ or are no numbers, codings but
//! `chunked`, any in HTTP/1.0, broken chunks, heads over [`HEAD_BYTES`]. Where there are both a coding and a length, the
//! coding counts (section 6.3), and the connection is not used again.

mod body;
mod fault;
mod head;

pub use fault::Fault;
pub use head::{Framing, Head};

use body::Body;
use head::Known;
use http::header::HeaderMap;

/// Reads the responses of one connection, one after the other.
#[derive(Debug)]
pub struct ResponseReader {
    /// Whether the request was a HEAD, so that no body follows.
    is_head: bool,
    /// A head that is not complete yet.
    partial: Vec<u8>,
    /// Bytes of the heads of this response, those of interim ones included.
    head_bytes: usize,
    known: Known,
    persists: bool,
    body: Body,
    /// More came than belongs to the response.
    has_excess: bool,
}

impl ResponseReader {
    /// Before the first response of a connection.
    pub fn new() -> Self {
        Self {
            is_head: false,
            partial: Vec::new(),
            head_bytes: 0,
            known: Known::default(),
            persists: true,
            body: Body::Complete(None),
            has_excess: false,
        }
    }

    /// The response to another request is to come; `is_head` tells whether that is a HEAD.
    pub fn begin(&mut self, is_head: bool) {
        self.is_head = is_head;
        self.head_bytes = 0;
        self.body = Body::Awaited;
    }

    /// Whether a head has begun and is not complete.
    pub const fn is_in_head(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Takes what was received, until it gives a head and tells how much of `received` belongs to heads; interim ones are
    /// left out, but for that of an upgrade. `fields` is replaced then, and else not touched unless there is a fault.
    ///
    /// # Errors
    /// What came is no response.
    pub fn read_head(
        &mut self,
        received: &[u8],
        fields: &mut HeaderMap,
    ) -> Result<Option<(Head, usize)>, Fault> {
        let known = self.partial.len();
        if known == 0 {
            // As nearly all do, it may come whole.
            let (head, end) = self.take_heads(received, fields)?;
            if let Some(head) = head {
                return Ok(Some((head, end)));
            }
            self.partial.extend_from_slice(&received[end..]);
            return self.wait();
        }
        self.partial.extend_from_slice(received);
        // What comes in pieces is not parsed for each.
        if !has_end(&self.partial[known.saturating_sub(LONGEST_END - 1)..]) {
            return self.wait();
        }
        let mut bytes = std::mem::take(&mut self.partial);
        let (head, end) = self.take_heads(&bytes, fields)?;
        if let Some(head) = head {
            return Ok(Some((head, end - known)));
        }
        bytes.drain(..end);
        self.partial = bytes;
        self.wait()
    }

    /// The response's head, if it is complete, and where it and the interim ones before it end.
    fn take_heads(
        &mut self,
        bytes: &[u8],
        fields: &mut HeaderMap,
    ) -> Result<(Option<Head>, usize), Fault> {
        let mut end = 0;
        while let Some((head, length)) =
            head::parse(&bytes[end..], self.is_head, &mut self.known, fields)?
        {
            self.head_bytes += length;
            if self.head_bytes > HEAD_BYTES {
                return Err(Fault::TooLong);
            }
            end += length;
            if !head.is_interim() {
                self.persists = head.persists;
                self.body = Body::of(head.framing);
                return Ok((Some(head), end));
            }
        }
        Ok((None, end))
    }

    /// The head is not complete.
    fn wait(&self) -> Result<Option<(Head, usize)>, Fault> {
        match self.partial.len() > HEAD_BYTES - self.head_bytes {
            true => Err(Fault::TooLong),
            false => Ok(None),
        }
    }

    /// Decodes what was received behind the head; `take` gets each piece of content.
    pub fn read_body(&mut self, received: &[u8], take: impl FnMut(&[u8])) {
        let consumed = self.body.decode(received, take);
        self.has_excess |= consumed < received.len();
    }

    /// The connection has ended, and with it a body that lasts until then.
    pub fn on_close(&mut self) {
        self.persists = false;
        self.body.on_close();
    }

    /// Whether all of the body was read.
    pub const fn is_complete(&self) -> bool {
        matches!(self.body, Body::Complete(_))
    }

    /// Why no more of the body can be read.
    pub const fn fault(&self) -> Option<Fault> {
        match self.body {
            Body::Failed(fault) => Some(fault),
            _ => None,
        }
    }

    /// Bytes of content to come, where that is known and nothing else follows.
    pub const fn remaining(&self) -> Option<u64> {
        match self.body {
            Body::Sized(left) => Some(left),
            Body::Complete(None) => Some(0),
            _ => None,
        }
    }

    /// Fields behind a complete body, once.
    pub fn take_trailers(&mut self) -> Option<HeaderMap> {
        match &mut self.body {
            Body::Complete(trailers) => trailers.take().map(|trailers| *trailers),
            _ => None,
        }
    }

    /// Whether there are any.
    pub const fn has_trailers(&self) -> bool {
        matches!(self.body, Body::Complete(Some(_)))
    }

    /// Whether another request may be sent: the response is complete, and nothing was said or sent against it.
    pub const fn is_reusable(&self) -> bool {
        self.persists && !self.has_excess && self.is_complete()
    }
}

impl Default for ResponseReader {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether an empty line ends here, with or without CR.
fn has_end(bytes: &[u8]) -> bool {
    let ends = |place: usize| {
        let line = &bytes[place + 1..];
        line.starts_with(b"\n") || line.starts_with(b"\r\n")
    };
    (0..bytes.len()).any(|place| bytes[place] == b'\n' && ends(place))
}

/// LF CR LF.
const LONGEST_END: usize = 3;

/// As long as a head may be, together with the interim ones before it.
pub const HEAD_BYTES: usize = 64 << 10;
