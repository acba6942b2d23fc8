//! A strict reader of HTTP/1 responses as bytes, for a client that passes them on.
//!
//! httparse parses the heads; this module decides where a response ends, and refuses responses for which this is in
//! doubt. A proxy that assumes another end than its upstream meant would give the remaining bytes to the wrong client.
//! The reader does no I/O, has no clock, and its result does not depend on how the bytes are divided into reads.
//!
//! | part | file |
//! |---|---|
//! | a response from its first byte to its last, and the interim ones before it | this one |
//! | status line and fields (RFC 9112, sections 4 and 5), lengths and codings (section 6.3) | `head.rs` |
//! | content of bodies, and trailers | `body.rs` |
//! | reasons to refuse | `fault.rs` |
//!
//! It is as strict as the scanner of requests ([`head`](crate::syntax::head)), except for some deviations that servers
//! do send and that leave no doubt about the end of a response: lines of a head that end with LF alone, a
//! Content-Length that is repeated with the same number, and spaces after the size of a chunk.
//!
//! It refuses empty lines before a status line, folded fields, lengths that differ or are not numbers, codings other
//! than `chunked`, any coding in HTTP/1.0, malformed chunks, and heads over [`HEAD_BYTES`]. If a response has both a
//! coding and a length, the coding applies (section 6.3), and the connection is not used again.

mod body;
mod fault;
mod head;

pub use fault::Fault;
pub use head::{Framing, Head};

use body::Body;
use head::Known;
use http::header::HeaderMap;

/// Reads the responses of one connection, one after the other.
///
/// ```
/// use http::HeaderMap;
/// use softclock_http::response::ResponseReader;
///
/// let received = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
/// let mut reader = ResponseReader::new();
/// let mut fields = HeaderMap::new();
/// reader.begin(false);
/// let (head, end) = reader.read_head(received, &mut fields)?.expect("the head is complete");
/// assert_eq!((head.status.as_u16(), &fields["content-length"]), (200, &"5".parse().unwrap()));
///
/// let mut content = Vec::new();
/// reader.read_body(&received[end..], |piece| content.extend_from_slice(piece));
/// assert_eq!(content, b"hello");
/// assert!(reader.is_reusable());
/// # Ok::<(), softclock_http::response::Fault>(())
/// ```
#[derive(Debug)]
pub struct ResponseReader {
    /// Whether the request is a HEAD, so that no body follows.
    is_head: bool,
    /// The bytes of a head that is not complete yet.
    partial: Vec<u8>,
    /// The bytes of this response's heads so far, including interim ones.
    head_bytes: usize,
    known: Known,
    persists: bool,
    body: Body,
    /// Whether bytes arrived that do not belong to the response.
    has_excess: bool,
}

impl ResponseReader {
    /// Creates the reader of a new connection.
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

    /// Prepares for the response to the next request. `is_head` states whether that request is a HEAD.
    pub fn begin(&mut self, is_head: bool) {
        self.is_head = is_head;
        self.head_bytes = 0;
        self.body = Body::Awaited;
    }

    /// Returns whether a head has begun and is not complete.
    pub const fn is_in_head(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Reads the head of a response. Returns it when it is complete, with the number of bytes of `received` that belong
    /// to heads, and `None` before. Interim heads are skipped, except that of an upgrade (101). A complete head
    /// replaces `fields`; otherwise they are unchanged unless there is a fault.
    ///
    /// # Errors
    /// If the received bytes are not an acceptable response.
    pub fn read_head(
        &mut self,
        received: &[u8],
        fields: &mut HeaderMap,
    ) -> Result<Option<(Head, usize)>, Fault> {
        let known = self.partial.len();
        if known == 0 {
            // Nearly all heads arrive in one piece, and are parsed without copying them.
            let (head, end) = self.take_heads(received, fields)?;
            if let Some(head) = head {
                return Ok(Some((head, end)));
            }
            self.partial.extend_from_slice(&received[end..]);
            return self.wait();
        }
        self.partial.extend_from_slice(received);
        // A head that arrives in pieces is parsed only when its end may have arrived, not for each piece.
        if !has_end(&self.partial[known.saturating_sub(LONGEST_END - 1)..]) {
            return self.wait();
        }
        let mut bytes = std::mem::take(&mut self.partial);
        let (head, end) = self.take_heads(&bytes, fields)?;
        if let Some(head) = head {
            // The bytes of earlier calls were reported as consumed then.
            return Ok(Some((head, end - known)));
        }
        // Interim heads are done; the rest is the start of the next head.
        bytes.drain(..end);
        self.partial = bytes;
        self.wait()
    }

    /// Returns the response's head if it is complete, and the end of the last complete head, interim ones included.
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

    /// Checks the length of an incomplete head.
    fn wait(&self) -> Result<Option<(Head, usize)>, Fault> {
        match self.partial.len() > HEAD_BYTES - self.head_bytes {
            true => Err(Fault::TooLong),
            false => Ok(None),
        }
    }

    /// Decodes bytes received after the head; `take` gets each piece of content.
    pub fn read_body(&mut self, received: &[u8], take: impl FnMut(&[u8])) {
        let consumed = self.body.decode(received, take);
        self.has_excess |= consumed < received.len();
    }

    /// Records that the connection has ended, which also ends a body without other framing.
    pub fn on_close(&mut self) {
        self.persists = false;
        self.body.on_close();
    }

    /// Returns whether the whole body was read.
    pub const fn is_complete(&self) -> bool {
        matches!(self.body, Body::Complete(_))
    }

    /// Returns the error for which no more of the body can be read.
    pub const fn fault(&self) -> Option<Fault> {
        match self.body {
            Body::Failed(fault) => Some(fault),
            _ => None,
        }
    }

    /// Returns the number of content bytes left, if it is known and no trailers follow.
    pub const fn remaining(&self) -> Option<u64> {
        match self.body {
            Body::Sized(left) => Some(left),
            Body::Complete(None) => Some(0),
            _ => None,
        }
    }

    /// Returns the trailers of a complete body, once.
    pub fn take_trailers(&mut self) -> Option<HeaderMap> {
        match &mut self.body {
            Body::Complete(trailers) => trailers.take().map(|trailers| *trailers),
            _ => None,
        }
    }

    /// Returns whether the body is complete and has trailers.
    pub const fn has_trailers(&self) -> bool {
        matches!(self.body, Body::Complete(Some(_)))
    }

    /// Returns whether another request may be sent: the response is complete, and neither a field nor excess bytes
    /// prevent reuse.
    pub const fn is_reusable(&self) -> bool {
        self.persists && !self.has_excess && self.is_complete()
    }
}

impl Default for ResponseReader {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns whether an empty line ends within `bytes`, with or without CR.
fn has_end(bytes: &[u8]) -> bool {
    let ends = |place: usize| {
        let line = &bytes[place + 1..];
        line.starts_with(b"\n") || line.starts_with(b"\r\n")
    };
    (0..bytes.len()).any(|place| bytes[place] == b'\n' && ends(place))
}

/// The longest end of a head that a piece may divide: LF CR LF.
const LONGEST_END: usize = 3;

/// The most bytes of a head, together with the interim heads before it.
pub const HEAD_BYTES: usize = 64 << 10;
