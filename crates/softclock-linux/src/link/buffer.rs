//! Memory for frames that is used again: frames are received into it, wait in it and are sent from it, so that none is
//! allocated, nor copied because it has to wait.
//!
//! - [`Pool`]: buffers that are free.
//! - [`Buffer`]: the bytes of one frame, in a buffer of a pool or in a [`Chunk`] of AF_XDP.
//! - [`Landing`]: room for a frame whose length is known only when it has arrived.

use std::cell::RefCell;
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use super::{Chunk, PacketSocket};

/// Buffers that are free, of three sizes. Clones share them.
///
/// The pool allocates where none of a size is free, keeps a bounded number of those that come back, and frees the
/// others: what frames take that wait is for their queues to bound.
#[derive(Clone)]
pub struct Pool(Rc<[Free; SIZES.len()]>);

/// Free buffers of one size.
type Free = RefCell<Vec<Box<[u8]>>>;

/// The bytes of a frame, alone in their memory, which goes back to where it came from when this is dropped.
pub struct Buffer {
    memory: Memory,
}

enum Memory {
    /// Of this pool, and so many bytes of it.
    Pooled(Box<[u8]>, usize, Pool),
    Chunk(Chunk),
}

impl Pool {
    /// A pool that has no buffer yet.
    pub fn new() -> Self {
        let free = SIZES.map(|size| RefCell::new(Vec::with_capacity(size.kept)));
        Self(Rc::new(free))
    }

    /// A buffer for a frame of so many bytes, which it has any values of. Longer ones than any link has are allocated.
    pub fn buffer(&self, bytes: usize) -> Buffer {
        let memory = match SIZES.iter().position(|size| bytes <= size.bytes) {
            Some(size) => self.take(size),
            None => vec![0; bytes].into(),
        };
        self.buffer_of(memory, bytes)
    }

    /// A copy of a frame.
    pub fn copy_of(&self, frame: &[u8]) -> Buffer {
        let mut buffer = self.buffer(frame.len());
        buffer.copy_from_slice(frame);
        buffer
    }

    fn take(&self, size: usize) -> Box<[u8]> {
        let free = self.0[size].borrow_mut().pop();
        free.unwrap_or_else(|| vec![0; SIZES[size].bytes].into())
    }

    fn give_back(&self, memory: Box<[u8]>) {
        let size = SIZES.iter().position(|size| memory.len() == size.bytes);
        let Some(size) = size else { return };
        let mut free = self.0[size].borrow_mut();
        if free.len() < SIZES[size].kept {
            free.push(memory);
        }
    }

    fn buffer_of(&self, memory: Box<[u8]>, bytes: usize) -> Buffer {
        debug_assert!(bytes <= memory.len());
        Buffer {
            memory: Memory::Pooled(memory, bytes, self.clone()),
        }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.0.each_ref().map(|free| free.borrow().len());
        f.debug_tuple("Pool").field(&free).finish()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Pooled(memory, bytes, _) => &memory[..*bytes],
            Memory::Chunk(chunk) => chunk,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Pooled(memory, bytes, _) => &mut memory[..*bytes],
            Memory::Chunk(chunk) => chunk,
        }
    }
}

