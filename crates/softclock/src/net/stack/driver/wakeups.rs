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
    fn look(&self, sources: &mut Sources) -> bool {
        let Some(driver) = self.0.upgrade() else {
            return false;
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
        true
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

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use crate::Runtime;
    use crate::net::stack::{StackOptions, open};
    use crate::runtime::inner::Inner;

    #[test]
    fn the_runtime_looks_at_no_stack_that_has_ended() {
        let namespace = softclock_testing::namespace_for_taps!();
        let mut options = StackOptions::new("tap:scgone");
        options.addresses.push("192.0.2.7/24".parse().unwrap());
        let test = async || {
            for _ in 0..3 {
                let stack = open(&options).unwrap();
                let deleted = Command::new("ip").args(["link", "del", "scgone"]).status();
                assert!(deleted.is_ok_and(|status| status.success()));
                let ended = crate::timeout(Duration::from_secs(20), stack.ended()).await;
                ended.expect("the stack goes on");
                drop(stack);
                crate::yield_now().await;
            }
            let queues = Inner::with_current(|runtime| runtime.each_turn.borrow().len());
            assert_eq!(queues, 0);
        };
        let run = || Runtime::new().unwrap().block_on(test());
        namespace.inside(run).unwrap();
    }
}
