//! A hardware timer for each event: what soft timers save, for comparison.

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use softclock_core::Instant;
use softclock_core::time::saturating_ns;

use super::handler::{self, PLAIN_TIMER, Plain};
use super::posix_timer::{PosixTimer, TimerClock};
use super::safe::AlarmSafe;

/// A POSIX timer whose signals run a handler, whatever the thread is doing and however often they come.
///
/// It is the hardware timer of *Soft Timers*, Tables I and II: nothing keeps its signals apart or out of the runtime's
/// sections, and a period of some tens of microseconds leaves its thread no time for anything else.
#[derive(Debug)]
pub struct SignalTimer {
    timer: PosixTimer,
    /// Not `Send`: the timer signals this thread.
    _of_this_thread: PhantomData<*const ()>,
}

impl SignalTimer {
    /// Has `handler` fire each `period` in signals to the calling thread, until the timer is dropped.
    ///
    /// It is told the current time as the due time. Fails as [`Alarms::new`](super::Alarms::new) does; a thread has one
    /// such timer.
    pub fn start(handler: &'static dyn AlarmSafe, period: Duration) -> io::Result<Self> {
        Self::start_until(handler, period, Instant::FAR_FUTURE)
    }

    /// As [`start`](Self::start), and silent from `until` (of CLOCK_MONOTONIC) on: a thread that has no time left to
    /// stop the timer goes on then.
    pub fn start_until(
        handler: &'static dyn AlarmSafe,
        period: Duration,
        until: Instant,
    ) -> io::Result<Self> {
        let started = Self::attach(handler, None, until)?;
        started.timer.arm_each(saturating_ns(period))?;
        Ok(started)
    }

    /// As [`start_until`](Self::start_until), each signal `delay` after the handler's previous firing: the handler sets
    /// the timer anew, with a system call.
    pub fn start_after(
        handler: &'static dyn AlarmSafe,
        delay: Duration,
        until: Instant,
    ) -> io::Result<Self> {
        let delay_ns = saturating_ns(delay);
        let started = Self::attach(handler, Some(delay_ns), until)?;
        started.timer.silencer().arm_after(delay_ns)?;
        Ok(started)
    }

    fn attach(
        handler: &'static dyn AlarmSafe,
        again_ns: Option<u64>,
        until: Instant,
    ) -> io::Result<Self> {
        let signal = handler::install()?;
        let timer = PosixTimer::new(TimerClock::Monotonic, signal, PLAIN_TIMER)?;
        handler::attach_plain(Plain {
            handler,
            timer: timer.silencer(),
            again_ns,
            until,
        })?;
        // From here on drop takes care.
        Ok(Self {
            timer,
            _of_this_thread: PhantomData,
        })
    }
}

impl Drop for SignalTimer {
    fn drop(&mut self) {
        handler::detach_plain();
    }
}