impl From<Chunk> for Buffer {
    fn from(chunk: Chunk) -> Self {
        Self {
            memory: Memory::Chunk(chunk),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Memory::Pooled(memory, _, pool) = &mut self.memory {
            pool.give_back(mem::take(memory));
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

/// Room for a frame whose length is not known before it arrives. Most are short, so the first bytes go to a buffer that
/// suits them; only where there are more, the first are copied to the front of the larger buffer that has the others.
pub(super) struct Landing {
    first: Box<[u8]>,
    /// The frame's bytes behind those, at their place.
    rest: Box<[u8]>,
    pool: Pool,
}

impl Landing {
    /// The longest frame.
    pub(super) const MOST_BYTES: usize = SIZES[LARGE].bytes - SPARE_BYTES;

    pub(super) fn new(pool: &Pool) -> Self {
        Self {
            first: pool.take(MEDIUM),
            rest: pool.take(LARGE),
            pool: pool.clone(),
        }
    }

    /// Where the frame is to be written, one part behind the other.
    pub(super) fn parts(&mut self) -> [&mut [u8]; 2] {
        [
            &mut self.first[..FIRST_BYTES],
            &mut self.rest[FIRST_BYTES..Self::MOST_BYTES],
        ]
    }

    /// The frame of so many bytes that has been written, with `tag` inserted, if any. Its memory is replaced.
    ///
    /// # Panics
    /// If the frame is longer than there is room, or ends before the tag's place.
    pub(super) fn take(&mut self, bytes: usize, tag: Option<Tag>) -> Buffer {
        let mut buffer = if bytes + SPARE_BYTES <= SIZES[SMALL].bytes {
            // It would keep eight times its memory or more from use where it waits.
            let mut small = self.pool.take(SMALL);
            small[..bytes].copy_from_slice(&self.first[..bytes]);
            self.pool.buffer_of(small, bytes)
        } else if bytes <= FIRST_BYTES {
            let next = self.pool.take(MEDIUM);
            let first = mem::replace(&mut self.first, next);
            self.pool.buffer_of(first, bytes)
        } else {
            let next = self.pool.take(LARGE);
            let mut rest = mem::replace(&mut self.rest, next);
            rest[..FIRST_BYTES].copy_from_slice(&self.first[..FIRST_BYTES]);
            self.pool.buffer_of(rest, bytes)
        };
        if let Some(tag) = tag {
            buffer.insert(tag);
        }
        buffer
    }
}

/// Bytes that are missing in a frame, and where.
#[derive(Clone, Copy)]
pub(super) struct Tag {
    pub(super) at: usize,
    pub(super) bytes: [u8; SPARE_BYTES],
}

impl Buffer {
    /// Inserts what a [`Landing`] has left room for.
    fn insert(&mut self, tag: Tag) {
        if let Memory::Pooled(memory, bytes, _) = &mut self.memory {
            let behind = tag.at + SPARE_BYTES;
            memory.copy_within(tag.at..*bytes, behind);
            memory[tag.at..behind].copy_from_slice(&tag.bytes);
            *bytes += SPARE_BYTES;
        }
    }
}

/// Buffers of one size.
#[derive(Clone, Copy)]
struct Size {
    bytes: usize,
    /// Free ones that are kept.
    kept: usize,
}

/// Acknowledgements and their like; frames that no offload has joined; all others. A megabyte, 8 MiB and 8 MiB are
/// kept.
const SIZES: [Size; 3] = [
    Size {
        bytes: 256,
        kept: 4096,
    },
    Size {
        bytes: 2048,
        kept: 4096,
    },
    Size {
        bytes: PacketSocket::MOST_BYTES + 2 * SPARE_BYTES,
        kept: 128,
    },
];
const SMALL: usize = 0;
const MEDIUM: usize = 1;
const LARGE: usize = 2;

/// Room that is left behind each frame, for the tag of a VLAN.
const SPARE_BYTES: usize = 4;
const FIRST_BYTES: usize = SIZES[MEDIUM].bytes - SPARE_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(landing: &mut Landing, frame: &[u8]) {
        let [first, rest] = landing.parts();
        let split = frame.len().min(first.len());
        first[..split].copy_from_slice(&frame[..split]);
        rest[..frame.len() - split].copy_from_slice(&frame[split..]);
    }

    #[test]
    fn frames_of_all_lengths_land_whole() {
        let pool = Pool::new();
        let mut landing = Landing::new(&pool);
        let tag = Tag {
            at: 12,
            bytes: [0x81, 0, 0, 7],
        };
        let lengths = [
            14,
            252,
            253,
            256,
            1514,
            2044,
            2045,
            2048,
            9000,
            65_000,
            Landing::MOST_BYTES,
        ];
        let mut held = Vec::new();
        for (seed, &bytes) in lengths.iter().enumerate() {
            let frame: Vec<u8> = (0..bytes).map(|at| (at * 7 + seed) as u8).collect();
            arrive(&mut landing, &frame);
            held.push((landing.take(bytes, None), frame.clone()));
            arrive(&mut landing, &frame);
            let tagged = [&frame[..12], &tag.bytes, &frame[12..]].concat();
            held.push((landing.take(bytes, Some(tag)), tagged));
        }
        for (buffer, frame) in &held {
            assert_eq!(&buffer[..], frame);
        }
    }

    #[test]
    fn buffers_are_used_again_and_few_are_kept() {
        let pool = Pool::new();
        let place = pool.copy_of(&[1; 1000]).as_ptr();
        let again = pool.buffer(1500);
        assert_eq!((again.as_ptr(), again.len()), (place, 1500));
        let many: Vec<_> = (0..5000).map(|_| pool.buffer(60)).collect();
        drop(many);
        assert_eq!(pool.0[SMALL].borrow().len(), SIZES[SMALL].kept);
        let long = pool.buffer(1 << 20);
        assert_eq!(long.len(), 1 << 20);
    }

    /// Where a pool ends first, its buffers live on.
    #[test]
    fn a_buffer_outlives_its_pool() {
        let buffer = Pool::new().copy_of(b"abc");
        assert_eq!(&buffer[..], b"abc");
    }
}
