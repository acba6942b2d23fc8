//! What of a file is in memory, so that sending it does not wait for the disk.
//!
//! `sendfile` has no form that fails where it would wait, as `preadv2` has (RWF_NOWAIT). So one has to ask before, and
//! pages may leave memory between the question and the sending: then it waits, as every `sendfile` does. `cachestat` would
//! count each page, but only for those who own the file or may write it, which servers should not; `mincore` has the same
//! rule. So single bytes are read, far apart: the kernel reads files ahead, and drops them from memory, in runs of some
//! 128 KiB.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Whether `len` bytes of `file` at `offset` are in memory, as far as a look at each 64 KiB tells: a system call for each.
///
/// False also for what is behind the file's end, and on file systems that can't tell.
pub fn is_cached(file: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let Some(end) = offset.checked_add(len) else {
        return false;
    };
    // A run is read forwards, so that its last page comes last.
    let mut ends = (offset..end)
        .step_by(LOOK_BYTES)
        .map(|start| end.min(start.saturating_add(LOOK_BYTES as u64)));
    ends.all(|end| is_readable(file, end - 1))
}

/// Whether the byte at `offset` is there, and in memory.
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
            softclock_testing::in_part!("this file system does not tell what is in memory");
            return;
        }
        file.sync_all().unwrap();
        // All of it, since its pages may be joined. The kernel may not let go at once.
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
