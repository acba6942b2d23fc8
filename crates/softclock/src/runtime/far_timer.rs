//! A kernel timer for waits that events keep interrupting.
//!
//! A server under moderate load waits thousands of times a second, each time until the next timeout of some
//! connection, which is far away and mostly the same as before. Passing a time to each wait costs more than finding
//! the events. So once events have interrupted a wait, this timer is set for its end, and further waits until then
//! have no time limit. Waits for exact events do not use it, because the kernel ends a wait at its own time limit
//! slightly sooner.

use std::io;

use softclock_core::Instant;
use softclock_linux::readiness::{Poller, Timeout, WaitTimer};

pub(crate) struct FarTimer {
    timer: WaitTimer,
    /// The time at which the timer will end a wait; the far future if it is not set. A time in the past counts as not
    /// set, since the timer's event may have been lost when a handler panicked.
    set_for: Instant,
    /// The intended end of the last wait that events have ended early.
    interrupted: Option<Instant>,
}

impl FarTimer {
    pub(crate) fn new(poller: &mut Poller) -> io::Result<Self> {
        Ok(Self {
            timer: WaitTimer::new(poller)?,
            set_for: Instant::FAR_FUTURE,
            interrupted: None,
        })
    }

    /// Returns the time limit of a wait from `now` until at most `until`, setting the timer if that is cheaper.
    pub(crate) fn timeout(&mut self, now: Instant, until: Instant, poller: &mut Poller) -> Timeout {
        let is_set = now < self.set_for && self.set_for <= until;
        if !is_set {
            // The timer pays off only from the second wait for the same instant on.
            if self.interrupted != Some(until) {
                return Timeout::After(until.since(now));
            }
            self.timer.set(until.since(now), poller);
            self.set_for = until;
        }
        Timeout::Never
    }

    /// Records that events have ended a wait that was to last until `until`.
    pub(crate) fn on_interrupted(&mut self, until: Instant) {
        self.interrupted = Some(until);
    }

    /// Records that the timer's own event has arrived.
    pub(crate) fn on_fired(&mut self) {
        self.set_for = Instant::FAR_FUTURE;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use softclock_linux::readiness::Token;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    fn after(ms: u64) -> Timeout {
        Timeout::After(Duration::from_millis(ms))
    }

    #[test]
    fn a_wait_that_was_interrupted_has_no_time_of_its_own() {
        let mut poller = Poller::new().unwrap();
        let mut timer = FarTimer::new(&mut poller).unwrap();
        let mut timeout =
            |timer: &mut FarTimer, now, until| timer.timeout(at(now), at(until), &mut poller);
        assert_eq!(timeout(&mut timer, 0, 3), after(3));
        timer.on_interrupted(at(3));
        assert_eq!(timeout(&mut timer, 1, 3), Timeout::Never);
        assert_eq!(timeout(&mut timer, 2, 9), Timeout::Never, "it ends sooner");
        assert_eq!(timeout(&mut timer, 2, 3), Timeout::Never);
        assert_eq!(timeout(&mut timer, 0, 2), after(2), "it would end too late");
        timer.on_fired();
        assert_eq!(timeout(&mut timer, 4, 9), after(5));
        let mut events = Vec::new();
        poller.wait(Timeout::Never, &mut events).unwrap();
        assert_eq!(events[0].token, Token::TIMER);
    }

    #[test]
    fn an_event_that_was_lost_is_not_waited_for() {
        let mut poller = Poller::new().unwrap();
        let mut timer = FarTimer::new(&mut poller).unwrap();
        timer.on_interrupted(at(3));
        assert_eq!(timer.timeout(at(1), at(3), &mut poller), Timeout::Never);
        assert_eq!(timer.timeout(at(3), at(9), &mut poller), after(6));
    }
}
