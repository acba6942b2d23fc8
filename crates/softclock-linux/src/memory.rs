//! Memory mappings.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// A memory mapping, page-aligned; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) start: NonNull<u8>,
    pub(crate) bytes: usize,
}

impl Memory {
    /// Maps new memory, filled with zeros.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, wherever the kernel likes.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
        }?;
        Ok(Self::at(start.cast(), bytes))
    }

    /// Keeps the memory out of child processes that are forked from now on (MADV_DONTFORK). Otherwise a fork would copy
    /// all of it at once if a device may write to it.
    pub(crate) fn keep_from_children(&self) -> io::Result<()> {
        // SAFETY: the mapping belongs to this value; the advice changes nothing in this process.
        unsafe {
            madvise(
                self.start.as_ptr().cast(),
                self.bytes,
                Advice::LinuxDontFork,
            )
        }?;
        Ok(())
    }

    /// Maps memory that the kernel shares by a descriptor. It stays out of child processes, where it would keep the file
    /// open.
    pub(crate) fn of_file(
        file: BorrowedFd<'_>,
        page_offset: u64,
        bytes: usize,
    ) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping, wherever the kernel likes.
        let start = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, file, page_offset) }?;
        let memory = Self::at(start.cast(), bytes);
        memory.keep_from_children()?;
        Ok(memory)
    }

    fn at(start: *mut u8, bytes: usize) -> Self {
        Self {
            start: NonNull::new(start).expect("nothing is mapped at zero"),
            bytes,
        }
    }
}

// SAFETY: a mapping belongs to the process, not to a thread. This type does not access the memory: each user argues for
// its own accesses.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this value mapped the memory, and no reference to it is left. A failure leaves it mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
