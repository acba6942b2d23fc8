//! Received bytes, which stay in the memory of the packet that carried them until too much of it is held.

use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, Range};

/// A range of a packet's memory `B`, such as a buffer that returns to its pool when it is dropped; or a copy of such a
/// range, if the packets of a slow reader would take too much memory.
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
    memory: Memory<B>,
    start: u32,
    end: u32,
}

/// Where the bytes are.
enum Memory<B> {
    Packet(B),
    Copy(Vec<u8>),
}

impl<B: Deref<Target = [u8]>> Payload<B> {
    /// The bytes of `memory` in a range, as far as it lies within the memory.
    pub fn new(memory: B, range: Range<usize>) -> Self {
        let end = range.end.min(memory.len());
        let start = range.start.min(end);
        Self {
            memory: Memory::Packet(memory),
            start: start as u32,
            end: end as u32,
        }
    }

    /// A copy of `bytes`, which holds no packet.
    pub fn copied(bytes: &[u8]) -> Self {
        Self {
            memory: Memory::Copy(bytes.to_vec()),
            start: 0,
            end: bytes.len() as u32,
        }
    }

    /// Whether the bytes are a copy.
    pub fn is_copy(&self) -> bool {
        matches!(self.memory, Memory::Copy(_))
    }

    /// Appends bytes to a copy; returns whether this is one. A payload in its packet stays as it is.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let Memory::Copy(copy) = &mut self.memory else {
            return false;
        };
        copy.truncate(self.end as usize);
        // Removed bytes must not stay, else a reader that never empties the copy makes it grow without bound.
        if self.start > 0 {
            *copy = copy.split_off(self.start as usize);
            self.start = 0;
        }
        copy.extend_from_slice(bytes);
        self.end = copy.len() as u32;
        true
    }

    /// Removes bytes from the front.
    pub fn advance(&mut self, bytes: usize) {
        self.start += bytes.min(self.len()) as u32;
    }

    /// Keeps at most this many bytes.
    pub fn truncate(&mut self, bytes: usize) {
        self.end = self.start + bytes.min(self.len()) as u32;
    }

    /// The number of bytes that the packet or the copy takes in memory, headers and all. A short packet counts as a
    /// buffer for one of the usual length.
    pub fn memory_bytes(&self) -> usize {
        match &self.memory {
            Memory::Packet(packet) => packet.len().max(LEAST_PACKET_BYTES),
            Memory::Copy(copy) => copy.capacity(),
        }
    }
}

impl<B: Deref<Target = [u8]>> Deref for Payload<B> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let memory: &[u8] = match &self.memory {
            Memory::Packet(packet) => packet,
            Memory::Copy(copy) => copy,
        };
        let range = self.start as usize..self.end as usize;
        memory.get(range).unwrap_or_default()
    }
}

impl<B> fmt::Debug for Payload<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload")
            .field("bytes", &(self.end - self.start))
            .finish_non_exhaustive()
    }
}

/// The least memory of a packet: devices receive into buffers that have room for 1500 bytes.
const LEAST_PACKET_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_appended_to_what_is_left_of_a_copy() {
        let mut copy = Payload::<Vec<u8>>::copied(b"0123456");
        copy.advance(2);
        copy.truncate(3);
        assert!(copy.is_copy() && copy.append(b"ab"));
        assert_eq!(&*copy, b"234ab");
        for _ in 0..1000 {
            copy.advance(4);
            copy.append(b"cdef");
        }
        assert_eq!(&*copy, b"fcdef");
        assert!(copy.memory_bytes() < 20);
    }

    #[test]
    fn nothing_is_appended_to_a_packet() {
        let mut payload = Payload::new(b"0123456".to_vec(), 0..3);
        assert!(!payload.is_copy() && !payload.append(b"ab"));
        assert_eq!(&*payload, b"012");
    }
}
