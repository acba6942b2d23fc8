//! The connections of one thread: counts them, admits them within the limit of all threads, and ends them when the thread
//! stops or when new connections need room.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock::{Instant, timeout};

use crate::client::capacity::Capacity;
use crate::observe::limit::Limit;

/// The connections ("members") of one thread.
#[derive(Debug)]
pub(crate) struct Members {
    capacity: Arc<Capacity>,
    ending: Cell<bool>,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    count: usize,
    /// One slot per member; slots are reused.
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Tasks that wait for a member to leave, or for their turn to be admitted.
    waiting: Vec<Waker>,
    /// Turns of the pending [`admit`](Members::admit) calls in order of arrival, so that all listeners get connections.
    turns: VecDeque<u64>,
    next_turn: u64,
}

/// The input from its client that a member waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaits {
    /// The rest of a request head or of a TLS handshake. Most of them arrive in one piece.
    RestOfHead,
    /// The next request.
    Request,
}

/// The state that is kept for one member.
#[derive(Debug, Default)]
struct Slot {
    /// `None` before the first poll, and after the member has been woken to end.
    waker: Option<Waker>,
    /// The input that the member waits for, and since when.
    awaits: Option<(Awaits, Instant)>,
    /// When the member was asked to leave to make room.
    asked: Option<Instant>,
}

impl Members {
    pub(crate) fn new(capacity: Arc<Capacity>) -> Rc<Self> {
        Rc::new(Self {
            capacity,
            ending: Cell::new(false),
            state: RefCell::default(),
        })
    }

    /// Returns the number of members.
    pub(crate) fn count(&self) -> usize {
        self.state.borrow().count
    }

    /// Returns the limit of the connections of all threads.
    pub(crate) fn limit(&self) -> usize {
        self.capacity.limit()
    }

    /// Changes the limit. Members beyond a lower limit stay until they end by themselves.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.capacity.set_limit(limit);
    }

    /// Asks members to leave whenever another thread needs room, without end.
    pub(crate) async fn make_room(self: Rc<Self>) {
        let mut seen = 0;
        loop {
            poll_fn(|cx| self.capacity.poll_asked(&mut seen, cx)).await;
            self.shed(softclock::now());
        }
    }

    fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut self.state.borrow_mut().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Admits a connection. At the limit, waits for a connection of any thread to leave, and every [`SHED_AFTER`] asks
    /// members that wait for their clients to do so; if there are none, those of the other threads.
    pub(crate) async fn admit(self: &Rc<Self>) -> Membership {
        // Later calls must not overtake those that already wait.
        if self.state.borrow().turns.is_empty()
            && let Some(membership) = self.join()
        {
            return membership;
        }
        Limit::MaxConnections.reached(self.limit(), "new connections wait");
        let turn = Turn::new(self);
        let mut queued = self.capacity.queue();
        loop {
            let entered = async {
                self.wait_for(|state| turn.is_next(state)).await;
                poll_fn(|cx| queued.poll_enter(cx)).await;
            };
            // A member may leave by itself in time; only if none does, some are asked to.
            if timeout(SHED_AFTER, entered).await.is_ok() {
                return self.add();
            }
            if self.shed(softclock::now()) == 0 {
                self.capacity.ask();
            }
        }
    }

    /// Asks the members to leave that have waited longest for their clients, if it is longer than
    /// [`Awaits::shed_after`]. At most one of [`SHED_PART`] members leaves at a time; those asked less than
    /// [`LEAVE_TIME`] ago count as still leaving. Returns the number of members that are leaving. O(n) in the number of
    /// members.
    pub(crate) fn shed(&self, now: Instant) -> usize {
        let mut state = self.state.borrow_mut();
        let mut leaving = 0;
        let mut waiting = Vec::new();
        for (index, slot) in state.slots.iter().enumerate() {
            // A member that was asked long ago may never leave, and must not keep others from being asked.
            match (slot.asked, slot.awaits) {
                (Some(asked), _) => leaving += usize::from(now.since(asked) < LEAVE_TIME),
                (None, Some((awaits, since))) => waiting.push((since + awaits.shed_after(), index)),
                (None, None) => {}
            }
        }
        waiting.retain(|&(over, _)| over <= now);
        let most = self.capacity.share().div_ceil(SHED_PART);
        let most = most.saturating_sub(leaving);
        let count = waiting.len().min(most);
        // A partial selection is enough: among those that leave, the order does not matter.
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
        // A woken task may drop its membership, which borrows the state.
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        leaving + count
    }

    /// Adds a member if the limit allows it.
    fn join(self: &Rc<Self>) -> Option<Membership> {
        self.capacity.enter().then(|| self.add())
    }

    /// Adds a member that the capacity counts already.
    fn add(self: &Rc<Self>) -> Membership {
        let mut state = self.state.borrow_mut();
        state.count += 1;
        let slot = state.free.pop().unwrap_or_else(|| {
            state.slots.push(Slot::default());
            state.slots.len() - 1
        });
        Membership {
            members: Rc::clone(self),
            slot,
            told: false,
        }
    }

    /// Asks all members to end, and later ones as soon as they are admitted.
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

