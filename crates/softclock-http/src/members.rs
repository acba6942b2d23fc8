//! The connections of one thread: how many there are, and how they learn that they shall end.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock::{Instant, timeout};

use crate::limit::Limit;

/// The connections of one thread.
#[derive(Debug)]
pub(crate) struct Members {
    limit: Cell<usize>,
    ending: Cell<bool>,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    count: usize,
    /// One a member, reused.
    places: Vec<Place>,
    free: Vec<usize>,
    /// Who waits for a member to leave.
    waiting: Vec<Waker>,
}

/// What is known of a member.
#[derive(Debug, Default)]
struct Place {
    /// Empty before its first poll and after it has learnt of the end.
    waker: Option<Waker>,
    /// Since when it has been waiting for a request.
    idle_since: Option<Instant>,
    /// Whether it is asked to leave, to make room.
    leave: bool,
}

impl Members {
    pub(crate) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self {
            limit: Cell::new(limit),
            ending: Cell::new(false),
            state: RefCell::default(),
        })
    }

    /// How many members there are.
    pub(crate) fn count(&self) -> usize {
        self.state.borrow().count
    }

    /// How many there may be.
    pub(crate) fn limit(&self) -> usize {
        self.limit.get()
    }

    /// Changes the limit; nobody has to leave for it.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.set(limit);
        let waiting = std::mem::take(&mut self.state.borrow_mut().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Takes one in; while there are as many as the limit allows, waits, and has idle ones leave.
    pub(crate) async fn admit(self: &Rc<Self>) -> Membership {
        if let Some(membership) = self.join() {
            return membership;
        }
        Limit::MaxConnections.reached(self.limit.get(), "new connections wait");
        loop {
            if let Some(membership) = self.join() {
                return membership;
            }
            let room = self.wait_for(|count| count < self.limit.get());
            if timeout(SHED_AFTER, room).await.is_err() {
                self.shed(softclock::now());
            }
        }
    }

    /// Asks the longest idle to leave, if any was idle for long enough.
    pub(crate) fn shed(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        let mut idle: Vec<_> = (state.places.iter().enumerate())
            .filter(|(_, place)| !place.leave)
            .filter_map(|(index, place)| Some((place.idle_since?, index)))
            .filter(|&(since, _)| now.since(since) >= SHED_IDLE)
            .collect();
        let count = idle.len().min(self.limit.get().div_ceil(SHED_PART));
        if let Some(last) = count.checked_sub(1) {
            idle.select_nth_unstable(last);
        }
        let wakers: Vec<_> = (idle[..count].iter())
            .filter_map(|&(_, index)| {
                let place = &mut state.places[index];
                place.leave = true;
                Limit::ShedConnections.count_one();
                place.waker.take()
            })
            .collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Takes one in, if there are fewer than the limit allows.
    fn join(self: &Rc<Self>) -> Option<Membership> {
        let mut state = self.state.borrow_mut();
        if state.count >= self.limit.get() {
            return None;
        }
        state.count += 1;
        let place = state.free.pop().unwrap_or_else(|| {
            state.places.push(Place::default());
            state.places.len() - 1
        });
        Some(Membership {
            members: Rc::clone(self),
            place,
            told: false,
        })
    }

    /// Tells all members to end.
    pub(crate) fn end(&self) {
        self.ending.set(true);
        let wakers: Vec<_> = self
            .state
            .borrow_mut()
            .places
            .iter_mut()
            .filter_map(|place| place.waker.take())
            .collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until the last member has left.
    pub(crate) async fn empty(&self) {
        self.wait_for(|count| count == 0).await;
    }

    async fn wait_for(&self, accept: impl Fn(usize) -> bool) {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            if accept(state.count) {
                return Poll::Ready(());
            }
            if !state
                .waiting
                .iter()
                .any(|waker| waker.will_wake(cx.waker()))
            {
                state.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// A place among the [`Members`], left when dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    members: Rc<Members>,
    place: usize,
    told: bool,
}

/// Where a member tells whether it is idle.
#[derive(Debug)]
pub(crate) struct Seat {
    members: Rc<Members>,
    place: usize,
}

impl Seat {
    /// Since when the member has been idle, or that it is not.
    pub(crate) fn note_idle(&self, since: Option<Instant>) {
        self.members.state.borrow_mut().places[self.place].idle_since = since;
    }
}

impl Membership {
    /// To be used no longer than the membership.
    pub(crate) fn seat(&self) -> Seat {
        Seat {
            members: Rc::clone(&self.members),
            place: self.place,
        }
    }

    /// Whether [`poll_end`](Self::poll_end) was ready.
    pub(crate) fn has_ended(&self) -> bool {
        self.told
    }

    /// Ready once, when the members are told to end, or this one to make room. To be polled by one task only, whose waker is kept.
    pub(crate) fn poll_end(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.told {
            return Poll::Pending;
        }
        if self.members.ending.get() {
            self.told = true;
            return Poll::Ready(());
        }
        let place = &mut self.members.state.borrow_mut().places[self.place];
        if place.leave {
            self.told = true;
            return Poll::Ready(());
        }
        if place.waker.is_none() {
            place.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.members.state.borrow_mut();
        state.count -= 1;
        let place = std::mem::take(&mut state.places[self.place]);
        state.free.push(self.place);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Its waker may be the last of a task.
        drop(place);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// How long the limit must have been reached before idle members leave.
const SHED_AFTER: Duration = Duration::from_millis(50);

/// Who has been idle for less may have a request on its way.
const SHED_IDLE: Duration = Duration::from_millis(500);

/// Of so many members one leaves at a time.
const SHED_PART: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn no_more_than_the_limit() {
        let members = Members::new(2);
        let first = members.join().unwrap();
        let second = members.join().unwrap();
        assert!(members.join().is_none());
        drop(first);
        let third = members.join().unwrap();
        assert_eq!((members.count(), third.place), (2, 0));
        assert!(poll(members.empty()).is_pending());
        drop((second, third));
        assert!(poll(members.empty()).is_ready());
    }

    #[test]
    fn members_learn_of_the_end_once() {
        let members = Members::new(2);
        let mut member = members.join().unwrap();
        let cx = Context::from_waker(Waker::noop());
        assert!(member.poll_end(&cx).is_pending());
        members.end();
        assert!(member.poll_end(&cx).is_ready());
        assert!(member.poll_end(&cx).is_pending());
    }

    #[test]
    fn the_longest_idle_make_room() {
        let members = Members::new(4);
        let mut all: Vec<_> = (0..4).map(|_| members.join().unwrap()).collect();
        let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
        all[0].seat().note_idle(Some(at(300)));
        all[1].seat().note_idle(Some(at(200)));
        all[2].seat().note_idle(Some(at(100)));
        all[2].seat().note_idle(None);
        let cx = Context::from_waker(Waker::noop());
        let mut told = |members: &Members, now| {
            members.shed(at(now));
            let told = all.iter_mut().map(|member| member.poll_end(&cx).is_ready());
            told.collect::<Vec<_>>()
        };
        assert_eq!(told(&members, 600), [false; 4]);
        assert_eq!(told(&members, 700), [false, true, false, false]);
        assert_eq!(told(&members, 700), [false; 4]);
        assert_eq!(told(&members, 9_000), [true, false, false, false]);
        assert_eq!(told(&members, 9_000), [false; 4]);
    }
}
