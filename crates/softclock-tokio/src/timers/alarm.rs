//! The kernel timer for which the thread waits. Any thread can set it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use softclock_core::Instant;

/// A timer of the kernel (`timerfd`).
///
/// The thread that schedules an event sets the timer itself, so the waiting thread is not woken to do it. The timer
/// slack of threads does not apply to it.
#[derive(Debug)]
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    /// Creates a timer that is not set.
    pub(super) fn new() -> io::Result<Self> {
        let timerfd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        Ok(Self(timerfd))
    }

    /// Sets the timer to `at`, in nanoseconds of CLOCK_MONOTONIC, or to never for [`Instant::FAR_FUTURE`]. Replaces the
    /// time that was set before. One system call.
    pub(super) fn set(&self, at: Instant) {
        let value = match at {
            // Zero stops the timer.
            Instant::FAR_FUTURE => Duration::ZERO,
            at => Duration::from_nanos(at.as_ns().clamp(1, i64::MAX as u64)),
        };
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(value).expect("292 years fit"),
        };
        let result = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &once);
        debug_assert!(result.is_ok(), "{result:?}");
    }

    /// Blocks until the time that is set has come. Returns early if a signal arrives.
    pub(super) fn wait(&self) {
        let result = rustix::io::read(&self.0, &mut [0; 8]);
        debug_assert!(
            matches!(result, Ok(8) | Err(rustix::io::Errno::INTR)),
            "{result:?}"
        );
    }
}
