//! Wakes a waiting thread from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::{Poller, Readiness, Token};

/// Wakes the thread that waits in a [`Poller`]. Clones wake the same thread.
#[derive(Clone, Debug)]
pub struct Wakeup(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    eventfd: OwnedFd,
    /// Set by the first call of [`Wakeup::wake`] since the last [`Wakeup::drain`], so that the others need no system
    /// call.
    raised: AtomicBool,
}

impl Wakeup {
    /// Creates a wake-up, and adds it to `poller`. Its events carry [`Token::WAKEUP`].
    ///
    /// It stays in the poller's set until either is dropped.
    ///
    /// # Errors
    /// Returns EMFILE or ENFILE if descriptors have run out.
    pub fn new(poller: &mut Poller) -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        // For reading only. Otherwise each drain would cause an event, because the eventfd becomes writable again.
        poller.add_for_reading(eventfd.as_fd(), Token::WAKEUP)?;
        Ok(Self(Arc::new(Inner {
            eventfd,
            raised: AtomicBool::new(false),
        })))
    }

    /// Makes the current or the next wait return. All calls between two drains make one system call together.
    ///
    /// Memory that was written before this call is visible to the woken thread after its [`drain`](Self::drain).
    pub fn wake(&self) {
        if self.0.raised.swap(true, Ordering::AcqRel) {
            return;
        }
        let result = rustix::io::retry_on_intr(|| rustix::io::write(&self.0.eventfd, &ONE));
        // EAGAIN means that the counter is full, which wakes the thread too. A valid eventfd has no other errors.
        debug_assert!(matches!(result, Ok(8) | Err(Errno::AGAIN)), "{result:?}");
    }

    /// Resets the wake-up. Call it when its event arrives, *before* looking for the work that other threads have left:
    /// work that arrives later causes another event.
    pub fn drain(&self, poller: &mut Poller) {
        let mut count = [0; 8];
        let result = rustix::io::retry_on_intr(|| rustix::io::read(&self.0.eventfd, &mut count));
        debug_assert!(matches!(result, Ok(8) | Err(Errno::AGAIN)), "{result:?}");
        poller.rearm(self.as_fd(), Readiness::READABLE);
        // Only after the read. A waker that finds the flag set makes no system call, and relies on this swap, which
        // comes later, to make its memory visible. The other way round, the read could consume the event of a later
        // waker.
        self.0.raised.swap(false, Ordering::AcqRel);
    }

    /// Returns whether [`wake`](Self::wake) was called since the last drain. Costs a memory read.
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
