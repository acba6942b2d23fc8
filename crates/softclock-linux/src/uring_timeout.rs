//! Timeouts of an io_uring (`IORING_OP_TIMEOUT`) in a plain loop.
//!
//! They are another way to sleep for microseconds in a program that also waits for descriptors. The runtime does not
//! use this module; experiments compare the runtime with it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::types::{Fd, Timespec};
use io_uring::{IoUring, opcode, squeue};

/// A ring with a fixed number of timeouts, identified by their indices, and polls of a few descriptors.
///
/// ```no_run
/// use std::time::Duration;
///
/// use softclock_linux::uring_timeout::TimeoutRing;
///
/// # fn main() -> std::io::Result<()> {
/// let mut ring = TimeoutRing::new(2)?;
/// ring.set(0, Duration::from_millis(2))?;
/// ring.set(1, Duration::from_millis(1))?;
/// let mut expired = Vec::new();
/// ring.wait(&mut expired)?;
/// assert_eq!(expired[0], 1);
/// # Ok(())
/// # }
/// ```
pub struct TimeoutRing {
    ring: IoUring,
    /// The length of each timeout. The kernel reads it from here when the timeout is submitted.
    lengths: Box<[Timespec]>,
}

impl TimeoutRing {
    /// Creates a ring for timeouts with indices below `timeouts`, and for polls of up to 8 descriptors.
    ///
    /// # Errors
    /// Returns the errors of `io_uring_setup(2)`: kernels before 6.1 lack the flags used here, and sandboxes often
    /// forbid the call.
    pub fn new(timeouts: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build((timeouts + POLLS).next_power_of_two())?;
        Ok(Self {
            ring,
            lengths: vec![Timespec::new(); timeouts as usize].into(),
        })
    }

    /// Starts timeout `index` at the next call of [`wait`](Self::wait), which submits it. A `wait` returns `index` once
    /// `length` has passed since then.
    ///
    /// # Errors
    /// Returns the errors of `io_uring_enter(2)`.
    ///
    /// # Panics
    /// If `index` is not below the number of timeouts.
    pub fn set(&mut self, index: u32, length: Duration) -> io::Result<()> {
        let length_of = &mut self.lengths[index as usize];
        *length_of = Timespec::from(length);
        let entry = opcode::Timeout::new(length_of).build();
        self.push(entry.user_data(index.into()))
    }

    /// Makes [`wait`](Self::wait) return `token` once, when `fd` is readable. Choose tokens that are not indices of
    /// timeouts.
    ///
    /// # Errors
    /// Returns the errors of `io_uring_enter(2)`.
    pub fn watch(&mut self, fd: BorrowedFd<'_>, token: u32) -> io::Result<()> {
        let readable = libc::POLLIN as u32;
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), readable).build();
        self.push(entry.user_data(token.into()))
    }

    /// Submits the new timeouts and polls, blocks until at least one is complete, and appends the indices and tokens of
    /// all complete ones to `over`. One system call.
    ///
    /// # Errors
    /// Returns the errors of `io_uring_enter(2)`.
    pub fn wait(&mut self, over: &mut Vec<u32>) -> io::Result<()> {
        self.ring.submit_and_wait(1)?;
        over.extend(self.ring.completion().map(|entry| entry.user_data() as u32));
        Ok(())
    }

    fn push(&mut self, entry: squeue::Entry) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.ring.submit()?;
        }
        // SAFETY: a poll contains no pointer. A timeout points into `lengths`, whose memory never moves, is freed only
        // after the ring (fields drop in order), and is read by the kernel no later than at submission.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(io::Error::other)
    }
}

/// The number of descriptors that can be polled beside the timeouts.
const POLLS: u32 = 8;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Instant;

    use softclock_testing::skip;

    use super::*;

    #[test]
    fn timeouts_end_in_order_and_never_early() {
        let Ok(mut ring) = TimeoutRing::new(2) else {
            skip!("no io_uring here");
        };
        let start = Instant::now();
        ring.set(0, Duration::from_millis(3)).unwrap();
        ring.set(1, Duration::from_millis(1)).unwrap();
        let mut over = Vec::new();
        while over.len() < 2 {
            ring.wait(&mut over).unwrap();
        }
        assert_eq!(over, [1, 0]);
        assert!(start.elapsed() >= Duration::from_millis(3));
    }

    #[test]
    fn a_readable_descriptor_ends_a_wait() {
        let Ok(mut ring) = TimeoutRing::new(1) else {
            skip!("no io_uring here");
        };
        let (reader, writer) = std::io::pipe().unwrap();
        ring.watch(reader.as_fd(), 7).unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        let mut over = Vec::new();
        ring.wait(&mut over).unwrap();
        assert_eq!(over, [7]);
    }
}
