//! A set of descriptors that waits by one of the mechanisms.

use std::env;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::epoll::Epoll;
use super::io_uring::IoUring;
use super::poll::Poll;
use super::select::Select;
use super::{BATCH, Mechanism, Readiness, ReadyEvent, Timeout, Token, UnknownMechanism};
use crate::busy_poll::BusyPoll;

/// A set of descriptors to wait for, under the contract of [the module](super).
///
/// # Example
/// ```
/// use std::io::Write;
/// use std::os::fd::AsFd;
/// use std::os::unix::net::UnixStream;
///
/// use softclock_linux::readiness::{Poller, Readiness, Timeout, Token};
///
/// # fn main() -> std::io::Result<()> {
/// let (here, mut there) = UnixStream::pair()?;
/// here.set_nonblocking(true)?;
/// let mut poller = Poller::new()?;
/// poller.add(here.as_fd(), Token(7))?;
/// there.write_all(b"hello")?;
///
/// let mut events = Vec::new();
/// poller.wait(Timeout::Never, &mut events)?;
/// assert_eq!(events[0].token, Token(7));
/// assert!(events[0].readiness.contains(Readiness::READABLE));
///
/// // Before it is closed:
/// poller.remove_closing(here.as_fd())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Poller {
    backend: Backend,
    fallback_reason: Option<String>,
}

#[derive(Debug)]
enum Backend {
    IoUring(Box<IoUring>),
    Epoll(Epoll),
    Poll(Poll),
    Select(Select),
}

impl Backend {
    fn new(mechanism: Mechanism) -> io::Result<Self> {
        match mechanism {
            Mechanism::IoUring => IoUring::new().map(|ring| Self::IoUring(Box::new(ring))),
            Mechanism::Epoll => Epoll::new().map(Self::Epoll),
            Mechanism::Poll => Poll::new().map(Self::Poll),
            Mechanism::Select => Select::new().map(Self::Select),
        }
    }
}

/// Evaluates an expression for the mechanism that the poller uses.
macro_rules! each {
    ($poller:expr, $each:ident => $do:expr) => {
        match $poller {
            Backend::IoUring($each) => $do,
            Backend::Epoll($each) => $do,
            Backend::Poll($each) => $do,
            Backend::Select($each) => $do,
        }
    };
}

impl Poller {
    /// Creates an empty set that waits by the mechanism that the environment variable `SOFTCLOCK_EVENTS` names. Without
    /// the variable, uses epoll, or poll if epoll does not work.
    ///
    /// # Errors
    /// Returns EMFILE or ENFILE if descriptors have run out, `InvalidInput` if the variable names an unknown mechanism,
    /// and the error of its first wait if that mechanism does not work.
    pub fn new() -> io::Result<Self> {
        if let Some(name) = env::var_os(VARIABLE) {
            let mechanism = name.to_str().and_then(|name| name.parse().ok());
            let mechanism = mechanism.ok_or_else(|| {
                let message = format!("{VARIABLE} is {name:?}: {UnknownMechanism}");
                io::Error::new(io::ErrorKind::InvalidInput, message)
            })?;
            return Self::with_mechanism(mechanism);
        }
        let [first, second] = PREFERRED;
        Self::with_mechanism(first).or_else(|reason| {
            let mut poller = Self::with_mechanism(second)?;
            poller.fallback_reason = Some(reason.to_string());
            Ok(poller)
        })
    }

