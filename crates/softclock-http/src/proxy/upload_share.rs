//! Limits the uploads that occupy upstreams while their clients still send, so that slow clients leave upstreams to
//! others.
//!
//! An upload takes a permit when its beginning was read and more is to come, before an upstream is chosen, and frees it
//! as soon as the client has sent the whole body. Requests without a body, and those whose bodies are no longer than
//! the beginning, need no permit. When all permits are taken, uploads wait in the order of their arrival.
//!
//! The count and the order are those of the whole server, not of each thread, like the limit of requests to upstreams.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The uploads in progress of all threads, and those that wait for a permit.
#[derive(Debug, Default)]
pub(super) struct UploadShare {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    /// The most permits that may be taken, by the latest upload.
    limit: usize,
    /// The waiting uploads by ticket, that is, in the order of their arrival.
    waiting: BTreeMap<u64, Waker>,
    next_ticket: u64,
}

impl UploadShare {
    /// Returns the limit of uploads if `requests` may be in progress: half of them, but at least one.
    pub(super) fn of(requests: usize) -> usize {
        (requests / 2).max(1)
    }

    /// Waits until fewer than `limit` permits are taken and no other upload has waited for longer. The limit also holds
    /// for uploads that wait already: they are first, and their own limits may be out of date.
    pub(super) fn take(self: &Arc<Self>, limit: usize) -> TakePermit {
        let mut state = self.lock();
        let has_grown = limit > state.limit;
        state.limit = limit;
        if has_grown {
            state.wake_first();
        }
        TakePermit {
            share: Arc::clone(self),
            ticket: None,
        }
    }

    /// Locks the state, ignoring poison: no operation on it leaves it inconsistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// Returns whether no other upload has waited for longer.
    fn is_first(&self, ticket: u64) -> bool {
        let first = self.waiting.keys().next();
        first.is_none_or(|first| *first >= ticket)
    }

    /// Wakes the first waiter, which takes a permit if one is free and then wakes the next. Call it when a permit
    /// becomes free, the limit grows, or the first waiter leaves.
    fn wake_first(&self) {
        if let Some(first) = self.waiting.values().next() {
            first.wake_by_ref();
        }
    }
}

/// The future of a permit. Leaves the queue when dropped.
pub(super) struct TakePermit {
    share: Arc<UploadShare>,
    /// The position in the queue, from the first poll on.
    ticket: Option<u64>,
}

impl Future for TakePermit {
    type Output = UploadPermit;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<UploadPermit> {
        let this = self.get_mut();
        let mut state = this.share.lock();
        let ticket = *this.ticket.get_or_insert_with(|| state.new_ticket());
        if state.taken >= state.limit || !state.is_first(ticket) {
            state.waiting.insert(ticket, cx.waker().clone());
            return Poll::Pending;
        }
        state.taken += 1;
        // Several permits may have become free, but only the first waiter was woken.
        if state.waiting.remove(&ticket).is_some() {
            state.wake_first();
        }
        Poll::Ready(UploadPermit(Arc::clone(&this.share)))
    }
}

impl Drop for TakePermit {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else {
            return;
        };
        let mut state = self.share.lock();
        // This waiter may have been woken for a permit that it did not take: pass the wake-up on.
        if state.waiting.remove(&ticket).is_some() {
            state.wake_first();
        }
    }
}

/// The permit of an upload in progress. Given back when dropped.
pub(super) struct UploadPermit(Arc<UploadShare>);

impl Drop for UploadPermit {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.taken -= 1;
        state.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use super::*;

    /// An upload that waits for a permit, and a flag that its waker sets.
    struct Waiter {
        take: TakePermit,
        flag: Arc<Flag>,
    }

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    impl Waiter {
        fn new(share: &Arc<UploadShare>, limit: usize) -> Self {
            let (take, flag) = (share.take(limit), Arc::default());
            Self { take, flag }
        }

        fn look(&mut self) -> Option<UploadPermit> {
            let waker = Arc::clone(&self.flag).into();
            match Pin::new(&mut self.take).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(permit) => Some(permit),
                Poll::Pending => None,
            }
        }

        fn was_woken(&self) -> bool {
            self.flag.0.swap(false, Ordering::Relaxed)
        }
    }

    fn taken_and_waiting(share: &UploadShare) -> (usize, usize) {
        let state = share.lock();
        (state.taken, state.waiting.len())
    }

    #[test]
    fn half_of_the_requests_and_one_at_least() {
        let shares = [0, 1, 2, 3, 20, usize::MAX].map(UploadShare::of);
        assert_eq!(shares, [1, 1, 1, 1, 10, usize::MAX / 2]);
    }

    #[test]
    fn places_go_to_those_who_waited_longest() {
        let share = Arc::new(UploadShare::default());
        let mut waiters: Vec<_> = (0..5).map(|_| Waiter::new(&share, 2)).collect();
        let mut permits: Vec<_> = waiters.iter_mut().map(Waiter::look).collect();
        assert!(
            permits
                .iter()
                .map(Option::is_some)
                .eq([true, true, false, false, false])
        );
        drop(permits.drain(..2));
        assert!(waiters[2].was_woken() && !waiters[3].was_woken());
        let mut late = Waiter::new(&share, 2);
        assert!(late.look().is_none(), "others were first");
        let third = waiters[2].look();
        assert!(
            third.is_some() && waiters[3].was_woken(),
            "there is another permit"
        );
        let fourth = waiters[3].look();
        assert!(fourth.is_some() && waiters[4].look().is_none());
        drop((third, fourth));
        assert!(waiters[4].look().is_some() && late.look().is_some());
        assert_eq!(taken_and_waiting(&share), (0, 0));
    }

    #[test]
    fn one_that_leaves_passes_its_turn_on() {
        let share = Arc::new(UploadShare::default());
        let [mut holder, mut first, mut second] = [(); 3].map(|()| Waiter::new(&share, 1));
        let permit = holder.look();
        assert!(permit.is_some() && first.look().is_none() && second.look().is_none());
        drop(permit);
        assert!(first.was_woken());
        drop(first);
        assert!(second.was_woken() && second.look().is_some());
        drop(Waiter::new(&share, 1));
        assert_eq!(taken_and_waiting(&share), (0, 0));
    }

    #[test]
    fn a_limit_that_has_shrunk_holds_for_new_ones() {
        let share = Arc::new(UploadShare::default());
        let permits = [4; 3].map(|limit| Waiter::new(&share, limit).look());
        assert_eq!(taken_and_waiting(&share), (3, 0));
        assert!(Waiter::new(&share, 2).look().is_none());
        drop(permits);
        assert!(Waiter::new(&share, 2).look().is_some());
        assert_eq!(taken_and_waiting(&share), (0, 0));
    }

    #[test]
    fn a_limit_that_has_grown_holds_for_those_that_wait() {
        let share = Arc::new(UploadShare::default());
        let permits = [4; 3].map(|limit| Waiter::new(&share, limit).look());
        let mut first = Waiter::new(&share, 2);
        assert!(first.look().is_none());
        let mut second = Waiter::new(&share, 10);
        assert!(
            first.was_woken() && second.look().is_none(),
            "in their order"
        );
        let first = first.look();
        assert!(first.is_some() && second.was_woken());
        let second = second.look();
        assert!(second.is_some());
        drop((permits, first, second));
        assert_eq!(taken_and_waiting(&share), (0, 0));
    }
}
