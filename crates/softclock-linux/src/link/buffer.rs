//! Reusable buffers for frames. A frame is received into a buffer, waits in it and is sent from it, without an
//! allocation and without a copy for the wait.
//!
//! - [`Pool`]: the free buffers.
//! - [`Buffer`]: the bytes of one frame, in a buffer of a pool or in a [`Chunk`] of AF_XDP.
//! - [`Landing`]: the memory that a frame of unknown length is received into.

use std::cell::{Cell, RefCell};
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
pub struct Pool(Rc<[Buffers; SIZES.len()]>);

/// The buffers of one size.
struct Buffers {
    free: RefCell<Vec<Box<[u8]>>>,
    in_use: Cell<usize>,
}

/// The bytes of one frame; none once an AF_XDP socket has taken their memory to send it. Dropping it returns the memory
/// to its pool, or to the AF_XDP socket.
pub struct Buffer {
    memory: Memory,
}

enum Memory {
    /// Memory of a pool, the number of bytes in use, and the pool.
    Pooled(Box<[u8]>, usize, Pool),
    Chunk(Chunk),
    /// The memory was taken.
    Taken,
}

impl Pool {
    /// Creates a pool without buffers.
    pub fn new() -> Self {
        Self(Rc::new(SIZES.map(|size| Buffers {
            free: RefCell::new(Vec::with_capacity(size.kept)),
            in_use: Cell::new(0),
        })))
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

    /// A buffer with a copy of `frame` that takes hardly more memory than the frame, for one that may wait long.
    pub fn exact_copy_of(&self, frame: &[u8]) -> Buffer {
        match SIZES.iter().any(|size| size.bytes == frame.len()) {
            // The pool knows its own buffers by their size.
            true => self.copy_of(frame),
            false => self.buffer_of(frame.into(), frame.len()),
        }
    }

    fn take(&self, size: usize) -> Box<[u8]> {
        let buffers = &self.0[size];
        buffers.in_use.set(buffers.in_use.get() + 1);
        let free = buffers.free.borrow_mut().pop();
        free.unwrap_or_else(|| vec![0; SIZES[size].bytes].into())
    }

    /// Whether so many buffers of a size are in use that frames much shorter than them should not occupy more.
    fn is_crowded(&self, size: usize) -> bool {
        self.0[size].in_use.get() > SIZES[size].most_uncrowded
    }

    fn give_back(&self, memory: Box<[u8]>) {
        let size = SIZES.iter().position(|size| memory.len() == size.bytes);
        let Some(size) = size else { return };
        let buffers = &self.0[size];
        buffers.in_use.set(buffers.in_use.get() - 1);
        let mut free = buffers.free.borrow_mut();
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
        let free = self.0.each_ref().map(|size| size.free.borrow().len());
        f.debug_tuple("Pool").field(&free).finish()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Pooled(memory, bytes, _) => &memory[..*bytes],
            Memory::Chunk(chunk) => chunk,
            Memory::Taken => &[],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Pooled(memory, bytes, _) => &mut memory[..*bytes],
            Memory::Chunk(chunk) => chunk,
            Memory::Taken => &mut [],
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

impl Buffer {
    /// The chunk of AF_XDP that holds the frame, if one does.
    pub(super) fn chunk_mut(&mut self) -> Option<&mut Chunk> {
        match &mut self.memory {
            Memory::Chunk(chunk) => Some(chunk),
            Memory::Pooled(..) | Memory::Taken => None,
        }
    }

    /// Takes the chunk of AF_XDP that holds the frame, if one does, and leaves the buffer empty.
    pub(super) fn take_chunk(&mut self) -> Option<Chunk> {
        self.chunk_mut()?;
        match mem::replace(&mut self.memory, Memory::Taken) {
            Memory::Chunk(chunk) => Some(chunk),
            Memory::Pooled(..) | Memory::Taken => None,
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

/// Memory for a frame of unknown length, as long as the frame before it or as the usual ones, up to 2 KiB. A frame
/// stays where it was received if it is what was expected. Otherwise up to 2 KiB are copied:
///
/// - An unexpected long frame has its first 2 KiB in a buffer of that size, and the others in a large buffer at their
///   final offset.
/// - An unexpected short frame would occupy a large buffer.
/// - A frame below 253 bytes would occupy eight times its size, and one up to 32 KiB at least twice its size. This
///   matters only while many frames wait.
pub(super) struct Landing {
    first: Box<[u8]>,
    /// A large buffer: for the whole frame, or for the bytes behind those in `first`, at their final offset.
    large: Box<[u8]>,
    is_long_expected: bool,
    pool: Pool,
}

impl Landing {
    /// The length of the longest frame.
    pub(super) const MOST_BYTES: usize = SIZES[LARGE].bytes - SPARE_BYTES;

    pub(super) fn new(pool: &Pool) -> Self {
        Self {
            first: pool.take(MEDIUM),
            large: pool.take(LARGE),
            is_long_expected: false,
            pool: pool.clone(),
        }
    }

    /// The two parts of the memory, to be filled one after the other.
    pub(super) fn parts(&mut self) -> [&mut [u8]; 2] {
        let (first, large) = (
            &mut self.first[..FIRST_BYTES],
            &mut self.large[..Self::MOST_BYTES],
        );
        match self.is_long_expected {
            true => [large, &mut []],
            false => [first, &mut large[FIRST_BYTES..]],
        }
    }

    /// Takes the frame of `bytes` bytes that was received, with `tag` inserted, if any. The landing gets new memory
    /// from the pool for the memory that the frame keeps.
    ///
    /// # Panics
    /// If `bytes` is more than the longest frame, or the frame ends before the tag's offset.
    pub(super) fn take(&mut self, bytes: usize, tag: Option<Tag>) -> Buffer {
        let is_long = bytes > FIRST_BYTES;
        let (from, to) = (&mut self.first, &mut self.large);
        match (self.is_long_expected, is_long) {
            (false, true) => to[..FIRST_BYTES].copy_from_slice(&from[..FIRST_BYTES]),
            (true, false) => from[..bytes].copy_from_slice(&to[..bytes]),
            _ => {}
        }
        self.is_long_expected = is_long;
        let mut buffer = if is_long && bytes <= HALF_BYTES && self.pool.is_crowded(LARGE) {
            let mut memory = vec![0; bytes + SPARE_BYTES].into_boxed_slice();
            memory[..bytes].copy_from_slice(&self.large[..bytes]);
            self.pool.buffer_of(memory, bytes)
        } else if is_long {
            let next = self.pool.take(LARGE);
            let large = mem::replace(&mut self.large, next);
            self.pool.buffer_of(large, bytes)
        } else if bytes + SPARE_BYTES <= SIZES[SMALL].bytes && self.pool.is_crowded(MEDIUM) {
            let mut small = self.pool.take(SMALL);
            small[..bytes].copy_from_slice(&self.first[..bytes]);
            self.pool.buffer_of(small, bytes)
        } else {
            let next = self.pool.take(MEDIUM);
            let first = mem::replace(&mut self.first, next);
            self.pool.buffer_of(first, bytes)
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
    /// The most buffers in use with which frames much shorter than them stay in such buffers.
    most_uncrowded: usize,
}

/// Three sizes: acknowledgements and other short frames; frames up to the usual MTU; frames joined by an offload. At
/// most 1 MiB, 8 MiB and 8 MiB of free memory are kept. Buffers of 2 and of 4 MiB in use are not crowded.
const SIZES: [Size; 3] = [
    Size {
        bytes: 256,
        kept: 4096,
        most_uncrowded: usize::MAX,
    },
    Size {
        bytes: 2048,
        kept: 4096,
        most_uncrowded: 1024,
    },
    Size {
        bytes: PacketSocket::MOST_BYTES + 2 * SPARE_BYTES,
        kept: 128,
        most_uncrowded: 64,
    },
];
const SMALL: usize = 0;
const MEDIUM: usize = 1;
const LARGE: usize = 2;

/// Spare bytes behind each received frame, for a VLAN tag.
const SPARE_BYTES: usize = 4;
const FIRST_BYTES: usize = SIZES[MEDIUM].bytes - SPARE_BYTES;
/// Half of a large buffer. Memory of a frame that has neither this nor less than a medium buffer is not of a size that
/// the pool keeps.
const HALF_BYTES: usize = SIZES[LARGE].bytes / 2;

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

    /// A frame like the one before it stays in its memory, and so does a short one unless many wait.
    #[test]
    fn expected_frames_are_not_copied() {
        let pool = Pool::new();
        let mut landing = Landing::new(&pool);
        let mut is_copied = |bytes: usize| {
            arrive(&mut landing, &vec![7; bytes]);
            let memory = landing.parts()[0].as_ptr();
            let frame = landing.take(bytes, None);
            assert_eq!(frame[..], vec![7; bytes]);
            (frame.as_ptr() != memory, frame)
        };
        let lengths = [1514, 60, 300, 9000, 9000, 40_000, 60, 60];
        let copied = lengths.map(|bytes| is_copied(bytes).0);
        assert_eq!(
            copied,
            [false, false, false, true, false, false, true, false]
        );
        let waiting: Vec<_> = (0..SIZES[MEDIUM].most_uncrowded)
            .map(|_| is_copied(1514))
            .collect();
        assert!(is_copied(60).0, "while many frames wait");
        drop(waiting);
        assert!(!is_copied(60).0);
    }

    /// Channels bound the bytes of the frames that wait, which hardly take more memory.
    #[test]
    fn many_long_frames_take_at_most_twice_their_memory() {
        let pool = Pool::new();
        let mut landing = Landing::new(&pool);
        let mut held = Vec::new();
        for bytes in [2045, 3000, 9000, 32_000, 33_000, 60_000].repeat(100) {
            arrive(&mut landing, &vec![7; bytes]);
            held.push(landing.take(bytes, None));
        }
        assert!(held.iter().all(|frame| frame.iter().all(|&byte| byte == 7)));
        let of = |buffer: &Buffer| match &buffer.memory {
            Memory::Pooled(memory, ..) => memory.len(),
            _ => 0,
        };
        let taken: usize = held.iter().map(of).sum();
        let uncrowded = SIZES[LARGE].most_uncrowded * SIZES[LARGE].bytes;
        let frames: usize = held.iter().map(|frame| frame.len()).sum();
        assert!(taken <= 2 * frames + uncrowded, "{taken} for {frames}");
        drop(held);
        assert_eq!(pool.0[LARGE].in_use.get(), 1, "the landing's own");
    }

    #[test]
    fn buffers_are_used_again_and_few_are_kept() {
        let pool = Pool::new();
        let place = pool.copy_of(&[1; 1000]).as_ptr();
        let again = pool.buffer(1500);
        assert_eq!((again.as_ptr(), again.len()), (place, 1500));
        let many: Vec<_> = (0..5000).map(|_| pool.buffer(60)).collect();
        drop(many);
        assert_eq!(pool.0[SMALL].free.borrow().len(), SIZES[SMALL].kept);
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
