//! Detects requests that h2 itself answers with 431 because their head is too long. h2 does not report them.
//!
//! They are visible in the frames: a stream with a head from the client that never became a request, but has a head
//! from the server. Pure: no I/O.

use super::frames::{HEADERS, Header, RST_STREAM};

/// The streams that the client has opened and that h2 has neither reported nor answered.
#[derive(Debug, Default)]
pub(super) struct RefusedHeads {
    /// The last stream that the client has opened. Identifiers only increase (RFC 9113, section 5.1.1).
    last: u32,
    unseen: Vec<u32>,
}

impl RefusedHeads {
    /// Records a frame from the client.
    pub(super) fn on_received(&mut self, header: Header) {
        match header.kind {
            HEADERS if header.stream > self.last => {
                self.last = header.stream;
                // A connection that is shutting down ignores new streams, which therefore stay unseen: drop the oldest.
                if self.unseen.len() >= MOST {
                    self.unseen.remove(0);
                }
                self.unseen.push(header.stream);
            }
            RST_STREAM => {
                self.take(header.stream);
            }
            _ => {}
        }
    }

    /// Records that h2 has reported the stream as a request.
    pub(super) fn on_request(&mut self, stream: u32) {
        self.take(stream);
    }

    /// Records a frame from the server. Returns true if it answers a head that h2 has refused.
    pub(super) fn on_sent(&mut self, header: Header) -> bool {
        match header.kind {
            HEADERS => self.take(header.stream),
            RST_STREAM => {
                self.take(header.stream);
                false
            }
            _ => false,
        }
    }

    /// Removes the stream. Returns true if it was there.
    fn take(&mut self, stream: u32) -> bool {
        let place = self.unseen.iter().position(|&unseen| unseen == stream);
        let is_there = place.map(|place| self.unseen.swap_remove(place)).is_some();
        if self.unseen.is_empty() {
            // Idle connections keep no memory.
            self.unseen = Vec::new();
        }
        is_there
    }
}

/// The most streams remembered: twice the streams that a connection may have at a time.
const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u8, stream: u32) -> Header {
        Header {
            bytes: 0,
            kind,
            flags: 0,
            stream,
        }
    }

    #[test]
    fn answers_to_streams_that_were_no_requests() {
        let mut heads = RefusedHeads::default();
        for stream in [1, 3, 5, 7] {
            heads.on_received(header(HEADERS, stream));
        }
        heads.on_request(1);
        assert!(heads.on_sent(header(HEADERS, 3)));
        assert!(!heads.on_sent(header(HEADERS, 3)), "counted once");
        assert!(!heads.on_sent(header(HEADERS, 1)));
        // The trailers of a request, and of its response.
        heads.on_received(header(HEADERS, 1));
        assert!(!heads.on_sent(header(HEADERS, 1)));
        // A malformed request, and one that the client has reset.
        assert!(!heads.on_sent(header(RST_STREAM, 5)));
        heads.on_received(header(RST_STREAM, 7));
        assert_eq!(heads.unseen, []);
    }

    #[test]
    fn streams_that_are_ignored_take_bounded_memory() {
        let mut heads = RefusedHeads::default();
        for number in 0..10_000 {
            heads.on_received(header(HEADERS, 2 * number + 1));
        }
        assert_eq!(heads.unseen.len(), MOST);
    }
}
