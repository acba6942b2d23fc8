//! Waits by io_uring, with one multishot poll for each descriptor.
//!
//! Events are in the completion queue, and the flags of the submission queue say whether the kernel holds more. Both
//! are in memory shared with the kernel, so a check that finds nothing makes no system call. The ring is set up so that
//! the kernel posts completions only when this thread enters it (DEFER_TASKRUN), and never interrupts the thread.
//!
//! A multishot poll reports the state when it is submitted, and then each wake-up of the descriptor, like
//! edge-triggered epoll. The kernel ends it if the completion queue overflows. It is then submitted again, and reports
//! the state.
//!
//! Two things differ from epoll: adding a descriptor takes effect at the next wait, and the ring keeps a descriptor's
//! file open until the descriptor is removed, so closing the descriptor does not suffice.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{cqueue, opcode, squeue};
use rustix::io::Errno;

use super::registrations::Registrations;
use super::{BATCH, LONGEST, Readiness, ReadyEvent, Timeout, Token, poll_bits};
use crate::busy_poll::{self, BusyPoll};

pub(crate) struct IoUring {
    ring: io_uring::IoUring,
    registered: Registrations<Registered>,
    next_generation: u32,
    enter_flags: u32,
    /// The ring belongs to the thread that created it (SINGLE_ISSUER).
    not_send: PhantomData<*const ()>,
}

struct Registered {
    token: Token,
    interest: Readiness,
    /// Distinguishes the completions of this descriptor from late ones of an earlier descriptor with the same number.
    generation: u32,
}

impl IoUring {
    /// Creates a ring. Returns `Unsupported` on kernels before 6.1.
    pub(crate) fn new() -> io::Result<Self> {
        Self::with_entries(SUBMISSIONS, COMPLETIONS)
    }

    fn with_entries(submissions: u32, completions: u32) -> io::Result<Self> {
        let ring = io_uring::IoUring::builder()
            .setup_cqsize(completions)
            // A child process would keep the ring open.
            .dontfork()
            .setup_submit_all()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(submissions)
            .map_err(explain)?;
        let no_iowait = match ring.params().is_feature_no_iowait() {
            true => ENTER_NO_IOWAIT,
            false => 0,
        };
        let mut this = Self {
            ring,
            registered: Registrations::new(),
            next_generation: 0,
            enter_flags: ENTER_GETEVENTS | ENTER_EXT_ARG | no_iowait,
            not_send: PhantomData,
        };
        // A sandbox may allow the ring but not its use.
        this.enter(0, None)?;
        Ok(this)
    }

    pub(super) fn add(
        &mut self,
        fd: BorrowedFd<'_>,
        token: Token,
        interest: Readiness,
    ) -> io::Result<()> {
        let registered = Registered {
            token,
            interest,
            generation: self.next_generation,
        };
        let poll = multishot_poll(fd.as_raw_fd(), &registered);
        self.registered.insert(fd, registered)?;
        self.next_generation = self.next_generation.wrapping_add(1);
        let pushed = self.push(&poll);
        if pushed.is_err() {
            self.registered.remove(fd)?;
        }
        pushed
    }

    /// Removes a descriptor. When this returns, the ring no longer holds the descriptor's file open.
    pub(super) fn remove(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let removed = self.registered.remove(fd)?;
        let poll = user_data(fd.as_raw_fd(), removed.generation);
        let cancel = opcode::AsyncCancel::new(poll).build();
        self.push(
            &cancel
                .user_data(OF_NO_DESCRIPTOR)
                .flags(squeue::Flags::SKIP_SUCCESS),
        )?;
        self.enter(0, None)?;
        // Each call does a bounded part of the kernel's pending work, and the end of the poll may be in a later part.
        while self.ring.submission().taskrun() {
            self.enter(0, None)?;
        }
        Ok(())
    }

    /// Sets how waits poll the devices of sockets.
    pub(crate) fn set_busy_poll(&self, to: BusyPoll) -> io::Result<()> {
        busy_poll::io_uring::set(&self.ring, to)
    }

    /// Returns whether a wait would find completions or has work for the kernel. Reads shared memory only.
    pub(super) fn is_pending(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.must_enter()
    }

