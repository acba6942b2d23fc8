//! Limits the connections to all upstreams together, so that descriptors remain to accept clients.
//!
//! The limit is for the whole server, not for each thread: streams of HTTP/2 can make one thread need many connections
//! while another needs none. Idle connections count, too, as each holds a descriptor. If a request needs a connection
//! at the limit, threads are asked to close idle ones, and the request waits for them; if no connection is idle, the
//! request fails at once.
//!
//! A [`Place`] belongs to a connection and is dropped after its socket, so that the count is never below the number of
//! descriptors in use.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::net::carrier::Carrier;

/// The limit and the count of the connections of all threads.
#[derive(Debug, Default)]
pub(super) struct Budget {
    limit: AtomicUsize,
    open: AtomicUsize,
    /// The number of open connections that are kept for the next request.
    idle: AtomicUsize,
    /// The number of requests that wait for an idle connection to be closed.
    waiting: AtomicUsize,
    /// The tasks that can close idle connections.
    keepers: Mutex<Vec<Waker>>,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        let budget = Self::default();
        budget.set_limit(limit);
        Arc::new(budget)
    }

    /// Changes the limit, to at least 1. Open connections above it stay.
    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit.max(1), Ordering::Relaxed);
    }

    /// Returns the limit.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Takes a permit for a connection. At the limit, waits up to about 100 ms for an idle connection to be closed;
    /// returns `None` if none is idle, or other requests took all permits that became free.
    pub(super) async fn take(self: &Arc<Self>) -> Option<UpstreamPermit> {
        if let Some(permit) = self.try_take() {
            return Some(permit);
        }
        // Counted first, as keepers close connections only while requests wait.
        let _waiting = Waiting::new(self);
        for round in 0..ROUNDS {
            if self.idle.load(Ordering::Relaxed) == 0 {
                break;
            }
            self.lock().iter().for_each(Waker::wake_by_ref);
            match round {
                // Enough if this thread closes one: its keepers run before this task continues.
                0 => softclock::yield_now().await,
                _ => softclock::sleep(ROUND).await,
            }
            if let Some(permit) = self.try_take() {
                return Some(permit);
            }
        }
        None
    }

    fn try_take(self: &Arc<Self>) -> Option<UpstreamPermit> {
        let limit = self.limit();
        let more = |open| (open < limit).then_some(open + 1);
        let taken = (self.open).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| UpstreamPermit {
            budget: Arc::clone(self),
            is_idle: Cell::new(false),
        })
    }

    /// Returns whether an idle connection must be closed for a waiting request.
    pub(super) fn is_short(&self) -> bool {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let waiting = load(&self.waiting);
        // Places that are free already count for waiting requests, so that no more connections close than needed.
        waiting > 0 && waiting > self.limit().saturating_sub(load(&self.open))
    }

    /// Registers a task, which is woken when the budget [is short](Self::is_short), until it is removed.
    pub(super) fn add_keeper(&self, keeper: Waker) {
        self.lock().push(keeper);
    }

    pub(super) fn remove_keeper(&self, keeper: &Waker) {
        self.lock().retain(|other| other.data() != keeper.data());
    }

    /// Locks the list, ignoring poison: no operation on it leaves it inconsistent.
    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permit of one connection in the [`Budget`]. Given back when dropped.
pub(super) struct UpstreamPermit {
    budget: Arc<Budget>,
    is_idle: Cell<bool>,
}

impl UpstreamPermit {
    /// Records whether the connection is idle, and can be closed for another.
    pub(super) fn set_idle(&self, is_idle: bool) {
        if self.is_idle.replace(is_idle) == is_idle {
            return;
        }
        let idle = &self.budget.idle;
        match is_idle {
            true => idle.fetch_add(1, Ordering::Relaxed),
            false => idle.fetch_sub(1, Ordering::Relaxed),
        };
    }
}

impl Drop for UpstreamPermit {
    fn drop(&mut self) {
        self.set_idle(false);
        self.budget.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A socket and its permit among the connections to upstreams.
pub(super) struct CountedCarrier {
    pub(super) carrier: Carrier,
    // Fields drop in order: the permit is freed after the socket is closed.
    pub(super) permit: UpstreamPermit,
}

impl Deref for CountedCarrier {
    type Target = Carrier;

    fn deref(&self) -> &Carrier {
        &self.carrier
    }
}

/// Counts a request that waits for a permit, until dropped.
struct Waiting<'a>(&'a Budget);

impl<'a> Waiting<'a> {
    fn new(budget: &'a Budget) -> Self {
        budget.waiting.fetch_add(1, Ordering::Relaxed);
        Self(budget)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The pause between two tries to take a permit. Other threads close idle connections within one turn of their loops.
const ROUND: Duration = Duration::from_millis(1);

/// The number of tries: enough for a busy thread to react, and few enough for a soon answer if other requests take each
/// permit that becomes free.
const ROUNDS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(budget: &Budget) -> [usize; 3] {
        [&budget.open, &budget.idle, &budget.waiting].map(|count| count.load(Ordering::Relaxed))
    }

    #[test]
    fn places_are_limited_and_given_back() {
        softclock::Runtime::new().unwrap().block_on(async {
            let budget = Budget::new(2);
            let permits = [budget.take().await, budget.take().await];
            assert!(permits.iter().all(Option::is_some));
            assert!(budget.take().await.is_none());
            budget.set_limit(3);
            let third = budget.take().await;
            assert!(third.is_some());
            budget.set_limit(0);
            drop((permits, third));
            assert_eq!(counts(&budget), [0; 3]);
            let one = budget.take().await;
            assert!(one.is_some() && budget.take().await.is_none());
        });
    }

    #[test]
    fn an_idle_one_makes_room() {
        softclock::Runtime::new().unwrap().block_on(async {
            let budget = Budget::new(1);
            let idle = budget.take().await.unwrap();
            idle.set_idle(true);
            assert!(!budget.is_short(), "nothing waits");
            let mut idle = Some(idle);
            let keeper = softclock::spawn_local({
                let budget = Arc::clone(&budget);
                std::future::poll_fn(move |cx| {
                    if !budget.is_short() {
                        budget.add_keeper(cx.waker().clone());
                        return std::task::Poll::Pending;
                    }
                    drop(idle.take());
                    assert!(!budget.is_short(), "one is enough");
                    budget.remove_keeper(cx.waker());
                    std::task::Poll::Ready(())
                })
            });
            softclock::yield_now().await;
            let permit = budget.take().await;
            assert!(permit.is_some());
            keeper.await;
            assert_eq!(counts(&budget), [1, 0, 0]);
            assert!(budget.lock().is_empty());
        });
    }

    #[test]
    fn idle_ones_that_stay_are_not_waited_for_long() {
        softclock::Runtime::new().unwrap().block_on(async {
            let budget = Budget::new(1);
            let idle = budget.take().await.unwrap();
            idle.set_idle(true);
            assert!(budget.take().await.is_none());
            idle.set_idle(false);
            drop(idle);
            assert_eq!(counts(&budget), [0; 3]);
        });
    }
}
