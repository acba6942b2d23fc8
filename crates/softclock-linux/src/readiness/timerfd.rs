//! A timer as a descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::LONGEST;

/// A timerfd(2) of CLOCK_MONOTONIC: a descriptor that becomes readable when the timer expires.
///
/// It stays readable until the timer is set again or [disarmed](Self::disarm); it need not be read.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// Returns EMFILE or ENFILE if descriptors have run out.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Sets the timer to expire once, after `time`, at least 1 ns. Replaces the time that was set before, and discards
    /// an expiration. One system call.
    pub fn set(&self, time: Duration) {
        // Zero would disarm the timer.
        self.set_to(time.clamp(SHORTEST, LONGEST));
    }

    /// Stops the timer, and discards an expiration. One system call.
    pub fn disarm(&self) {
        self.set_to(Duration::ZERO);
    }

    fn set_to(&self, time: Duration) {
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(time).expect("a century fits"),
        };
        let result = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
        debug_assert!(result.is_ok(), "{result:?}");
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The shortest time that arms the timer.
const SHORTEST: Duration = Duration::from_nanos(1);
