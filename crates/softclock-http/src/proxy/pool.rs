//! Keeps idle connections to an upstream for its next requests.
//!
//! The connection used last is used next, so that surplus ones reach their maximum age and are closed. One task, the
//! keeper, waits for all idle connections of the pool: it closes those that the upstream has closed and those that are
//! too old. It does not watch connections in use, so that requests do not wake it. The keeper also closes idle
//! connections when requests need their places ([`Budget`]).

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
    /// The budget that the connections' places belong to.
    budget: Arc<Budget>,
    /// In the order in which they became idle.
    idle: RefCell<Vec<Idle>>,
    /// Wakes the keeper; `None` before its first poll.
    keeper: RefCell<Option<Waker>>,
    /// Whether the keeper was spawned, which happens with the first idle connection.
    has_keeper: Cell<bool>,
    /// The time for which the keeper's timer is set.
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

    /// Takes the connection used last. Drops connections on which something has arrived, most likely their end.
    pub(super) fn take(&self) -> Option<Box<Link>> {
        let quiet = Context::from_waker(Waker::noop());
        loop {
            let Idle { link, .. } = self.idle.borrow_mut().pop()?;
            link.set_idle(false);
            // Removes the keeper's waker, so that traffic on the connection does not wake the keeper. Removed before
            // the check, as a second registered waker would cost an allocation.
            link.forget_waiters();
            if link.is_idle(&quiet) {
                link.forget_waiters();
                return Some(link);
            }
        }
    }

    /// Keeps a connection that carries no exchange for up to `time`, and drops it otherwise: if it cannot be used, if
    /// `limit` connections are kept, or if a request waits for its place.
    pub(super) fn park(self: &Rc<Self>, link: Box<Link>, limit: usize, time: Duration) {
        // The check registers the keeper's waker, so that the end of the connection wakes the keeper.
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
        link.set_idle(true);
        let until = softclock::now() + time;
        self.idle.borrow_mut().push(Idle { link, until });
        if !self.has_keeper.replace(true) {
            softclock::spawn_local(keep(Rc::downgrade(self)));
        } else if self.next_look.get().is_none_or(|look| until < look) {
            // The keeper's timer would fire too late for this connection.
            self.wake_keeper();
        }
    }

    fn wake_keeper(&self) {
        if let Some(keeper) = &*self.keeper.borrow() {
            keeper.wake_by_ref();
        }
    }

    /// Closes all idle connections. Call it when one of them turned out to be closed: the upstream has most likely
    /// restarted, and closed all others.
    pub(super) fn clear(&self) {
        let idle = self.idle.take();
        drop(idle);
    }

    fn take_oldest(&self) -> Option<Idle> {
        let mut idle = self.idle.borrow_mut();
        (!idle.is_empty()).then(|| idle.remove(0))
    }

    /// The keeper's turn: closes connections that have ended or are too old, and the oldest ones while requests need
    /// their places.
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
        // Dropped after the list is released.
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
            // The timer fired in this poll; the next turn closes the connection.
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

/// Runs the keeper of a pool until the pool is dropped.
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
