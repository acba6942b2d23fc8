//! How another thread ends a wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::{Poller, Token};

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
    pub fn new(poller: &Poller) -> io::Result<Self> {
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
    pub fn drain(&self) {
        let mut count = [0; 8];
        let result = rustix::io::retry_on_intr(|| rustix::io::read(&self.0.eventfd, &mut count));
        debug_assert!(matches!(result, Ok(8) | Err(Errno::AGAIN)), "{result:?}");
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;
    use std::time::Duration;

    use super::super::Timeout;
    use super::*;

    #[test]
    fn ends_a_wait() {
        let mut poller = Poller::new().unwrap();
        let wakeup = Wakeup::new(&poller).unwrap();
        let waker = wakeup.clone();
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            waker.wake();
            waker.wake();
        });
        let mut events = Vec::new();
        poller.wait(Timeout::Never, &mut events).unwrap();
        assert_eq!(events[0].token, Token::WAKEUP);
        thread.join().unwrap();
        assert!(wakeup.is_raised());
        wakeup.drain();
        assert!(!wakeup.is_raised());
        assert_eq!(poller.wait(Timeout::Now, &mut events).unwrap(), 0);
    }

    #[test]
    fn no_wake_up_is_lost() {
        const EACH: u32 = 5_000;
        let mut poller = Poller::new().unwrap();
        let wakeup = Wakeup::new(&poller).unwrap();
        let sent = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (sent, wakeup) = (sent.clone(), wakeup.clone());
                thread::spawn(move || {
                    for _ in 0..EACH {
                        sent.fetch_add(1, Ordering::Relaxed);
                        wakeup.wake();
                    }
                })
            })
            .collect();
        let mut events = Vec::new();
        while sent.load(Ordering::Relaxed) < 2 * EACH {
            let limit = Timeout::After(Duration::from_secs(20));
            assert_ne!(poller.wait(limit, &mut events).unwrap(), 0, "lost");
            wakeup.drain();
        }
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
