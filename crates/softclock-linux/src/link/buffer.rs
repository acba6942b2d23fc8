//! Reusable buffers for frames. A frame is received into a buffer, waits in it and is sent from it, without an
//! allocation and without a copy for the wait.
//!
//! - [`Pool`]: the free buffers.
//! - [`Buffer`]: the bytes of one frame, in a buffer of a pool or in a [`Chunk`] of AF_XDP.
//! - [`Landing`]: the memory that a frame of unknown length is received into.

use std::cell::RefCell;
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use super::{Chunk, PacketSocket};

/// Free buffers of three sizes. Clones share the same buffers.
///
/// The pool allocates a buffer if none of the size is free. It keeps a bounded number of free buffers and frees the
/// others. It does not bound the buffers in use: the queues in which frames wait must do that.
///
/// # Examples
/// ```
/// use softclock_linux::link::Pool;
///
/// let pool = Pool::new();
/// let frame = pool.copy_of(b"a frame");
/// let memory = frame.as_ptr();
/// drop(frame);
/// assert_eq!(pool.buffer(60).as_ptr(), memory, "the memory is used again");
/// ```
#[derive(Clone)]
pub struct Pool(Rc<[Free; SIZES.len()]>);

/// Free buffers of one size.
type Free = RefCell<Vec<Box<[u8]>>>;

/// The bytes of one frame. Dropping it returns the memory to its pool, or to the AF_XDP socket.
pub struct Buffer {
    memory: Memory,
}

enum Memory {
    /// Memory of a pool, the number of bytes in use, and the pool.
    Pooled(Box<[u8]>, usize, Pool),
    Chunk(Chunk),
}

impl Pool {
    /// Creates a pool without buffers.
    pub fn new() -> Self {
        let free = SIZES.map(|size| RefCell::new(Vec::with_capacity(size.kept)));
        Self(Rc::new(free))
    }

    /// A buffer of `bytes` bytes with unspecified content. Allocates if none is free, and always for lengths above that
    /// of the longest frame.
    pub fn buffer(&self, bytes: usize) -> Buffer {
        let memory = match SIZES.iter().position(|size| bytes <= size.bytes) {
            Some(size) => self.take(size),
            None => vec![0; bytes].into(),
        };
        self.buffer_of(memory, bytes)
    }

    /// A buffer with a copy of `frame`.
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

/// Memory for a frame of unknown length. Most frames fit into the first 2 KiB, which are a buffer of that size. The
/// remaining bytes of a longer frame are received into a large buffer at their final offset, and the first 2 KiB are
/// then copied to its front.
pub(super) struct Landing {
    first: Box<[u8]>,
    /// A large buffer for the bytes behind those in `first`, at their final offset.
    rest: Box<[u8]>,
    pool: Pool,
}

impl Landing {
    /// The length of the longest frame.
    pub(super) const MOST_BYTES: usize = SIZES[LARGE].bytes - SPARE_BYTES;

    pub(super) fn new(pool: &Pool) -> Self {
        Self {
            first: pool.take(MEDIUM),
            rest: pool.take(LARGE),
            pool: pool.clone(),
        }
    }

    /// The two parts of the memory, to be filled one after the other.
    pub(super) fn parts(&mut self) -> [&mut [u8]; 2] {
        [
            &mut self.first[..FIRST_BYTES],
            &mut self.rest[FIRST_BYTES..Self::MOST_BYTES],
        ]
    }

    /// Takes the frame of `bytes` bytes that was received, with `tag` inserted, if any. The landing gets new memory
    /// from the pool for the memory that the frame keeps.
    ///
    /// # Panics
    /// If `bytes` is more than the longest frame, or the frame ends before the tag's offset.
    pub(super) fn take(&mut self, bytes: usize, tag: Option<Tag>) -> Buffer {
        let mut buffer = if bytes + SPARE_BYTES <= SIZES[SMALL].bytes {
            // Copied, since a short frame that waits would occupy eight times the memory it needs, or more.
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

/// Bytes to insert into a frame, and their offset.
#[derive(Clone, Copy)]
pub(super) struct Tag {
    pub(super) at: usize,
    pub(super) bytes: [u8; SPARE_BYTES],
}

impl Buffer {
    /// Inserts a tag, for which a [`Landing`] leaves spare bytes.
    fn insert(&mut self, tag: Tag) {
        if let Memory::Pooled(memory, bytes, _) = &mut self.memory {
            let behind = tag.at + SPARE_BYTES;
            memory.copy_within(tag.at..*bytes, behind);
            memory[tag.at..behind].copy_from_slice(&tag.bytes);
            *bytes += SPARE_BYTES;
        }
    }
}

/// One size of buffers.
#[derive(Clone, Copy)]
struct Size {
    bytes: usize,
    /// The most free buffers that the pool keeps.
    kept: usize,
}

/// Three sizes: acknowledgements and other short frames; frames up to the usual MTU; frames joined by an offload. At
/// most 1 MiB, 8 MiB and 8 MiB of free memory are kept.
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

/// Spare bytes behind each received frame, for a VLAN tag.
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

    /// A buffer is valid after the last other handle to its pool is dropped.
    #[test]
    fn a_buffer_outlives_its_pool() {
        let buffer = Pool::new().copy_of(b"abc");
        assert_eq!(&buffer[..], b"abc");
    }
}
