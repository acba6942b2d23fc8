//! The connections of one thread: how many there are, and how they learn that they shall end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock::{Instant, timeout};

use crate::observe::limit::Limit;

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
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Who waits for a member to leave, or for its turn.
    waiting: Vec<Waker>,
    /// Those that are to be taken in, in the order of their arrival: listeners take turns.
    turns: VecDeque<u64>,
    next_turn: u64,
}

/// What a member waits for its client to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaits {
    /// The rest of a head, or of a handshake of TLS. Most arrive in one piece.
    RestOfHead,
    /// A request.
    Request,
}

/// What is known of a member.
#[derive(Debug, Default)]
struct Slot {
    /// Empty before its first poll and after it has learnt of the end.
    waker: Option<Waker>,
    /// What it waits for its client to send, and since when.
    awaits: Option<(Awaits, Instant)>,
    /// When it was asked to leave, to make room.
    asked: Option<Instant>,
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
        self.wake_waiting();
    }

    fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut self.state.borrow_mut().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Takes one in; while there are as many as the limit allows, waits, and has those leave that wait for their clients.
    pub(crate) async fn admit(self: &Rc<Self>) -> Membership {
        if self.state.borrow().turns.is_empty()
            && let Some(membership) = self.join()
        {
            return membership;
        }
        Limit::MaxConnections.reached(self.limit.get(), "new connections wait");
        let turn = Turn::new(self);
        loop {
            if turn.is_next(&self.state.borrow())
                && let Some(membership) = self.join()
            {
                return membership;
            }
            let room = self.wait_for(|state| turn.is_next(state) && state.count < self.limit.get());
            if timeout(SHED_AFTER, room).await.is_err() {
                self.shed(softclock::now());
            }
        }
    }

    /// Asks those to leave that have waited for their clients for longest, beyond [`Awaits::shed_after`]. Counts those
    /// that were asked a moment ago, and need that for leaving.
    pub(crate) fn shed(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        let mut leaving = 0;
        let mut waiting = Vec::new();
        for (index, slot) in state.slots.iter().enumerate() {
            match (slot.asked, slot.awaits) {
                (Some(asked), _) => leaving += usize::from(now.since(asked) < LEAVE_TIME),
                (None, Some((awaits, since))) => waiting.push((since + awaits.shed_after(), index)),
                (None, None) => {}
            }
        }
        waiting.retain(|&(over, _)| over <= now);
        let most = self.limit.get().div_ceil(SHED_PART).saturating_sub(leaving);
        let count = waiting.len().min(most);
        if let Some(last) = count.checked_sub(1) {
            waiting.select_nth_unstable(last);
        }
        let wakers: Vec<_> = (waiting[..count].iter())
            .filter_map(|&(_, index)| {
                let slot = &mut state.slots[index];
                slot.asked = Some(now);
                Limit::ShedConnections.count_one();
                slot.waker.take()
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
        let slot = state.free.pop().unwrap_or_else(|| {
            state.slots.push(Slot::default());
            state.slots.len() - 1
        });
        Some(Membership {
            members: Rc::clone(self),
            slot,
            told: false,
        })
    }

    /// Tells all members to end.
    pub(crate) fn end(&self) {
        self.ending.set(true);
        let wakers: Vec<_> = self
            .state
            .borrow_mut()
            .slots
            .iter_mut()
            .filter_map(|slot| slot.waker.take())
            .collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until the last member has left.
    pub(crate) async fn empty(&self) {
        self.wait_for(|state| state.count == 0).await;
    }

    async fn wait_for(&self, accept: impl Fn(&State) -> bool) {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            if accept(&state) {
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

/// A turn in being taken in, given up when dropped.
struct Turn<'a> {
    members: &'a Members,
    number: u64,
}

impl<'a> Turn<'a> {
    fn new(members: &'a Members) -> Self {
        let mut state = members.state.borrow_mut();
        let number = state.next_turn;
        state.next_turn += 1;
        state.turns.push_back(number);
        Self { members, number }
    }

    fn is_next(&self, state: &State) -> bool {
        state.turns.front() == Some(&self.number)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.members.state.borrow_mut();
        state.turns.retain(|&number| number != self.number);
        drop(state);
        self.members.wake_waiting();
    }
}

/// A place among the [`Members`], left when dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    members: Rc<Members>,
    slot: usize,
    told: bool,
}

/// Where a member tells what it waits for.
#[derive(Debug)]
pub(crate) struct MemberSlot {
    members: Rc<Members>,
    slot: usize,
}

impl MemberSlot {
    /// What the member waits for its client to send, and since when; `None` if it does not.
    pub(crate) fn note(&self, awaits: Option<(Awaits, Instant)>) {
        self.members.state.borrow_mut().slots[self.slot].awaits = awaits;
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
    pub(crate) fn slot(&self) -> MemberSlot {
        MemberSlot {
            members: Rc::clone(&self.members),
            slot: self.slot,
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
        let slot = &mut self.members.state.borrow_mut().slots[self.slot];
        if slot.asked.is_some() {
            self.told = true;
            return Poll::Ready(());
        }
        if slot.waker.is_none() {
            slot.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.members.state.borrow_mut();
        state.count -= 1;
        let slot = std::mem::take(&mut state.slots[self.slot]);
        state.free.push(self.slot);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Its waker may be the last of a task.
        drop(slot);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// How long the limit must have been reached before members leave to make room.
const SHED_AFTER: Duration = Duration::from_millis(50);

/// How long those that are asked to leave may need for that: a client of HTTP/2 answers the GOAWAY first.
const LEAVE_TIME: Duration = Duration::from_millis(500);

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
        assert_eq!((members.count(), third.slot), (2, 0));
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
        all[0].slot().note(Some((Awaits::Request, at(300))));
        all[1].slot().note(Some((Awaits::Request, at(200))));
        all[2].slot().note(Some((Awaits::Request, at(100))));
        all[2].slot().note(None);
        all[3].slot().note(Some((Awaits::RestOfHead, at(400))));
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
        assert_eq!(told(&members, 1_898), [false; 4], "one is leaving");
        assert_eq!(told(&members, 1_899), [false, false, false, true]);
        assert_eq!(told(&members, 9_000), [false; 4]);
    }

    #[test]
    fn waiters_take_turns() {
        softclock::Runtime::new().unwrap().block_on(async {
            let members = Members::new(1);
            let mut held = Some(members.join().unwrap());
            let order = Rc::new(RefCell::new(Vec::new()));
            // Each is like a listener at which clients wait: it asks again as soon as it was served.
            let listeners: Vec<_> = (0..3)
                .map(|listener| {
                    let (members, order) = (Rc::clone(&members), Rc::clone(&order));
                    softclock::spawn_local(async move {
                        for _ in 0..2 {
                            let membership = members.admit().await;
                            order.borrow_mut().push(listener);
                            drop(membership);
                        }
                    })
                })
                .collect();
            softclock::yield_now().await;
            held.take();
            for listener in listeners {
                listener.await;
            }
            assert_eq!(*order.borrow(), [0, 1, 2, 0, 1, 2]);
            assert!(members.state.borrow().turns.is_empty() && members.count() == 0);
        });
    }

    #[test]
    fn a_turn_that_is_given_up_is_the_next_one_s() {
        let members = Members::new(1);
        let held = members.join().unwrap();
        let (mut first, mut second) = (Box::pin(members.admit()), Box::pin(members.admit()));
        let mut cx = Context::from_waker(Waker::noop());
        softclock::Runtime::new().unwrap().block_on(async {
            assert!(first.as_mut().poll(&mut cx).is_pending());
            assert!(second.as_mut().poll(&mut cx).is_pending());
            drop(first);
            drop(held);
            assert!(second.as_mut().poll(&mut cx).is_ready());
        });
    }
}
