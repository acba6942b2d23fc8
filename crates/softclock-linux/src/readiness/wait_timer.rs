//! What ends long waits that events keep interrupting.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::{LONGEST, Poller, Readiness, Token};

/// A timer that ends the waits of a [`Poller`], however many there are until it is due.
///
/// A wait with a time of its own has the kernel set a timer and cancel it, each of which may program the processor's clock:
/// some 1 us a wait in a virtual machine. This one is set once.
#[derive(Debug)]
pub struct WaitTimer(OwnedFd);

impl WaitTimer {
    /// A timer whose events carry [`Token::TIMER`]. Fails where the process has no descriptor left.
    ///
    /// It stays in the poller's set as long as both last.
    pub fn new(poller: &mut Poller) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timerfd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        poller.add_for_reading(timerfd.as_fd(), Token::TIMER)?;
        Ok(Self(timerfd))
    }

    /// Has the wait that is under way after `time` return with an event, in place of what was set before, of which an
    /// event may still come. One system call.
    pub fn set(&self, time: Duration, poller: &mut Poller) {
        let once = Itimerspec {
            it_interval: Timespec::default(),
            // Zero would switch it off.
            it_value: Timespec::try_from(time.clamp(SHORTEST, LONGEST)).expect("a century fits"),
        };
        let result = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
        debug_assert!(result.is_ok(), "{result:?}");
        // It has nothing to read until it is due, so it need not be read to be waited for again.
        poller.rearm(self.0.as_fd(), Readiness::READABLE);
    }
}

const SHORTEST: Duration = Duration::from_nanos(1);
