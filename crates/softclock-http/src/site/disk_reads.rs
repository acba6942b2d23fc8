//! Limits the reads of a thread that wait for a disk.
//!
//! Such a read keeps its file open until it ends, and an HTTP/2 connection may have one for each stream. To keep the
//! budget of open files ([`open_files`](crate::site::open_files)), a thread has at most [`READS`] reads in progress;
//! others wait for their turn, in order. More reads at a time would only wait for helper threads instead.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

/// A slot among the reads in progress, or the wait for one. Dropping it frees the slot, or leaves the queue.
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
    /// Takes a free slot, or joins the queue.
    pub(crate) fn ask() -> Self {
        let state = Rc::<State>::default();
        READS_OF_THREAD.with_borrow_mut(|reads| reads.add(&state));
        Self(state)
    }

    /// Ready when the slot is taken.
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
            // When the thread ends, its queue may have been destroyed already.
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
        // Abandoned waits are removed only when the queue would have to grow, so that adding is O(1) on average.
        if self.waiting.len() == self.waiting.capacity() {
            self.waiting.retain(|waiting| waiting.strong_count() > 0);
        }
        self.waiting.push_back(Rc::downgrade(state));
    }

    /// Gives the slot of an ended read to the next waiting one; returns the waker of its task.
    fn pass_on(&mut self) -> Option<Waker> {
        while let Some(waiting) = self.waiting.pop_front() {
            if let Some(state) = waiting.upgrade() {
                state.has_come.set(true);
                return state.waker.take();
            }
        }
        // No read waits, so the slot becomes free.
        self.underway -= 1;
        None
    }
}

/// The number of reads of this thread that wait for a slot.
#[cfg(test)]
pub(crate) fn waiting() -> usize {
    READS_OF_THREAD.with_borrow(|reads| {
        let waiting = reads.waiting.iter();
        waiting.filter(|turn| turn.strong_count() > 0).count()
    })
}

thread_local! {
    static READS_OF_THREAD: RefCell<Reads> = RefCell::default();
}

/// Enough to keep all helper threads busy, which are fewer.
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
        // An unused slot goes to the next in the queue.
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
