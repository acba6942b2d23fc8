//! A hardware timer that sends a signal for each event, for comparison with soft timers.

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use softclock_core::Instant;
use softclock_core::time::saturating_ns;

use super::handler::{self, PLAIN_TIMER, Plain};
use super::posix_timer::{PosixTimer, TimerClock};
use super::safe::AlarmSafe;

/// A POSIX timer whose every signal runs a handler at once.
///
/// It is the hardware timer of *Soft Timers*, Tables I and II. Unlike [`Alarms`](super::Alarms) it ignores the
/// runtime's sections and keeps no distance between signals: with a period of some tens of microseconds, its thread has
/// no time for anything else.
#[derive(Debug)]
pub struct SignalTimer {
    timer: PosixTimer,
    /// Not `Send`: the timer signals this thread.
    _of_this_thread: PhantomData<*const ()>,
}

impl SignalTimer {
    /// Makes `handler` fire every `period`, in signals to the calling thread, until the timer is dropped.
    ///
    /// [`Firing::due`](super::Firing::due) is the current time, because a signal does not carry its due time.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if the thread has a `SignalTimer`; otherwise the same errors as
    /// [`Alarms::new`](super::Alarms::new).
    pub fn start(handler: &'static dyn AlarmSafe, period: Duration) -> io::Result<Self> {
        Self::start_until(handler, period, Instant::FAR_FUTURE)
    }

    /// Like [`start`](Self::start), but stops at `until` (of CLOCK_MONOTONIC). Use it for short periods, whose signals
    /// may leave the thread no time to drop the timer.
    ///
    /// # Errors
    /// The same as for [`start`](Self::start).
    pub fn start_until(
        handler: &'static dyn AlarmSafe,
        period: Duration,
        until: Instant,
    ) -> io::Result<Self> {
        let started = Self::attach(handler, None, until)?;
        started.timer.arm_each(saturating_ns(period))?;
        Ok(started)
    }

    /// Like [`start_until`](Self::start_until), but each signal comes `delay` after the handler's previous firing: the
    /// signal handler sets the timer again each time, by a system call.
    ///
    /// # Errors
    /// The same as for [`start`](Self::start).
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
        // Dropping this value detaches the handler if the caller fails to arm the timer.
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