/// A place in the queue of [`Members::admit`], given up when dropped.
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

/// A connection's membership of [`Members`]; the connection leaves when it is dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    members: Rc<Members>,
    slot: usize,
    told: bool,
}

/// The handle by which a member reports the input that it waits for.
#[derive(Debug)]
pub(crate) struct MemberSlot {
    members: Rc<Members>,
    slot: usize,
}

impl MemberSlot {
    /// Records the input that the member waits for and since when; `None` if it waits for none.
    pub(crate) fn note(&self, awaits: Option<(Awaits, Instant)>) {
        self.members.state.borrow_mut().slots[self.slot].awaits = awaits;
    }
}

impl Awaits {
    /// How long a member must have waited before it may be asked to leave: a shorter wait may be only the network's
    /// delay.
    fn shed_after(self) -> Duration {
        match self {
            Self::RestOfHead => Duration::from_secs(1),
            Self::Request => Duration::from_millis(500),
        }
    }
}

impl Membership {
    /// Returns a handle for reports. It must not be used after the membership is dropped, as another member may have
    /// the slot then.
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

    /// Ready once: when all members are asked to end, or this one to make room. Only one task may poll it, as only the
    /// first waker is kept.
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
        // The first waker is kept, which saves a clone at each later poll.
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
        // Dropping the slot may drop the last waker of a task, and with it another membership, which borrows the
        // state.
        drop(slot);
        self.members.capacity.leave();
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// How long admission waits for a member to leave by itself before it asks members to leave.
const SHED_AFTER: Duration = Duration::from_millis(50);

/// The time that a member may need to leave after it is asked to: an HTTP/2 client first answers the GOAWAY.
const LEAVE_TIME: Duration = Duration::from_millis(500);

/// At most one in this many of a thread's share of the limit is asked to leave at a time.
const SHED_PART: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn members(limit: usize) -> Rc<Members> {
        Members::new(Capacity::new(limit, 1))
    }

    #[test]
    fn no_more_than_the_limit() {
        let members = members(2);
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
        let members = members(2);
        let mut member = members.join().unwrap();
        let cx = Context::from_waker(Waker::noop());
        assert!(member.poll_end(&cx).is_pending());
        members.end();
        assert!(member.poll_end(&cx).is_ready());
        assert!(member.poll_end(&cx).is_pending());
    }

    #[test]
    fn those_that_wait_for_longest_make_room() {
        let members = members(4);
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
            let members = members(1);
            let mut held = Some(members.join().unwrap());
            let order = Rc::new(RefCell::new(Vec::new()));
            // Like a listener with a queue of clients, each task asks again as soon as it was admitted.
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
        let members = members(1);
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

    /// Each thread has members of its own.
    #[test]
    fn threads_share_the_limit_and_make_room_for_each_other() {
        softclock::Runtime::new().unwrap().block_on(async {
            let capacity = Capacity::new(2, 2);
            let [one, other] = [(); 2].map(|()| Members::new(Arc::clone(&capacity)));
            softclock::spawn_local(Rc::clone(&one).make_room());
            let (busy, mut idle) = (one.join().unwrap(), one.join().unwrap());
            assert!(other.join().is_none());
            let admitted = softclock::spawn_local({
                let other = Rc::clone(&other);
                async move { other.admit().await }
            });
            softclock::yield_now().await;
            drop(busy);
            assert!(one.join().is_none(), "the other thread waits for it");
            let admitted = admitted.await;
            assert_eq!((one.count(), other.count()), (1, 1));
            // Long ago.
            idle.slot()
                .note(Some((Awaits::Request, Instant::from_ns(0))));
            let leaving = softclock::spawn_local(async move {
                poll_fn(|cx| idle.poll_end(cx)).await;
                drop(idle);
            });
            let _second = other.admit().await;
            leaving.await;
            assert_eq!((one.count(), other.count()), (0, 2));
            drop(admitted);
        });
    }
}