    /// Creates an empty set that waits by this mechanism, and tries the mechanism by a wait.
    ///
    /// # Errors
    /// Returns the error of creating or trying it: the kernel lacks the mechanism, a sandbox forbids it, or descriptors
    /// have run out.
    pub fn with_mechanism(mechanism: Mechanism) -> io::Result<Self> {
        let backend = loop {
            match Backend::new(mechanism) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        let backend = backend.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot use {mechanism}: {error}"))
        })?;
        Ok(Self {
            backend,
            fallback_reason: None,
        })
    }

    /// The mechanism by which this set waits.
    pub fn mechanism(&self) -> Mechanism {
        match self.backend {
            Backend::IoUring(_) => Mechanism::IoUring,
            Backend::Epoll(_) => Mechanism::Epoll,
            Backend::Poll(_) => Mechanism::Poll,
            Backend::Select(_) => Mechanism::Select,
        }
    }

    /// The error of epoll, if [`new`](Self::new) fell back to poll.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// Returns a new descriptor that is readable while a wait would find events, to be watched by another poller.
    ///
    /// # Errors
    /// Returns `Unsupported` for all mechanisms except epoll, and EMFILE if descriptors have run out.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        match &self.backend {
            Backend::Epoll(epoll) => epoll.descriptor(),
            // A ring that posts completions only when its thread enters it does not wake those that poll it.
            Backend::IoUring(_) | Backend::Poll(_) | Backend::Select(_) => {
                let mechanism = self.mechanism();
                let message = format!("{mechanism} has no descriptor to wait for: use epoll");
                Err(io::Error::new(io::ErrorKind::Unsupported, message))
            }
        }
    }

    /// Adds a descriptor; its events carry `token`. Makes a few system calls at most, under 1 us for sockets and pipes.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if it is in the set, `PermissionDenied` for files that are always ready, and
    /// `Unsupported` for descriptors above 1023 with `select`.
    pub fn add(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        each!(&mut self.backend, poller => poller.add(fd, token, ALL))
    }

    /// Adds a descriptor, for reading only, whose file is in other pollers too, such as a listening socket that several
    /// threads share. At an event the kernel wakes one or some of the waiting pollers, not all (EPOLLEXCLUSIVE).
    ///
    /// # Errors
    /// The same as for [`add`](Self::add); `Unsupported` for all mechanisms except epoll.
    pub fn add_exclusive(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        match &mut self.backend {
            Backend::Epoll(epoll) => epoll.add_exclusive(fd, token),
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, EXCLUSIVE)),
        }
    }

    /// Adds a descriptor for reading only, to the end: room to write is not reported, and ends no wait.
    ///
    /// # Errors
    /// The same as for [`add`](Self::add).
    pub fn add_for_reading(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        // An edge tells of data and of the end that came with it, or else a reader that takes all data waits for the
        // end. It also tells of urgent data, before which a read ends with more behind it.
        let interest = Readiness::READABLE | Readiness::READ_CLOSED | Readiness::PRIORITY;
        each!(&mut self.backend, poller => poller.add(fd, token, interest))
    }

    /// Removes a descriptor. Returns `NotFound` if it is not in the set.
    pub fn remove(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        each!(&mut self.backend, poller => poller.remove(fd))
    }

    /// Removes a descriptor that is about to be closed and has no duplicates. Costs nothing with epoll, which removes
    /// it when it is closed.
    pub fn remove_closing(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self.backend {
            Backend::Epoll(_) => Ok(()),
            _ => self.remove(fd),
        }
    }

    /// Informs the poller that the descriptor is no longer READABLE or WRITABLE: a read or write returned EAGAIN or a
    /// short count. Required before these conditions are reported again. Does nothing if the kernel reports edges.
    #[inline]
    pub fn rearm(&mut self, fd: BorrowedFd<'_>, readiness: Readiness) {
        match &mut self.backend {
            Backend::IoUring(_) | Backend::Epoll(_) => {}
            Backend::Poll(poll) => poll.rearm(fd, readiness),
            Backend::Select(select) => select.rearm(fd, readiness),
        }
    }

    /// Returns whether a wait may find events. With io_uring this is a check of shared memory; with the others only a
    /// wait finds out, so it is always true.
    #[inline]
    pub fn is_pending(&mut self) -> bool {
        match &mut self.backend {
            Backend::IoUring(ring) => ring.is_pending(),
            Backend::Epoll(_) | Backend::Poll(_) | Backend::Select(_) => true,
        }
    }

    /// Returns whether a wait that found this many events may have left others that were ready when it began.
    pub fn may_have_left(&mut self, found: usize) -> bool {
        match &mut self.backend {
            // Each wait does a bounded part of the ring's pending work, so it may return few events and leave others.
            Backend::IoUring(ring) => ring.is_pending(),
            Backend::Epoll(_) | Backend::Poll(_) | Backend::Select(_) => found == BATCH,
        }
    }

    /// Makes waits poll the devices of the set's sockets before they sleep, or turns that off again; see
    /// [`busy_poll`](crate::busy_poll). Ends with the set. With epoll, a wait polls the device of the socket that was
    /// ready last; with io_uring, those of all sockets.
    ///
    /// # Errors
    /// `Unsupported` for kernels before 6.9, and for poll and select.
    pub fn set_busy_poll(&mut self, to: BusyPoll) -> io::Result<()> {
        match &self.backend {
            Backend::IoUring(ring) => ring.set_busy_poll(to),
            Backend::Epoll(epoll) => epoll.set_busy_poll(to),
            Backend::Poll(_) | Backend::Select(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Waits for events, replaces the content of `out` by them, and returns their number, at most [`BATCH`].
    ///
    /// Returns 0 at once if a signal interrupts the wait, even if descriptors are ready. Allocates only if the capacity
    /// of `out` is below [`BATCH`].
    ///
    /// # Errors
    /// Returns the errors of the mechanism's system call, such as ENOMEM.
    pub fn wait(&mut self, timeout: Timeout, out: &mut Vec<ReadyEvent>) -> io::Result<usize> {
        out.clear();
        out.reserve(BATCH);
        match each!(&mut self.backend, poller => poller.wait(timeout, out)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            result => result.map(|()| out.len()),
        }
    }
}

/// The mechanisms that [`Poller::new`] tries. Not io_uring: it costs a loaded server no less than epoll, and is often
/// forbidden.
const PREFERRED: [Mechanism; 2] = [Mechanism::Epoll, Mechanism::Poll];

/// The environment variable that names a mechanism.
const VARIABLE: &str = "SOFTCLOCK_EVENTS";

const EXCLUSIVE: &str = "only epoll can wake one of several pollers that share a file";

/// The conditions of [`Poller::add`].
const ALL: Readiness = Readiness::from_bits(
    Readiness::READABLE.bits()
        | Readiness::WRITABLE.bits()
        | Readiness::READ_CLOSED.bits()
        | Readiness::PRIORITY.bits(),
);
