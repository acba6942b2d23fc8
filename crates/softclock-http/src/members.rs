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

/// What a member waits for its client to send, in the order in which members leave to make room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Awaits {
    /// The rest of a head, or of a handshake of TLS. Most arrive in one piece.
    RestOfHead,
    /// A request.
    Request,
}

/// What is known of a member.
#[derive(Debug, Default)]
struct Place {
    /// Empty before its first poll and after it has learnt of the end.
    waker: Option<Waker>,
    /// What it waits for its client to send, and since when.
    awaits: Option<(Awaits, Instant)>,
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

    /// Takes one in; while there are as many as the limit allows, waits, and has those leave that wait for their clients.
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

    /// Asks those to leave that have waited for their clients for longest: first for the rest of a head, then for a
    /// request. None that waits for less than [`Awaits::shed_after`].
    pub(crate) fn shed(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        let mut waiting: Vec<_> = (state.places.iter().enumerate())
            .filter(|(_, place)| !place.leave)
            .filter_map(|(index, place)| Some((place.awaits?, index)))
            .filter(|&((awaits, since), _)| now.since(since) >= awaits.shed_after())
            .collect();
        let count = waiting.len().min(self.limit.get().div_ceil(SHED_PART));
        if let Some(last) = count.checked_sub(1) {
            waiting.select_nth_unstable(last);
        }
        let wakers: Vec<_> = (waiting[..count].iter())
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

/// Where a member tells what it waits for.
#[derive(Debug)]
pub(crate) struct Seat {
    members: Rc<Members>,
    place: usize,
}

impl Seat {
    /// What the member waits for its client to send, and since when; `None` if it does not.
    pub(crate) fn note(&self, awaits: Option<(Awaits, Instant)>) {
        self.members.state.borrow_mut().places[self.place].awaits = awaits;
    }
}

impl Awaits {
    /// Who has waited for less is not asked to leave: what is waited for may be on its way.
    fn shed_after(self) -> Duration {
        match self {
            Self::RestOfHead => Duration::from_secs(1),
            Self::Request => Duration::from_millis(500),
        }
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

/// How long the limit must have been reached before members leave to make room.
const SHED_AFTER: Duration = Duration::from_millis(50);

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
    fn those_that_wait_for_longest_make_room() {
        let members = Members::new(4);
        let mut all: Vec<_> = (0..4).map(|_| members.join().unwrap()).collect();
        let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
        all[0].seat().note(Some((Awaits::Request, at(300))));
        all[1].seat().note(Some((Awaits::Request, at(200))));
        all[2].seat().note(Some((Awaits::Request, at(100))));
        all[2].seat().note(None);
        all[3].seat().note(Some((Awaits::RestOfHead, at(400))));
        let cx = Context::from_waker(Waker::noop());
        let mut told = |members: &Members, now| {
            members.shed(at(now));
            let told = all.iter_mut().map(|member| member.poll_end(&cx).is_ready());
            told.collect::<Vec<_>>()
        };
        assert_eq!(told(&members, 600), [false; 4]);
        assert_eq!(told(&members, 700), [false, true, false, false]);
        assert_eq!(told(&members, 700), [false; 4]);
        assert_eq!(told(&members, 1_399), [true, false, false, false]);
        assert_eq!(told(&members, 1_399), [false; 4]);
        assert_eq!(told(&members, 1_400), [false, false, false, true]);
        assert_eq!(told(&members, 9_000), [false; 4]);
    }

    #[test]
    fn slow_heads_leave_before_the_idle() {
        let members = Members::new(2);
        let mut all = [members.join().unwrap(), members.join().unwrap()];
        let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
        all[0].seat().note(Some((Awaits::Request, at(0))));
        all[1].seat().note(Some((Awaits::RestOfHead, at(1_000))));
        members.shed(at(2_000));
        let cx = Context::from_waker(Waker::noop());
        assert!(all[0].poll_end(&cx).is_pending() && all[1].poll_end(&cx).is_ready());
    }
}
