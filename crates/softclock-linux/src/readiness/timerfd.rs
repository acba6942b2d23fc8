//! A timer as a descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use softclock_core::Instant;

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
        self.set_to(time.clamp(SHORTEST, LONGEST), TimerfdTimerFlags::empty());
    }

    /// Sets the timer to expire once, at a time of CLOCK_MONOTONIC; at once if that has passed.
    /// Replaces the time that was set before, and discards an expiration. One system call.
    pub fn set_at(&self, at: Instant) {
        let at = Duration::from_nanos(at.as_ns()).max(SHORTEST);
        self.set_to(at, TimerfdTimerFlags::ABSTIME);
    }

    /// Stops the timer, and discards an expiration. One system call.
    pub fn disarm(&self) {
        self.set_to(Duration::ZERO, TimerfdTimerFlags::empty());
    }

    fn set_to(&self, time: Duration, flags: TimerfdTimerFlags) {
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(time).expect("a century fits"),
        };
        let result = timerfd_settime(&self.0, flags, &once);
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
