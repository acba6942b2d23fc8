//! Connections kept for the next request to the same upstream.
//!
//! The one used last is used next, so that those too many become old and go. While there are any, one task waits for all
//! of them at once: for upstreams that close theirs, and for those that get too old.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock::Instant;

use super::link::Link;
use crate::late_timer::LateTimer;

/// The idle connections to one upstream.
#[derive(Default)]
pub(super) struct Pool {
    idle: RefCell<Vec<Idle>>,
    /// Wakes the task that waits for them, if there is one.
    keeper: RefCell<Option<Waker>>,
    has_keeper: Cell<bool>,
}

struct Idle {
    link: Box<Link>,
    until: Instant,
}

impl Pool {
    pub(super) fn len(&self) -> usize {
        self.idle.borrow().len()
    }

    /// A connection that still is one, as far as is known.
    pub(super) fn take(&self) -> Option<Box<Link>> {
        // Nobody is to be woken by what its user does from now on.
        let quiet = Context::from_waker(Waker::noop());
        loop {
            let idle = self.idle.borrow_mut().pop()?;
            if idle.link.is_idle(&quiet) {
                return Some(idle.link);
            }
        }
    }

    /// Keeps a connection whose exchange has ended, if it can be used again and fewer than `limit` are kept.
    pub(super) fn park(self: &Rc<Self>, mut link: Box<Link>, limit: usize, time: Duration) {
        let keeper = self.keeper.borrow();
        let waker = keeper.as_ref().unwrap_or(Waker::noop());
        if !link.is_idle(&Context::from_waker(waker)) || self.len() >= limit {
            return;
        }
        drop(keeper);
        link.is_reused = true;
        let until = softclock::now() + time;
        self.idle.borrow_mut().push(Idle { link, until });
        if !self.has_keeper.replace(true) {
            softclock::spawn_local(keep(Rc::downgrade(self)));
        }
    }

    /// Closes all: one of them was found to be closed by an upstream that has gone, or been replaced.
    pub(super) fn clear(&self) {
        let idle = self.idle.take();
        drop(idle);
    }

    /// Closes what is over; ready when nothing is left.
    fn poll_keep(&self, timer: &mut LateTimer, cx: &mut Context<'_>) -> Poll<()> {
        self.keeper.replace(Some(cx.waker().clone()));
        let now = softclock::now();
        let over = |idle: &mut Idle| idle.until <= now || !idle.link.is_idle(cx);
        let closed: Vec<_> = self.idle.borrow_mut().extract_if(.., over).collect();
        drop(closed);
        let next = self.idle.borrow().iter().map(|idle| idle.until).min();
        let Some(next) = next else {
            self.keeper.take();
            self.has_keeper.set(false);
            return Poll::Ready(());
        };
        if timer.poll_until(next, now, cx).is_ready() {
            // The next look closes it.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Waits for the idle connections of a pool until there are none.
async fn keep(pool: Weak<Pool>) {
    let mut timer = LateTimer::default();
    poll_fn(|cx| match pool.upgrade() {
        Some(pool) => pool.poll_keep(&mut timer, cx),
        None => Poll::Ready(()),
    })
    .await;
}
