//! epoll, edge-triggered.

use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::{BATCH, Event, Readiness, Timeout, Token};

/// A set of descriptors to wait for, under the contract of [the module](super).
pub struct Poller {
    epoll: OwnedFd,
    buffer: Box<[epoll::Event; BATCH]>,
    /// Whether the kernel has epoll_pwait2 (since 5.11) and the sandbox lets it through.
    exact: bool,
}

impl Poller {
    /// An empty set. Fails where the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            buffer: Box::new([NO_EVENT; BATCH]),
            exact: true,
        })
    }

    /// Adds a descriptor. A system call, under 1 us.
    ///
    /// Fails with `AlreadyExists` if it is in the set, and with `PermissionDenied` for files that are always ready.
    pub fn add(&self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(token.0),
            INTEREST,
        )?)
    }

    /// Adds a descriptor for reading only.
    pub(super) fn add_for_reading(&self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let interest = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(token.0),
            interest,
        )?)
    }

    /// Removes a descriptor; `NotFound` if it is not in the set.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits for events and puts them in `out` in place of what was there; returns their number, at most [`BATCH`].
    ///
    /// Interrupted by a signal it returns 0 at once. Allocates only if `out` has room for fewer than [`BATCH`].
    pub fn wait(&mut self, timeout: Timeout, out: &mut Vec<Event>) -> io::Result<usize> {
        out.clear();
        let found = match self.wait_raw(timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            result => result?,
        };
        out.reserve(BATCH);
        out.extend(self.buffer[..found].iter().map(event));
        Ok(found)
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

    /// By epoll_pwait, for which rustix rounds the time up to milliseconds.
    fn wait_millis(&mut self, timeout: Option<&Timespec>) -> io::Result<usize> {
        Ok(epoll::wait(&self.epoll, &mut self.buffer[..], timeout)?)
    }

    fn wait_after_millis(&mut self, time: Duration) -> io::Result<usize> {
        self.wait_millis(Some(&timespec(time.min(LONGEST_MILLIS))))
    }

    /// By epoll_pwait2, which rustix uses only where it may assume a new kernel.
    fn wait_exact(&mut self, time: Duration) -> io::Result<usize> {
        const {
            assert!(size_of::<epoll::Event>() == size_of::<libc::epoll_event>());
        }
        let time = libc::timespec {
            tv_sec: time.as_secs().min(LONGEST_SECS) as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: the descriptor is open; the buffer holds BATCH events of the kernel's layout (rustix's type is made
        // to be passed to this call) and any bit pattern the kernel writes is a valid one; `time` outlives the call;
        // no signal mask is given, so its size is not looked at.
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

impl AsFd for Poller {
    /// The epoll descriptor is readable when events wait, and so can be put under another poller.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Poller").field(&self.epoll).finish()
    }
}

fn event(raw: &epoll::Event) -> Event {
    let epoll::Event { flags, data } = *raw;
    Event {
        token: Token(data.u64()),
        readiness: readiness(flags),
    }
}

fn readiness(flags: EventFlags) -> Readiness {
    MEANING
        .iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .fold(Readiness::NONE, |all, (_, readiness)| all | *readiness)
}

/// The call is unknown to the kernel, or a sandbox from before its time refuses it.
fn is_missing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOSYS | Errno::PERM))
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().min(LONGEST_SECS) as i64,
        tv_nsec: time.subsec_nanos().into(),
    }
}

const INTEREST: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::PRI)
    .union(EventFlags::ET);

const MEANING: [(EventFlags, Readiness); 6] = [
    (EventFlags::IN, Readiness::READABLE),
    (EventFlags::OUT, Readiness::WRITABLE),
    (EventFlags::RDHUP, Readiness::READ_CLOSED),
    (EventFlags::HUP, HUNG_UP),
    (EventFlags::ERR, Readiness::ERROR),
    (EventFlags::PRI, Readiness::PRIORITY),
];

/// EPOLLHUP: both directions are closed.
const HUNG_UP: Readiness =
    Readiness::from_bits(Readiness::READ_CLOSED.bits() | Readiness::WRITE_CLOSED.bits());

