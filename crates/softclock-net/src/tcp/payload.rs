//! Received bytes, which stay in the memory of the packet that carried them.

use core::fmt;
use core::ops::{Deref, Range};

/// A range of a packet's memory `B`, such as a buffer that returns to its pool when it is dropped.
///
/// ```
/// use softclock_net::tcp::payload::Payload;
///
/// let mut payload = Payload::new(b"headers, then bytes".to_vec(), 14..19);
/// assert_eq!(&*payload, b"bytes");
/// payload.advance(2);
/// payload.truncate(2);
/// assert_eq!(&*payload, b"te");
/// ```
pub struct Payload<B> {
    memory: B,
    start: u32,
    end: u32,
}

impl<B: Deref<Target = [u8]>> Payload<B> {
    /// The bytes of `memory` in a range, as far as it lies within the memory.
    pub fn new(memory: B, range: Range<usize>) -> Self {
        let end = range.end.min(memory.len());
        let start = range.start.min(end);
        Self {
            memory,
            start: start as u32,
            end: end as u32,
        }
    }

    /// Removes bytes from the front.
    pub fn advance(&mut self, bytes: usize) {
        self.start += bytes.min(self.len()) as u32;
    }

    /// Keeps at most this many bytes.
    pub fn truncate(&mut self, bytes: usize) {
        self.end = self.start + bytes.min(self.len()) as u32;
    }

    /// The number of bytes that the packet takes in memory, headers and all.
    pub fn memory_bytes(&self) -> usize {
        self.memory.len()
    }
}

impl<B: Deref<Target = [u8]>> Deref for Payload<B> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let range = self.start as usize..self.end as usize;
        self.memory.get(range).unwrap_or_default()
    }
}

impl<B> fmt::Debug for Payload<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload")
            .field("bytes", &(self.end - self.start))
            .finish_non_exhaustive()
    }
}
