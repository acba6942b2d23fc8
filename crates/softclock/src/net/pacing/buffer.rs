//! Bytes that a write has accepted and that are not yet given to the kernel.

use std::cell::RefCell;
use std::io::IoSlice;
use std::mem;

use super::MOST_BYTES;

/// A queue of bytes in contiguous memory.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first bytes, up to `max`.
    pub(super) fn front(&self, max: usize) -> &[u8] {
        let all = &self.bytes[self.start..];
        &all[..all.len().min(max)]
    }

    /// Appends the bytes of `parts` after the first `skip`, up to `max`. Returns their number.
    pub(super) fn append(
        &mut self,
        parts: &[IoSlice<'_>],
        skip: usize,
        max: usize,
        spare: &SpareBuffers,
    ) -> usize {
        if self.bytes.capacity() == 0 {
            self.bytes = spare.take();
        }
        // Moves each byte at most once, since the writer refills the buffer when half of it is empty.
        self.bytes.drain(..self.start);
        self.start = 0;
        let (mut skip, before) = (skip, self.bytes.len());
        for part in parts {
            let rest = &part[skip.min(part.len())..];
            skip -= part.len() - rest.len();
            let room = max - (self.bytes.len() - before);
            self.bytes.extend_from_slice(&rest[..rest.len().min(room)]);
        }
        let taken = self.bytes.len() - before;
        if self.is_empty() {
            self.clear(spare);
        }
        taken
    }

    /// Removes the first `count` bytes. An empty buffer keeps no memory, since most connections are idle.
    pub(super) fn consume(&mut self, count: usize, spare: &SpareBuffers) {
        self.start += count;
        if self.is_empty() {
            self.clear(spare);
        }
    }

    pub(super) fn clear(&mut self, spare: &SpareBuffers) {
        spare.give(mem::take(self).bytes);
    }
}

/// Memory of buffers that became empty, for reuse by the next ones. With paced streams, some is always in use, and
/// the memory used last is in the processor's caches.
#[derive(Debug, Default)]
pub(super) struct SpareBuffers {
    memory: RefCell<Vec<Vec<u8>>>,
}

impl SpareBuffers {
    fn take(&self) -> Vec<u8> {
        self.memory.borrow_mut().pop().unwrap_or_default()
    }

    fn give(&self, mut bytes: Vec<u8>) {
        let mut memory = self.memory.borrow_mut();
        if memory.len() < MOST_SPARE && (1..=MOST_BYTES).contains(&bytes.capacity()) {
            bytes.clear();
            memory.push(bytes);
        }
    }
}

/// A megabyte in total, as each buffer has at most 64 KiB.
const MOST_SPARE: usize = 16;

/// Calls `send` with up to `max` bytes of `parts` after the first `skip`, limited to [`PARTS`] of the parts.
pub(super) fn with_front<R>(
    parts: &[IoSlice<'_>],
    skip: usize,
    max: usize,
    send: impl FnOnce(&[IoSlice<'_>]) -> R,
) -> R {
    let mut front = [IoSlice::new(&[]); PARTS];
    let (mut skip, mut room, mut count) = (skip, max, 0);
    for part in parts {
        if room == 0 || count == PARTS {
            break;
        }
        let rest = &part[skip.min(part.len())..];
        skip -= part.len() - rest.len();
        // Skipped parts and empty ones must not take one of the few places.
        if rest.is_empty() {
            continue;
        }
        let part = &rest[..rest.len().min(room)];
        room -= part.len();
        front[count] = IoSlice::new(part);
        count += 1;
    }
    send(&front[..count])
}

/// Enough for a head and a body with some parts more.
const PARTS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_as_they_came() {
        let (mut buffer, spare) = (Buffer::default(), SpareBuffers::default());
        let parts = [
            IoSlice::new(b"abc"),
            IoSlice::new(b""),
            IoSlice::new(b"defg"),
        ];
        assert_eq!(buffer.append(&parts, 2, 3, &spare), 3);
        assert_eq!(buffer.front(2), b"cd");
        buffer.consume(2, &spare);
        assert_eq!(buffer.append(&parts, 5, 100, &spare), 2);
        assert_eq!(buffer.front(100), b"efg");
        buffer.consume(3, &spare);
        assert!(buffer.is_empty() && buffer.bytes.capacity() == 0);
        assert_eq!(spare.memory.borrow().len(), 1);
        assert_eq!(buffer.append(&parts, 7, 100, &spare), 0);
        assert_eq!(spare.memory.borrow().len(), 1);
    }

    #[test]
    fn the_front_of_parts() {
        let parts = [IoSlice::new(b"abc"), IoSlice::new(b"defg")];
        let front = |skip, max| {
            with_front(&parts, skip, max, |front| {
                let bytes = front.iter().flat_map(|part| part.iter().copied());
                bytes.collect::<Vec<_>>()
            })
        };
        assert_eq!(front(0, 2), b"ab");
        assert_eq!(front(0, 5), b"abcde");
        assert_eq!(front(2, 3), b"cde");
        assert_eq!(front(3, 100), b"defg");
    }
}
