//! io_uring: one multishot poll for each descriptor.
//!
//! What is ready stands in the completion queue, and that there is more to fetch in the flags of the submission queue,
//! both in memory that the kernel shares. So a look that finds nothing makes no system call. The ring is set up so that
//! the kernel posts completions only when this thread enters it (DEFER_TASKRUN): nothing interrupts the thread.
//!
//! A multishot poll reports the state when it is set up, then each wake-up of the descriptor, like edge-triggered
//! epoll. The kernel ends it where the completion queue overflows; then it is set up again, and so reports the state.
//!
//! Two differences from epoll: adding takes effect at the next wait, and the ring keeps a descriptor's file open until
//! it is removed, which therefore cannot be left to the close.

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

pub(crate) struct IoUring {
    ring: io_uring::IoUring,
    registered: Registrations<Registered>,
    next_generation: u32,
    enter_flags: u32,
    /// SINGLE_ISSUER: the ring belongs to the thread that made it.
    not_send: PhantomData<*const ()>,
}

struct Registered {
    token: Token,
    interest: Readiness,
    /// Tells the completions of this descriptor from late ones of another that had its number.
    generation: u32,
}

impl IoUring {
    /// `Unsupported` before Linux 6.1.
    pub(crate) fn new() -> io::Result<Self> {
        Self::with_entries(SUBMISSIONS, COMPLETIONS)
    }

    fn with_entries(submissions: u32, completions: u32) -> io::Result<Self> {
        let ring = io_uring::IoUring::builder()
            .setup_cqsize(completions)
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

    /// When it returns, the ring has let go of the descriptor's file.
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
        // The kernel does a bounded part of its pending work each time; the poll's end may be behind it.
        while self.ring.submission().taskrun() {
            self.enter(0, None)?;
        }
        Ok(())
    }

    /// Whether a wait would find something, or has something to do: a look at shared memory.
    pub(super) fn is_pending(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.must_enter()
    }

    pub(super) fn wait(&mut self, timeout: Timeout, out: &mut Vec<ReadyEvent>) -> io::Result<()> {
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

    fn block(&mut self, time: Option<Duration>, out: &mut Vec<ReadyEvent>) -> io::Result<()> {
        let start = Instant::now();
        let mut left = time;
        loop {
            self.enter(1, left)?;
            let taken = self.take(out)?;
            // Without a completion it was the time's end, or a signal.
            if !out.is_empty() || taken == 0 {
                return Ok(());
            }
            // What came was of descriptors that are gone.
            left = time.map(|time| time.saturating_sub(start.elapsed()));
        }
    }

    /// Whether the kernel has something that it delivers only when entered, or is to be told something.
    fn must_enter(&mut self) -> bool {
        let submissions = self.ring.submission();
        !submissions.is_empty() || submissions.taskrun() || submissions.cq_overflow()
    }

    /// Moves completions to `out`, as many as have room there; returns how many there were, with those of no account.
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
            // A poll that failed reports nothing more; the next call on the descriptor may tell why.
            readiness: result.map_or(Readiness::ERROR, poll_bits::readiness),
        });
        if result.is_ok() && !cqueue::more(completion.flags()) {
            let poll = multishot_poll(fd, registered);
            self.push(&poll)?;
        }
        Ok(())
    }

    /// Fails where the kernel has no memory to take what is queued already.
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
        // SAFETY: the entries made here are polls and cancellations, which name no memory of ours.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Submits what is to be submitted, lets the kernel post completions, and waits until there are as many as `least`,
    /// time is over (`None` for never), or a signal comes.
    fn enter(&mut self, least: u32, time: Option<Duration>) -> io::Result<()> {
        let submissions = self.ring.submission().len() as u32;
        let time = time.map(|time| Timespec::from(time.min(LONGEST)));
        let args = match &time {
            Some(time) => SubmitArgs::new().timespec(time),
            None => SubmitArgs::new(),
        };
        // SAFETY: `args` is the `struct io_uring_getevents_arg` that ENTER_EXT_ARG announces; it and the time it points
        // to outlive the call.
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

/// The wait's time is over, a signal ended it, or the kernel has no memory now to take what was submitted: then it is
/// submitted again next time. Where it took something it tells none of these.
fn ends_a_wait(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY)
    )
}

/// Kernels that do not know the flags call them invalid.
fn explain(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::INVAL) => io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel's io_uring is too old: 6.1 is needed",
        ),
        _ => error,
    }
}

/// The descriptor number -1.
const OF_NO_DESCRIPTOR: u64 = u32::MAX as u64;

/// Places for what is to be submitted at the next wait. More take system calls in between.
const SUBMISSIONS: u32 = 256;

/// Places for completions, 128 KiB. More make the kernel keep a list, and end the polls concerned.
///
/// The kernel finds a poll to be removed in a hash table, which it makes the larger the more places there are, up to 256
/// lists for so many. It looks through half of one on average, and of a connection that was idle for long through all of
/// it, as new polls come first: with 18 000 polls that is 6 us more than without.
const COMPLETIONS: u32 = 8192;

/// Of include/uapi/linux/io_uring.h, as are the following.
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
/// Not to count waiting for events as waiting for disks (6.15).
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
