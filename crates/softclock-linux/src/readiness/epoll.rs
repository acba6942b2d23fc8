//! Waits by edge-triggered epoll.

use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::{BATCH, Readiness, ReadyEvent, Timeout, Token, poll_bits, timespec};
use crate::busy_poll::{self, BusyPoll};

pub(super) struct Epoll {
    epoll: OwnedFd,
    buffer: Box<[epoll::Event; BATCH]>,
    /// Whether epoll_pwait2 works; false after the first failure. It came with Linux 5.11, and sandboxes may forbid it.
    exact: bool,
}

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        let mut this = Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            buffer: Box::new([NO_EVENT; BATCH]),
            exact: true,
        };
        // A sandbox may allow creating an epoll but not waiting by it.
        this.wait_raw(Timeout::Now)?;
        Ok(this)
    }

    pub(super) fn add(
        &mut self,
        fd: BorrowedFd<'_>,
        token: Token,
        interest: Readiness,
    ) -> io::Result<()> {
        let flags = EventFlags::from_bits_retain(poll_bits::bits(interest)) | EventFlags::ET;
        let data = EventData::new_u64(token.0);
        Ok(epoll::add(&self.epoll, fd, data, flags)?)
    }

    /// Adds a descriptor with EPOLLEXCLUSIVE, for reading only. The kernel allows few other flags together with that
    /// one.
    pub(super) fn add_exclusive(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET | EventFlags::EXCLUSIVE;
        let data = EventData::new_u64(token.0);
        Ok(epoll::add(&self.epoll, fd, data, flags)?)
    }

    pub(super) fn remove(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.epoll.try_clone()
    }

    /// Sets how waits poll the devices of sockets.
    pub(super) fn set_busy_poll(&self, to: BusyPoll) -> io::Result<()> {
        busy_poll::epoll::set(self.epoll.as_fd(), to)
    }

    pub(super) fn wait(&mut self, timeout: Timeout, out: &mut Vec<ReadyEvent>) -> io::Result<()> {
        let found = self.wait_raw(timeout)?;
        out.extend(self.buffer[..found].iter().map(event));
        Ok(())
    }

    fn wait_raw(&mut self, timeout: Timeout) -> io::Result<usize> {
        match timeout {
            Timeout::Now => self.wait_millis(Some(&ZERO)),
            Timeout::Never => self.wait_millis(None),
            Timeout::After(time) if self.exact => match self.wait_exact(time) {
                Err(error) if is_missing(&error) => {
                    self.exact = false;
                    self.wait_after_millis(time)
                }
                result => result,
            },
            Timeout::After(time) => self.wait_after_millis(time),
        }
    }

    /// Waits by epoll_pwait, for which rustix rounds the time up to milliseconds.
    fn wait_millis(&mut self, timeout: Option<&Timespec>) -> io::Result<usize> {
        Ok(epoll::wait(&self.epoll, &mut self.buffer[..], timeout)?)
    }

    fn wait_after_millis(&mut self, time: Duration) -> io::Result<usize> {
        let time = time.min(LONGEST_MILLIS);
        let time = Timespec::try_from(time).expect("24 days fit");
        self.wait_millis(Some(&time))
    }

    /// Waits by epoll_pwait2. Not by rustix, which uses it only if it is compiled for new kernels.
    fn wait_exact(&mut self, time: Duration) -> io::Result<usize> {
        const {
            assert!(size_of::<epoll::Event>() == size_of::<libc::epoll_event>());
        }
        let time = timespec(time);
        // SAFETY: the descriptor is open; the buffer holds BATCH events of the kernel's layout (that of rustix's type)
        // and any bits that the kernel writes are a valid event; `time` outlives the call; with a null signal mask, its
        // size is ignored.
        let found = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.buffer.as_mut_ptr(),
                BATCH as libc::c_int,
                &raw const time,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        usize::try_from(found).map_err(|_| io::Error::last_os_error())
    }
}

impl fmt::Debug for Epoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Epoll").field(&self.epoll).finish()
    }
}

fn event(raw: &epoll::Event) -> ReadyEvent {
    let epoll::Event { flags, data } = *raw;
    ReadyEvent {
        token: Token(data.u64()),
        readiness: poll_bits::readiness(flags.bits()),
    }
}

/// Returns whether the kernel does not know the call (ENOSYS), or a sandbox refuses it (EPERM), as those older than the
/// call do.
fn is_missing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOSYS | Errno::PERM))
}

const NO_EVENT: epoll::Event = epoll::Event {
    flags: EventFlags::empty(),
    data: EventData::new_u64(0),
};

const ZERO: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// The longest time of epoll_pwait, which takes 31 bits of milliseconds: 24 days.
const LONGEST_MILLIS: Duration = Duration::from_millis(i32::MAX as u64);

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    #[test]
    fn times_are_kept_without_exact_waits_too() {
        let mut epoll = Epoll::new().unwrap();
        epoll.exact = false;
        let start = Instant::now();
        let time = Duration::from_micros(300);
        assert_eq!(epoll.wait_raw(Timeout::After(time)).unwrap(), 0);
        assert!(start.elapsed() >= time);

        let (here, _there) = UnixStream::pair().unwrap();
        epoll
            .add(here.as_fd(), Token(1), Readiness::WRITABLE)
            .unwrap();
        assert_eq!(epoll.wait_raw(Timeout::After(Duration::MAX)).unwrap(), 1);
    }
}
