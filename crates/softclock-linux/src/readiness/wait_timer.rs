//! A timer that ends waits, for programs whose waits are mostly ended by events.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::{Poller, Readiness, TimerFd, Token};

/// A timer that ends a wait of a [`Poller`] when it is due, no matter how many waits there are until then.
///
/// A wait with [`Timeout::After`](super::Timeout::After) makes the kernel set a timer, and cancel it when an event
/// comes first. Both may program the processor's timer, which costs about 1 us per wait in a virtual machine. This
/// timer is set only once.
#[derive(Debug)]
pub struct WaitTimer(TimerFd);

impl WaitTimer {
    /// Creates a timer that is not set, and adds it to `poller`. Its events carry [`Token::TIMER`].
    ///
    /// It stays in the poller's set until either is dropped.
    ///
    /// # Errors
    /// Returns EMFILE or ENFILE if descriptors have run out.
    pub fn new(poller: &mut Poller) -> io::Result<Self> {
        let timer = TimerFd::new()?;
        poller.add_for_reading(timer.as_fd(), Token::TIMER)?;
        Ok(Self(timer))
    }

    /// Sets the timer: the wait that is in progress after `time` returns an event. Replaces the time that was set
    /// before, whose event may still come. One system call.
    pub fn set(&self, time: Duration, poller: &mut Poller) {
        self.0.set(time);
        // Setting it has discarded an expiration, so the timer has nothing to read until it is due.
        poller.rearm(self.0.as_fd(), Readiness::READABLE);
    }
}