    pub(super) fn wait(&mut self, timeout: Timeout, out: &mut Vec<ReadyEvent>) -> io::Result<()> {
        // Completions that are already posted need no system call.
        self.take(out)?;
        if out.len() == BATCH {
            return Ok(());
        }
        match timeout {
            Timeout::After(time) if out.is_empty() => self.block(Some(time), out),
            Timeout::Never if out.is_empty() => self.block(None, out),
            _ if self.must_enter() => {
                self.enter(0, None)?;
                self.take(out).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Blocks until there is an event, `time` has passed, or a signal comes.
    fn block(&mut self, time: Option<Duration>, out: &mut Vec<ReadyEvent>) -> io::Result<()> {
        let start = Instant::now();
        let mut left = time;
        loop {
            self.enter(1, left)?;
            let taken = self.take(out)?;
            // Without a completion, the time is over or a signal came.
            if !out.is_empty() || taken == 0 {
                return Ok(());
            }
            // All completions were of removed descriptors: wait for the rest of the time.
            left = time.map(|time| time.saturating_sub(start.elapsed()));
        }
    }

    /// Returns whether the kernel has to be entered: it holds completions that it posts only then, or there are
    /// submissions.
    fn must_enter(&mut self) -> bool {
        let submissions = self.ring.submission();
        !submissions.is_empty() || submissions.taskrun() || submissions.cq_overflow()
    }

    /// Converts completions to events until `out` holds [`BATCH`] or the queue is empty. Returns the number of
    /// completions, which includes those of removed descriptors.
    fn take(&mut self, out: &mut Vec<ReadyEvent>) -> io::Result<usize> {
        let mut completions = [const { MaybeUninit::uninit() }; BATCH];
        let mut taken = 0;
        loop {
            let room = BATCH - out.len();
            let found = self.ring.completion().fill(&mut completions[..room]);
            if found.is_empty() {
                return Ok(taken);
            }
            taken += found.len();
            for completion in found {
                self.on_completion(completion, out)?;
            }
        }
    }

    /// Appends the event of a completion to `out`, and submits the poll again if it has ended. Ignores completions of
    /// removed descriptors.
    fn on_completion(
        &mut self,
        completion: &cqueue::Entry,
        out: &mut Vec<ReadyEvent>,
    ) -> io::Result<()> {
        let (fd, generation) = from_user_data(completion.user_data());
        let Some(registered) = self
            .registered
            .get(fd as usize)
            .filter(|registered| registered.generation == generation)
        else {
            return Ok(());
        };
        let result = u32::try_from(completion.result());
        out.push(ReadyEvent {
            token: registered.token,
            // A poll that failed has ended. The owner's next call on the descriptor may return the reason.
            readiness: result.map_or(Readiness::ERROR, poll_bits::readiness),
        });
        // The kernel ended the poll because the completion queue overflowed.
        if result.is_ok() && !cqueue::more(completion.flags()) {
            let poll = multishot_poll(fd, registered);
            self.push(&poll)?;
        }
        Ok(())
    }

    /// Queues a submission, and submits the queue if it is full. Fails if the kernel then has no memory to accept it.
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        if self.try_push(entry) {
            return Ok(());
        }
        self.enter(0, None)?;
        match self.try_push(entry) {
            true => Ok(()),
            false => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the entries made in this file are polls and cancellations, which contain no pointers.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Submits the queue, makes the kernel post completions, and waits until there are at least `least` of them, `time`
    /// has passed (`None` for no limit), or a signal comes.
    fn enter(&mut self, least: u32, time: Option<Duration>) -> io::Result<()> {
        let submissions = self.ring.submission().len() as u32;
        let time = time.map(|time| Timespec::from(time.min(LONGEST)));
        let args = match &time {
            Some(time) => SubmitArgs::new().timespec(time),
            None => SubmitArgs::new(),
        };
        // SAFETY: `args` is the `struct io_uring_getevents_arg` that ENTER_EXT_ARG requires. It and the time to which
        // it points outlive the call.
        let entered = unsafe {
            self.ring
                .submitter()
                .enter(submissions, least, self.enter_flags, Some(&args))
        };
        match entered {
            Err(error) if !ends_a_wait(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for IoUring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IoUring")
            .field(&self.ring.as_raw_fd())
            .finish()
    }
}

fn multishot_poll(fd: RawFd, registered: &Registered) -> squeue::Entry {
    opcode::PollAdd::new(Fd(fd), poll_bits::bits(registered.interest))
        .multi(true)
        .build()
        .user_data(user_data(fd, registered.generation))
}

fn user_data(fd: RawFd, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(fd as u32)
}

fn from_user_data(data: u64) -> (RawFd, u32) {
    (data as u32 as RawFd, (data >> 32) as u32)
}

/// Returns whether an error only means that a wait ended without completions: its time is over (ETIME), a signal came
/// (EINTR), or the kernel could not accept the submissions at present (EAGAIN, EBUSY). Those are submitted again at the
/// next call. If the kernel accepts any submission, it returns their number instead of one of these errors.
fn ends_a_wait(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY)
    )
}

/// Replaces EINVAL, which kernels return for flags that they do not know, by an error that gives the cause.
fn explain(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::INVAL) => io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel's io_uring is too old: 6.1 is needed",
        ),
        _ => error,
    }
}

/// User data of completions that concern no descriptor: it contains the descriptor number -1.
const OF_NO_DESCRIPTOR: u64 = u32::MAX as u64;

/// The size of the submission queue. If more submissions are queued between two waits, some are submitted by a system
/// call of their own.
const SUBMISSIONS: u32 = 256;

/// The size of the completion queue, 128 KiB. If more completions arrive between two waits, the kernel keeps them in a
/// list, and ends their polls.
///
/// This size also determines that of the hash table in which the kernel finds a poll to be removed: 256 lists, the most
/// that it uses. A removal searches half of a list on average, or all of it for a connection that was idle for long,
/// because new polls are at the front. With 18 000 polls a removal takes 6 us more than with few.
const COMPLETIONS: u32 = 8192;

/// Flags of io_uring_enter (include/uapi/linux/io_uring.h).
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
/// Does not count waiting for events as waiting for disks (since 6.15).
const ENTER_NO_IOWAIT: u32 = 1 << 7;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn nothing_is_lost_when_the_queues_are_too_small() {
        const PAIRS: usize = 100;
        let mut ring = match IoUring::with_entries(2, 4) {
            Ok(ring) => ring,
            Err(error) => softclock_testing::skip!("io_uring: {error}"),
        };
        let mut pairs: Vec<_> = (0..PAIRS).map(|_| UnixStream::pair().unwrap()).collect();
        for (token, (here, _)) in (0..).zip(&pairs) {
            ring.add(here.as_fd(), Token(token), Readiness::READABLE)
                .unwrap();
        }
        for _ in 0..3 {
            for (_, there) in &mut pairs {
                there.write_all(b"x").unwrap();
            }
            let mut found = [false; PAIRS];
            while found.contains(&false) {
                let mut events = Vec::with_capacity(BATCH);
                let limit = Timeout::After(Duration::from_secs(20));
                ring.wait(limit, &mut events).unwrap();
                assert!(!events.is_empty(), "lost");
                events.iter().for_each(|e| found[e.token.0 as usize] = true);
            }
            for (here, _) in &mut pairs {
                here.read_exact(&mut [0]).unwrap();
            }
        }
    }

    #[test]
    fn a_look_at_nothing_is_a_look_at_memory() {
        let mut ring = match IoUring::new() {
            Ok(ring) => ring,
            Err(error) => softclock_testing::skip!("io_uring: {error}"),
        };
        let (here, mut there) = UnixStream::pair().unwrap();
        assert!(!ring.is_pending());
        ring.add(here.as_fd(), Token(1), Readiness::READABLE)
            .unwrap();
        assert!(ring.is_pending(), "the poll is to be submitted");
        let mut events = Vec::new();
        ring.wait(Timeout::Now, &mut events).unwrap();
        assert!(!ring.is_pending() && events.is_empty());
        there.write_all(b"x").unwrap();
        assert!(ring.is_pending());
        ring.wait(Timeout::Now, &mut events).unwrap();
        assert!(!ring.is_pending() && events.len() == 1);
        ring.remove(here.as_fd()).unwrap();
        there.write_all(b"x").unwrap();
        ring.wait(Timeout::Now, &mut events).unwrap();
        assert!(!ring.is_pending() && events.len() == 1);
    }
}
