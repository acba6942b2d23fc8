//! A runtime inside another loop, which waits for the runtime's descriptor and calls [`Inner::turn`].
//!
//! While the outer loop waits, the runtime is blocked: other threads wake it through its eventfd, which makes its
//! descriptor readable, and no alarm interrupts the wait.

use std::time::Duration;

use softclock_core::Clock;
use softclock_core::signalling::Wait;
use softclock_core::time::saturating_ns;
use softclock_linux::clock::cpu_time_ns;

use super::inner::Inner;

impl Inner {
    /// Begins a wait of the outer loop, and returns its longest time; zero if the runtime has work.
    pub(super) fn before_outer_wait(&self) -> Option<Duration> {
        self.end_outer_wait();
        // The last turn may have left some, and no descriptor tells of them.
        self.look_at_memory(&mut Vec::new());
        let look = match self.before_wait() {
            // A task was woken.
            Wait::Refused => return Some(Duration::ZERO),
            Wait::Until(look) => Some(look),
            Wait::UntilInterrupt => None,
        };
        // Announced before the last look at the work: another thread that posts later wakes the outer loop.
        let has_work = self.has_work(false) || self.may_have_left.get();
        if has_work || !self.mailbox.announce_block() {
            return Some(Duration::ZERO);
        }
        let now = self.clock.now();
        let Some(rest) = self.next_rest(now, look) else {
            self.mailbox.end_block();
            return Some(Duration::ZERO);
        };
        self.outer_wait.set(Some(now));
        self.alarms.disarm_for_idle();
        rest.until.map(|until| until.since(now))
    }

    /// Ends the wait of the outer loop, if there was one.
    pub(super) fn end_outer_wait(&self) {
        let Some(since) = self.outer_wait.take() else {
            return;
        };
        self.mailbox.end_block();
        self.clock.resync_after_wait();
        let now = self.clock.now();
        self.kernel_events.after_wait(now, false);
        let waited = saturating_ns(now.since(since));
        self.run_time.borrow_mut().blocked(waited);
    }

    /// Continues after a time in which the thread may have done anything else.
    pub(super) fn resume(&self) {
        self.end_outer_wait();
        let mut run_time = self.run_time.borrow_mut();
        run_time.resume(self.clock.now(), cpu_time_ns());
    }

    /// Takes a turn of at most this time, after a wait of the outer loop.
    pub(super) fn turn_within(&self, longest: Option<Duration>) {
        self.end_outer_wait();
        // An outer loop by edges is not told again of the events that have ended its wait: look, however recent the
        // last look is.
        self.must_look.set(true);
        let until = longest.map(|longest| self.clock.now() + longest);
        self.turn(until);
    }
}
