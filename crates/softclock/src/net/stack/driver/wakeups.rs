//! The driver's part that the runtime looks at in each turn: the conditions of sockets.

use std::rc::Weak;

use softclock_core::Instant;
use softclock_core::signalling::Wait;
use softclock_linux::readiness::Readiness;

use super::Driver;
use crate::runtime::each_turn::EachTurn;
use crate::runtime::sources::Sources;

/// The wake-ups of a stack's sockets, which the runtime looks at in each turn.
pub(super) struct Wakeups(pub(super) Weak<Driver>);

impl EachTurn for Wakeups {
    fn look(&self, sources: &mut Sources) {
        let Some(driver) = self.0.upgrade() else {
            return;
        };
        driver.sort_woken();
        for (source, readiness) in driver.posts.borrow_mut().drain(..) {
            sources.post(source, readiness);
        }
        let stack = driver.stack.borrow();
        if stack.frames_waiting() < stack.settings().send_queue {
            for source in driver.blocked.borrow_mut().drain(..) {
                sources.post(source, Readiness::WRITABLE);
            }
        }
    }

    fn catch_up(&self) {
        if let Some(driver) = self.0.upgrade() {
            driver.catch_up();
        }
    }

    fn has_caught_up(&self) -> bool {
        self.0.upgrade().is_none_or(|driver| driver.has_caught_up())
    }

    fn before_wait(&self, now: Instant) -> Wait {
        let driver = self.0.upgrade();
        driver.map_or(Wait::UntilInterrupt, |driver| driver.before_wait(now))
    }

    fn after_wait(&self, now: Instant) {
        if let Some(driver) = self.0.upgrade() {
            driver.after_wait(now);
        }
    }
}
