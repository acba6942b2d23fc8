//! Buffers for chunks of files, which each thread reuses.
//!
//! The allocator returns large buffers to the kernel when they are freed. A new one then costs a page fault for each of
//! its pages, which is as expensive as reading the file.

use std::cell::{Cell, RefCell};

use bytes::Bytes;

/// Returns an empty buffer with room for `max` bytes. Large ones come from the thread's pool.
pub(crate) fn buffer(max: usize) -> Vec<u8> {
    if max < REUSED_BYTES {
        return Vec::with_capacity(max);
    }
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok();
    let mut buffer = spare.flatten().unwrap_or_default();
    buffer.reserve_exact(max.max(CHUNK_BYTES));
    buffer
}

/// Converts the content of a [`buffer`] without copying it. A pooled buffer returns to the pool when the last reference
/// is dropped.
pub(crate) fn into_bytes(buffer: Vec<u8>) -> Bytes {
    match buffer.capacity() == CHUNK_BYTES {
        true => Pooled::new(buffer).into_bytes(),
        false => buffer.into(),
    }
}

/// Lends `f` the thread's scratch buffer of [`SCRATCH_BYTES`] for received data; its content is arbitrary.
pub(crate) fn with_scratch<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut scratch = SCRATCH.take();
    scratch.resize(SCRATCH_BYTES, 0);
    let result = f(&mut scratch);
    SCRATCH.set(scratch);
    result
}

/// A buffer that returns to the pool of the thread that drops it.
pub(crate) struct Pooled(Vec<u8>);

impl Pooled {
    pub(crate) const fn new(buffer: Vec<u8>) -> Self {
        Self(buffer)
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        if buffer.capacity() != CHUNK_BYTES {
            return;
        }
        buffer.clear();
        // While a thread ends, its pool may have been destroyed already.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(buffer);
            }
        });
    }
}

/// The bytes that are read from a file at a time: few enough to be still in the processor's cache when they are sent.
pub const CHUNK_BYTES: usize = 64 << 10;

/// Smaller buffers are not pooled: the allocator serves them from its own free lists.
const REUSED_BYTES: usize = CHUNK_BYTES / 2;

/// The most free buffers that a thread keeps. Few are in use at a time, as the kernel usually accepts a whole chunk.
const SPARE_MAX: usize = 16;

pub(crate) const SCRATCH_BYTES: usize = 64 << 10;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_empty() {
        let mut first = buffer(CHUNK_BYTES);
        first.extend_from_slice(b"content");
        let address = first.as_ptr();
        let bytes = Pooled::new(first).into_bytes();
        assert_eq!(bytes, "content");
        let part = bytes.slice(3..);
        drop(bytes);
        let other = buffer(CHUNK_BYTES);
        assert_ne!(other.as_ptr(), address, "still in use");
        drop(part);
        let again = buffer(CHUNK_BYTES);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
    }

    #[test]
    fn the_pool_is_bounded() {
        let many: Vec<_> = (0..2 * SPARE_MAX)
            .map(|_| Pooled::new(buffer(CHUNK_BYTES)))
            .collect();
        drop(many);
        assert_eq!(SPARE.with_borrow(Vec::len), SPARE_MAX);
        drop(Pooled::new(buffer(10)));
        assert_eq!(SPARE.with_borrow(Vec::len), SPARE_MAX);
    }
}
