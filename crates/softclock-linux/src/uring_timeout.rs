//! Timeouts of an io_uring (`IORING_OP_TIMEOUT`) in a plain loop: the other way to sleep for microseconds in a program
//! that waits for descriptors too. No part of the runtime; experiments compare with it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::types::{Fd, Timespec};
use io_uring::{IoUring, opcode, squeue};

/// A ring with a number of timeouts, each known by its index, and polls of descriptors.
pub struct TimeoutRing {
    ring: IoUring,
    /// Where the kernel reads each timeout's length when it is submitted.
    lengths: Box<[Timespec]>,
}

impl TimeoutRing {
    /// A ring for timeouts of the indices below `timeouts`, and polls of a few descriptors.
    ///
    /// # Errors
    /// Those of `io_uring_setup(2)`; where the kernel is older than 6.1 or forbids it.
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

    /// Lets [`wait`](Self::wait) tell `index` once `length` has passed since the next call of it.
    ///
    /// # Errors
    /// Those of `io_uring_enter(2)`.
    ///
    /// # Panics
    /// If `index` is not below the number of timeouts.
    pub fn set(&mut self, index: u32, length: Duration) -> io::Result<()> {
        let length_of = &mut self.lengths[index as usize];
        *length_of = Timespec::from(length);
        let entry = opcode::Timeout::new(length_of).build();
        self.push(entry.user_data(index.into()))
    }

    /// Lets [`wait`](Self::wait) tell `token` once, when `fd` is readable.
    ///
    /// # Errors
    /// Those of `io_uring_enter(2)`.
    pub fn watch(&mut self, fd: BorrowedFd<'_>, token: u32) -> io::Result<()> {
        let readable = libc::POLLIN as u32;
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), readable).build();
        self.push(entry.user_data(token.into()))
    }

    /// Submits what was set, waits until something is over, and adds the indices and tokens of all that is.
    ///
    /// # Errors
    /// Those of `io_uring_enter(2)`.
    pub fn wait(&mut self, over: &mut Vec<u32>) -> io::Result<()> {
        self.ring.submit_and_wait(1)?;
        over.extend(self.ring.completion().map(|entry| entry.user_data() as u32));
        Ok(())
    }

    fn push(&mut self, entry: squeue::Entry) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.ring.submit()?;
        }
        // SAFETY: a poll points at nothing. A timeout points into `lengths`, whose memory neither moves nor goes before
        // the ring (fields drop in order), and which the kernel reads no later than at submission.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(io::Error::other)
    }
}

/// Room for descriptors beside the timeouts.
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
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        ring.watch(reader.as_fd(), 7).unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        let mut over = Vec::new();
        ring.wait(&mut over).unwrap();
        assert_eq!(over, [7]);
    }
}
