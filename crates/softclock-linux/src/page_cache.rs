//! Checks whether a part of a file is in the page cache, so that a server can send it without waiting for the disk.
//!
//! `preadv2` has a flag that makes it fail instead of waiting for the disk (RWF_NOWAIT); `sendfile` has none. So the
//! caller checks first. Pages can still be evicted between the check and the `sendfile`, which then waits for the disk.
//!
//! `cachestat` counts the cached pages, but only for processes that own the file or may write to it, and a server
//! should not; `mincore` has the same restriction. So this module reads single bytes, 64 KiB apart: the kernel reads
//! files ahead, and evicts them, in runs of about 128 KiB.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Returns whether `len` bytes of `file` from `offset` on are in memory, judged by one byte of every 64 KiB.
///
/// Costs one system call for every 64 KiB. Returns false if the range extends past the end of the file, and on file
/// systems that do not support RWF_NOWAIT. An empty range is in memory.
///
/// # Example
/// ```
/// use std::os::fd::AsFd;
///
/// use softclock_linux::page_cache::is_cached;
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("file");
/// std::fs::write(&path, "hello")?;
/// let file = std::fs::File::open(&path)?;
/// match is_cached(file.as_fd(), 0, 5) {
///     true => println!("sendfile does not wait for the disk"),
///     false => println!("let a helper thread read the file first"),
/// }
/// // The file ends before this range.
/// assert!(!is_cached(file.as_fd(), 0, 6));
/// # Ok(())
/// # }
/// ```
pub fn is_cached(file: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let Some(end) = offset.checked_add(len) else {
        return false;
    };
    // The kernel reads a run from front to back, so if its last byte is there, the bytes before it are likely there
    // too.
    let mut ends = (offset..end)
        .step_by(LOOK_BYTES)
        .map(|start| end.min(start.saturating_add(LOOK_BYTES as u64)));
    ends.all(|end| is_readable(file, end - 1))
}

/// Returns whether the file has a byte at `offset` and that byte is in memory.
fn is_readable(file: BorrowedFd<'_>, offset: u64) -> bool {
    let mut byte = [0];
    let buffers = &mut [IoSliceMut::new(&mut byte)];
    loop {
        match preadv2(file, buffers, offset, ReadWriteFlags::NOWAIT) {
            Err(Errno::INTR) => {}
            result => return result == Ok(1),
        }
    }
}

/// The distance between two checked bytes: half of the run in which the kernel reads ahead and evicts.
const LOOK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Advice, fadvise};
    use std::num::NonZeroU64;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    #[test]
    fn what_is_in_memory() {
        let file = tempfile::tempfile().unwrap();
        let len = 4 * LOOK_BYTES as u64 + 10;
        file.write_all_at(&vec![1; len as usize], 0).unwrap();
        let is_cached = |offset, len| is_cached(file.as_fd(), offset, len);
        let tells = is_cached(0, 1);
        assert!(is_cached(5, 0));
        for (offset, len) in [(0, len), (1, len - 1), (len - 1, 1), (100_000, 70_000)] {
            assert_eq!(is_cached(offset, len), tells, "{offset} {len}");
        }
        for (offset, len) in [
            (0, len + 1),
            (len, 1),
            (u64::MAX, 2),
            (u64::MAX - 1, 1),
            (u64::MAX - (1 << 20), 1 << 20),
            (1 << 62, 1),
        ] {
            assert!(!is_cached(offset, len), "{offset} {len}");
        }
        if !tells {
            softclock_testing::in_part!("this file system does not report which data is in memory");
            return;
        }
        file.sync_all().unwrap();
        // Drops the whole file, because the kernel evicts large folios only whole; retries, because it may take a
        // while.
        let is_dropped = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            fadvise(&file, 0, NonZeroU64::new(len), Advice::DontNeed).unwrap();
            !is_cached(0, len)
        });
        if !is_dropped {
            softclock_testing::skip!("this file system keeps everything in memory");
        }
        file.read_exact_at(&mut vec![0; len as usize], 0).unwrap();
        assert!(is_cached(0, len));
    }
}
