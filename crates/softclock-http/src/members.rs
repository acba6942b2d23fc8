//! The connections of one thread: how many there are, and how they learn that they shall end.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

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
    /// One place a member, reused; empty before its first poll and after it has learnt of the end.
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
    /// Who waits for a member to leave.
    waiting: Vec<Waker>,
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

    /// Takes one in; waits while there are as many as the limit allows.
    pub(crate) async fn join(self: &Rc<Self>) -> Membership {
        self.wait_for(|count| count < self.limit.get()).await;
        let mut state = self.state.borrow_mut();
        state.count += 1;
        let place = state.free.pop().unwrap_or_else(|| {
            state.wakers.push(None);
            state.wakers.len() - 1
        });
        Membership {
            members: Rc::clone(self),
            place,
            told: false,
        }
    }

    /// Tells all members to end.
    pub(crate) fn end(&self) {
        self.ending.set(true);
        let wakers: Vec<_> = self
            .state
            .borrow_mut()
            .wakers
            .iter_mut()
            .filter_map(Option::take)
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
            state.waiting.push(cx.waker().clone());
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

impl Membership {
    /// Ready once, when the members are told to end. To be polled by one task only, whose waker is kept.
    pub(crate) fn poll_end(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.told {
            return Poll::Pending;
        }
        if self.members.ending.get() {
            self.told = true;
            return Poll::Ready(());
        }
        let waker = &mut self.members.state.borrow_mut().wakers[self.place];
        if waker.is_none() {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.members.state.borrow_mut();
        state.count -= 1;
        state.wakers[self.place] = None;
        state.free.push(self.place);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn join(members: &Rc<Members>) -> Option<Membership> {
        match poll(members.join()) {
            Poll::Ready(member) => Some(member),
            Poll::Pending => None,
        }
    }

    #[test]
    fn no_more_than_the_limit() {
        let members = Members::new(2);
        let first = join(&members).unwrap();
        let second = join(&members).unwrap();
        assert!(join(&members).is_none());
        drop(first);
        let third = join(&members).unwrap();
        assert_eq!((members.count(), third.place), (2, 0));
        assert!(poll(members.empty()).is_pending());
        drop((second, third));
        assert!(poll(members.empty()).is_ready());
    }

    #[test]
    fn members_learn_of_the_end_once() {
        let members = Members::new(2);
        let mut member = join(&members).unwrap();
        let cx = Context::from_waker(Waker::noop());
        assert!(member.poll_end(&cx).is_pending());
        members.end();
        assert!(member.poll_end(&cx).is_ready());
        assert!(member.poll_end(&cx).is_pending());
    }
}
