//! A set of descriptors to wait for, by one of the mechanisms.

use std::env;
use std::io;
use std::os::fd::BorrowedFd;

use super::epoll::Epoll;
use super::io_uring::IoUring;
use super::poll::Poll;
use super::select::Select;
use super::{BATCH, Mechanism, Readiness, ReadyEvent, Timeout, Token, UnknownMechanism};

/// A set of descriptors to wait for, under the contract of [the module](super).
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

/// Does the same with whatever the poller is.
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
    /// An empty set, by the mechanism that the environment variable `SOFTCLOCK_EVENTS` names; else by epoll, or by poll
    /// where epoll is forbidden.
    ///
    /// Fails where the process has no descriptor left, or the variable's mechanism is unknown or does not work.
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

    /// An empty set, by this mechanism, which is tried by a wait.
    ///
    /// Fails where the kernel lacks it or a sandbox forbids it, and where the process has no descriptor left.
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

    /// By what it waits.
    pub fn mechanism(&self) -> Mechanism {
        match self.backend {
            Backend::IoUring(_) => Mechanism::IoUring,
            Backend::Epoll(_) => Mechanism::Epoll,
            Backend::Poll(_) => Mechanism::Poll,
            Backend::Select(_) => Mechanism::Select,
        }
    }

    /// Why [`new`](Self::new) did not take epoll, where that was its choice.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// Adds a descriptor. At most a system call or two, under 1 us.
    ///
    /// Fails with `AlreadyExists` if it is in the set, with `PermissionDenied` for files that are always ready, and
    /// with `Unsupported` where `select` cannot take a number so high.
    pub fn add(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        each!(&mut self.backend, poller => poller.add(fd, token, ALL))
    }

    /// Adds a descriptor, for reading only, whose file other pollers have too: of those that wait, the kernel tells one
    /// or some, not all (EPOLLEXCLUSIVE).
    ///
    /// Fails as [`add`](Self::add), and with `Unsupported` for all mechanisms but epoll.
    pub fn add_exclusive(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        match &mut self.backend {
            Backend::Epoll(epoll) => epoll.add_exclusive(fd, token),
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, EXCLUSIVE)),
        }
    }

    /// Adds a descriptor for reading only.
    pub(super) fn add_for_reading(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        each!(&mut self.backend, poller => poller.add(fd, token, Readiness::READABLE))
    }

    /// Removes a descriptor; `NotFound` if it is not in the set.
    pub fn remove(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        each!(&mut self.backend, poller => poller.remove(fd))
    }

    /// Says that a descriptor is about to be closed and has no duplicates: epoll then removes it by itself, and others
    /// do it now.
    pub fn remove_closing(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self.backend {
            Backend::Epoll(_) => Ok(()),
            _ => self.remove(fd),
        }
    }

    /// Says that the descriptor was found not to be READABLE or not to be WRITABLE, so that the next event is an edge.
    /// Nothing where the kernel reports edges.
    #[inline]
    pub fn rearm(&mut self, fd: BorrowedFd<'_>, readiness: Readiness) {
        match &mut self.backend {
            Backend::IoUring(_) | Backend::Epoll(_) => {}
            Backend::Poll(poll) => poll.rearm(fd, readiness),
            Backend::Select(select) => select.rearm(fd, readiness),
        }
    }

    /// Whether a wait may find something. io_uring knows by a look at memory; with the others only a wait can tell.
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
            // A wait does a bounded part of the ring's pending work.
            Backend::IoUring(ring) => ring.is_pending(),
            Backend::Epoll(_) | Backend::Poll(_) | Backend::Select(_) => found == BATCH,
        }
    }

    /// Waits for events and puts them in `out` in place of what was there; returns their number, at most [`BATCH`].
    ///
    /// Interrupted by a signal it returns 0 at once, whether or not something is ready. Allocates only if `out` has
    /// room for fewer than [`BATCH`].
    pub fn wait(&mut self, timeout: Timeout, out: &mut Vec<ReadyEvent>) -> io::Result<usize> {
        out.clear();
        out.reserve(BATCH);
        match each!(&mut self.backend, poller => poller.wait(timeout, out)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            result => result.map(|()| out.len()),
        }
    }
}

/// What [`Poller::new`] tries. io_uring costs a loaded server no less than epoll, and is often forbidden.
const PREFERRED: [Mechanism; 2] = [Mechanism::Epoll, Mechanism::Poll];

/// The environment variable that names a mechanism.
const VARIABLE: &str = "SOFTCLOCK_EVENTS";

const EXCLUSIVE: &str = "only epoll can tell one of several threads";

const ALL: Readiness = Readiness::from_bits(
    Readiness::READABLE.bits()
        | Readiness::WRITABLE.bits()
        | Readiness::READ_CLOSED.bits()
        | Readiness::PRIORITY.bits(),
);
