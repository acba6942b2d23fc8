//! How another thread ends a wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::{Poller, Readiness, Token};

/// Wakes a thread that waits in a [`Poller`]. Clones wake the same one.
#[derive(Clone, Debug)]
pub struct Wakeup(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    eventfd: OwnedFd,
    /// Set by the first waker since the last [`Wakeup::drain`]; the others need no system call.
    raised: AtomicBool,
}

impl Wakeup {
    /// A wake-up whose events carry [`Token::WAKEUP`]. Fails where the process has no descriptor left.
    ///
    /// It stays in the poller's set as long as both last.
    pub fn new(poller: &mut Poller) -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        // For reading only, else each drain would be an event: there is room to write again.
        poller.add_for_reading(eventfd.as_fd(), Token::WAKEUP)?;
        Ok(Self(Arc::new(Inner {
            eventfd,
            raised: AtomicBool::new(false),
        })))
    }

    /// Makes the current or the next wait return. One system call for all wakers between two drains.
    ///
    /// What was written before is seen by the woken thread after its [`drain`](Self::drain).
    pub fn wake(&self) {
        if self.0.raised.swap(true, Ordering::AcqRel) {
            return;
        }
        let result = rustix::io::retry_on_intr(|| rustix::io::write(&self.0.eventfd, &ONE));
        // A full counter (EAGAIN) wakes as well; nothing else can befall a valid eventfd.
        debug_assert!(matches!(result, Ok(8) | Err(Errno::AGAIN)), "{result:?}");
    }

    /// Takes the wake-up back. To be called when its event arrives, *before* looking for what the wakers left.
    pub fn drain(&self, poller: &mut Poller) {
        let mut count = [0; 8];
        let result = rustix::io::retry_on_intr(|| rustix::io::read(&self.0.eventfd, &mut count));
        debug_assert!(matches!(result, Ok(8) | Err(Errno::AGAIN)), "{result:?}");
        poller.rearm(self.as_fd(), Readiness::READABLE);
        // Only after the read: a waker that sees the mark up relies on a drain that is still to end.
        self.0.raised.swap(false, Ordering::AcqRel);
    }

    /// Whether someone called [`wake`](Self::wake) since the last drain: a memory read.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::Acquire)
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.eventfd.as_fd()
    }
}

const ONE: [u8; 8] = 1u64.to_ne_bytes();
