//! The kernel timer for waits that events keep interrupting.
//!
//! A server in moderate use waits thousands of times a second, each time until the next timeout of some connection, which is
//! far away and the same as before. A time for each wait costs more than finding the events does; so once events have
//! interrupted a wait, a timer of its own is set for that instant, and waits until then have none. Timers that somebody
//! minds the exactness of do without: the kernel ends a wait for its own time a little sooner.

use softclock_core::Instant;
use softclock_linux::events::{Poller, Timeout, WaitTimer};

pub(crate) struct FarTimer {
    /// Made when first needed.
    timer: Option<WaitTimer>,
    /// When it ends a wait, the far future if it does not.
    set_for: Instant,
    /// Until when the last wait was to be that events have ended.
    interrupted: Option<Instant>,
}

impl FarTimer {
    pub(crate) fn new() -> Self {
        Self {
            timer: None,
            set_for: Instant::FAR_FUTURE,
            interrupted: None,
        }
    }

    /// How to wait from `now` until `until`, or less.
    pub(crate) fn timeout(&mut self, now: Instant, until: Instant, poller: &mut Poller) -> Timeout {
        if self.set_for > until
            && !(self.interrupted == Some(until) && self.set(now, until, poller))
        {
            return Timeout::After(until.since(now));
        }
        Timeout::Never
    }

    /// Fails where there is no descriptor left, or none that the poller can take.
    fn set(&mut self, now: Instant, until: Instant, poller: &mut Poller) -> bool {
        if self.timer.is_none() {
            self.timer = WaitTimer::new(poller).ok();
        }
        let Some(timer) = &self.timer else {
            return false;
        };
        timer.set(until.since(now), poller);
        self.set_for = until;
        true
    }

    /// Events have ended a wait that was to last until then.
    pub(crate) fn on_interrupted(&mut self, until: Instant) {
        self.interrupted = Some(until);
    }

    /// Its own event has arrived.
    pub(crate) fn on_fired(&mut self) {
        self.set_for = Instant::FAR_FUTURE;
    }
}
