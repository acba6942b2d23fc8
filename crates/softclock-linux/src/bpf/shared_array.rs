//! Arrays that programs and this process share (BPF_MAP_TYPE_ARRAY, mapped).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use super::map::{self, Shape};
use crate::memory::Memory;

/// An array of [`Words`] that programs look up by index, and that this process maps: both read and change the words
/// without a system call.
#[derive(Debug)]
pub struct SharedArray {
    map: OwnedFd,
    memory: Memory,
    entries: usize,
}

/// An entry: as long as a cache line, so that changes of one do not slow accesses to the others. A word is `u64` for
/// programs, at eight times its index.
pub type Words = [AtomicU64; 8];

impl SharedArray {
    /// Creates an array of this number of entries, filled with zeros, and maps it.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_BPF; `InvalidInput` for no entries, or kernels that map no arrays (before Linux
    /// 5.5); those of mmap(2).
    pub fn new(entries: u32) -> io::Result<Self> {
        let shape = Shape {
            kind: BPF_MAP_TYPE_ARRAY,
            key_bytes: 4,
            value_bytes: size_of::<Words>() as u32,
            entries,
            flags: BPF_F_MMAPABLE,
        };
        let map = map::create(&shape)?;
        let entries = entries as usize;
        let memory = Memory::of_file(map.as_fd(), 0, entries * size_of::<Words>())?;
        Ok(Self {
            map,
            memory,
            entries,
        })
    }

    /// The entry with this index.
    ///
    /// # Panics
    /// If there is none.
    pub fn entry(&self, index: u32) -> &Words {
        let index = index as usize;
        assert!(index < self.entries, "an entry of the array");
        // SAFETY: the memory is page-aligned, has room for all entries, and lives as long as `self`; all sides access
        // its words atomically.
        unsafe { self.memory.start.cast::<Words>().add(index).as_ref() }
    }
}

impl AsFd for SharedArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

const _: () = assert!(size_of::<Words>() == 64);

const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_MMAPABLE: u32 = 1 << 10;
