//! Connections kept for the next request to the same upstream.
//!
//! The one used last is used next, so that those too many become old and go. One task waits for all of them at once: for
//! upstreams that close theirs, and for those that get too old. It knows nothing of those in use, and looks at times of its
//! own, so that a request does not wake it. It also closes connections where others are in want of their places.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock::Instant;

use super::budget::Budget;
use super::link::Link;
use crate::net::late_timer::LateTimer;
use crate::observe::limit::Limit;

/// The idle connections to one upstream.
pub(super) struct Pool {
    /// What their places are in.
    budget: Arc<Budget>,
    idle: RefCell<Vec<Idle>>,
    /// The task that waits for them, once there was one.
    keeper: RefCell<Option<Waker>>,
    has_keeper: Cell<bool>,
    /// When it is going to look by itself.
    next_look: Cell<Option<Instant>>,
}

struct Idle {
    link: Box<Link>,
    until: Instant,
}

impl Pool {
    pub(super) fn new(budget: Arc<Budget>) -> Rc<Self> {
        Rc::new(Self {
            budget,
            idle: RefCell::default(),
            keeper: RefCell::default(),
            has_keeper: Cell::default(),
            next_look: Cell::default(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.idle.borrow().len()
    }

    /// A connection that still is one, as far as is known.
    pub(super) fn take(&self) -> Option<Box<Link>> {
        let quiet = Context::from_waker(Waker::noop());
        loop {
            let Idle { link, .. } = self.idle.borrow_mut().pop()?;
            link.set_idle(false);
            // The keeper is not to be woken by what its user does from now on. And a second who waits costs an allocation.
            link.forget_waiters();
            if link.is_idle(&quiet) {
                link.forget_waiters();
                return Some(link);
            }
        }
    }

    /// Keeps a connection whose exchange has ended, if it can be used again, fewer than `limit` are kept, and no request waits
    /// for its place.
    pub(super) fn park(self: &Rc<Self>, mut link: Box<Link>, limit: usize, time: Duration) {
        let keeper = self.keeper.borrow();
        let waker = keeper.as_ref().unwrap_or(Waker::noop());
        if !link.is_idle(&Context::from_waker(waker)) || self.budget.is_short() {
            return;
        }
        if self.len() >= limit {
            Limit::KeptConnections.count_one();
            return;
        }
        drop(keeper);
        link.is_reused = true;
        link.set_idle(true);
        let until = softclock::now() + time;
        self.idle.borrow_mut().push(Idle { link, until });
        if !self.has_keeper.replace(true) {
            softclock::spawn_local(keep(Rc::downgrade(self)));
        } else if self.next_look.get().is_none_or(|look| until < look) {
            self.wake_keeper();
        }
    }

    fn wake_keeper(&self) {
        if let Some(keeper) = &*self.keeper.borrow() {
            keeper.wake_by_ref();
        }
    }

    /// Closes all: one of them was found to be closed by an upstream that has gone, or been replaced.
    pub(super) fn clear(&self) {
        let idle = self.idle.take();
        drop(idle);
    }

    fn take_oldest(&self) -> Option<Idle> {
        let mut idle = self.idle.borrow_mut();
        (!idle.is_empty()).then(|| idle.remove(0))
    }

    /// Closes what is over, and the oldest while their places are needed.
    fn poll_keep(&self, timer: &mut LateTimer, cx: &mut Context<'_>) {
        if self.keeper.borrow().is_none() {
            self.keeper.replace(Some(cx.waker().clone()));
            self.budget.add_keeper(cx.waker().clone());
        }
        let now = softclock::now();
        let over = |idle: &mut Idle| {
            let is_old = idle.until <= now;
            if is_old {
                Limit::KeepTime.count_one();
            }
            is_old || !idle.link.is_idle(cx)
        };
        let closed: Vec<_> = self.idle.borrow_mut().extract_if(.., over).collect();
        drop(closed);
        while self.budget.is_short()
            && let Some(oldest) = self.take_oldest()
        {
            drop(oldest);
        }
        let next = self.idle.borrow().iter().map(|idle| idle.until).min();
        self.next_look.set(next);
        if let Some(next) = next
            && timer.poll_until(next, now, cx).is_ready()
        {
            // The next look closes it.
            cx.waker().wake_by_ref();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(keeper) = &*self.keeper.borrow() {
            self.budget.remove_keeper(keeper);
        }
        self.wake_keeper();
    }
}

/// Waits for the idle connections of a pool as long as that is there.
async fn keep(pool: Weak<Pool>) {
    let mut timer = LateTimer::default();
    poll_fn(|cx| match pool.upgrade() {
        Some(pool) => {
            pool.poll_keep(&mut timer, cx);
            Poll::Pending
        }
        None => Poll::Ready(()),
    })
    .await;
}