const NO_EVENT: epoll::Event = epoll::Event {
    flags: EventFlags::empty(),
    data: EventData::new_u64(0),
};

const ZERO: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// epoll_pwait takes 31 bits of milliseconds, 24 days.
const LONGEST_MILLIS: Duration = Duration::from_millis(i32::MAX as u64);

/// The kernel takes 63 bits of nanoseconds; a century is for ever.
const LONGEST_SECS: u64 = 100 * 365 * 86_400;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        let (here, there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        (here, there)
    }

    fn wait(poller: &mut Poller, timeout: Timeout) -> Vec<Event> {
        let mut events = Vec::new();
        let found = poller.wait(timeout, &mut events).unwrap();
        assert_eq!(found, events.len());
        events
    }

    #[test]
    fn reports_edges() {
        let mut poller = Poller::new().unwrap();
        let (mut here, mut there) = pair();
        poller.add(here.as_fd(), Token(7)).unwrap();
        let events = wait(&mut poller, Timeout::Now);
        assert_eq!(events[0].token, Token(7));
        assert_eq!(events[0].readiness, Readiness::WRITABLE);
        assert!(wait(&mut poller, Timeout::Now).is_empty());

        there.write_all(b"x").unwrap();
        let events = wait(&mut poller, Timeout::Never);
        assert!(events[0].readiness.contains(Readiness::READABLE));
        assert!(wait(&mut poller, Timeout::Now).is_empty());
        here.read_exact(&mut [0]).unwrap();

        drop(there);
        let events = wait(&mut poller, Timeout::Never);
        assert!(events[0].readiness.contains(Readiness::READ_CLOSED));
        assert!(events[0].readiness.contains(Readiness::WRITE_CLOSED));
    }

    #[test]
    fn removed_descriptors_are_silent() {
        let mut poller = Poller::new().unwrap();
        let (here, mut there) = pair();
        poller.add(here.as_fd(), Token(7)).unwrap();
        let again = poller.add(here.as_fd(), Token(8)).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        poller.remove(here.as_fd()).unwrap();
        there.write_all(b"x").unwrap();
        assert!(wait(&mut poller, Timeout::Now).is_empty());
        assert!(poller.remove(here.as_fd()).is_err());
    }

    #[test]
    fn delivers_in_batches() {
        let mut poller = Poller::new().unwrap();
        let pairs: Vec<_> = (0..BATCH + 10).map(|_| pair()).collect();
        for (token, (here, _)) in (0..).zip(&pairs) {
            poller.add(here.as_fd(), Token(token)).unwrap();
        }
        let mut tokens: Vec<_> = wait(&mut poller, Timeout::Now);
        assert_eq!(tokens.len(), BATCH);
        tokens.extend(wait(&mut poller, Timeout::Now));
        tokens.sort_by_key(|event| event.token.0);
        assert!((0..).zip(&tokens).all(|(i, event)| event.token == Token(i)));
        assert_eq!(tokens.len(), pairs.len());
    }

    #[test]
    fn waits_no_less_than_asked() {
        let mut poller = Poller::new().unwrap();
        for exact in [true, false] {
            poller.exact = exact;
            let start = Instant::now();
            assert!(wait(&mut poller, Timeout::After(Duration::from_micros(300))).is_empty());
            assert!(start.elapsed() >= Duration::from_micros(300));
        }
    }

    #[test]
    fn any_time_can_be_asked_for() {
        let mut poller = Poller::new().unwrap();
        let (here, _there) = pair();
        for exact in [true, false] {
            poller.exact = exact;
            poller.add(here.as_fd(), Token(1)).unwrap();
            assert_eq!(wait(&mut poller, Timeout::After(Duration::MAX)).len(), 1);
            poller.remove(here.as_fd()).unwrap();
        }
    }

    /// Prints what a wait costs that finds nothing.
    #[test]
    fn cost_of_a_wait() {
        let mut poller = Poller::new().unwrap();
        let mut events = Vec::new();
        let start = Instant::now();
        for _ in 0..10_000 {
            poller.wait(Timeout::Now, &mut events).unwrap();
        }
        println!("wait(Now) {:?}", start.elapsed() / 10_000);
    }
}
