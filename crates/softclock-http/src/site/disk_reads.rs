//! Turns of the reads that wait for a disk.
//!
//! Such a read has its file open as long as it lasts, and a connection of HTTP/2 may have one for each stream. So that
//! the budget of open files holds ([`open_files`](crate::site::open_files)), a thread has [`READS`] underway at most,
//! and others wait for their turn, in order: more at a time would only wait for the helper threads instead.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

/// A place among the reads that are underway, or the wait for one. Given back, or up, when dropped.
pub(crate) struct Turn(Rc<State>);

#[derive(Default)]
struct State {
    has_come: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

#[derive(Default)]
struct Reads {
    underway: usize,
    waiting: VecDeque<Weak<State>>,
}

impl Turn {
    /// Takes a free place, or begins to wait for one.
    pub(crate) fn ask() -> Self {
        let state = Rc::<State>::default();
        READS_OF_THREAD.with_borrow_mut(|reads| reads.add(&state));
        Self(state)
    }

    /// Ready when the turn has come.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if self.0.has_come.get() {
            return Poll::Ready(());
        }
        self.0.waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.0.has_come.get() {
            // At the thread's end nothing waits any more.
            let next = READS_OF_THREAD.try_with(|reads| reads.borrow_mut().pass_on());
            next.ok().flatten().into_iter().for_each(Waker::wake);
        }
    }
}

impl Reads {
    fn add(&mut self, state: &Rc<State>) {
        if self.underway < READS {
            self.underway += 1;
            return state.has_come.set(true);
        }
        // Those that were given up go before memory grows for them.
        if self.waiting.len() == self.waiting.capacity() {
            self.waiting.retain(|waiting| waiting.strong_count() > 0);
        }
        self.waiting.push_back(Rc::downgrade(state));
    }

    /// A read has ended: the next has its place.
    fn pass_on(&mut self) -> Option<Waker> {
        while let Some(waiting) = self.waiting.pop_front() {
            if let Some(state) = waiting.upgrade() {
                state.has_come.set(true);
                return state.waker.take();
            }
        }
        self.underway -= 1;
        None
    }
}

thread_local! {
    static READS_OF_THREAD: RefCell<Reads> = RefCell::default();
}

/// Enough to keep the helper threads at work, of which there are fewer.
pub(crate) const READS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn has_come(turn: &Turn) -> bool {
        turn.poll(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn turns_come_in_order() {
        let mut underway: Vec<_> = (0..READS).map(|_| Turn::ask()).collect();
        assert!(underway.iter().all(has_come));
        let mut waiting: Vec<_> = (0..3).map(|_| Turn::ask()).collect();
        assert!(!waiting.iter().any(has_come));
        drop(waiting.remove(0));
        underway.pop();
        let come: Vec<_> = waiting.iter().map(has_come).collect();
        assert_eq!(come, [true, false]);
        // A turn that has come and is not used is passed on.
        drop(waiting.remove(0));
        assert!(has_come(&waiting[0]));
        drop((underway, waiting));
        READS_OF_THREAD.with_borrow(|reads| assert_eq!(reads.underway, 0));
    }

    #[test]
    fn waits_that_are_given_up_hold_no_memory() {
        let _underway: Vec<_> = (0..READS).map(|_| Turn::ask()).collect();
        for _ in 0..10_000 {
            drop(Turn::ask());
        }
        READS_OF_THREAD.with_borrow(|reads| assert!(reads.waiting.len() < 100));
    }
}
