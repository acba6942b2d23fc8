//! The limit of the connections of all threads together.
//!
//! The limit is for the whole server, not for each thread: the kernel spreads connections over the threads unevenly, so
//! that one thread would make clients wait, or close idle connections, while another has room. Room goes to the threads
//! in the order in which they began to wait for it, and a thread that waits can ask the others to make some.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The limit and the count of the connections of all threads. Each operation takes a lock, for a time in proportion to
/// the number of threads.
#[derive(Debug)]
pub(crate) struct Capacity {
    threads: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    limit: usize,
    open: usize,
    /// The tasks that wait for room, by number. While there are any, there is none.
    queue: VecDeque<(u64, Waker)>,
    next_number: u64,
    /// The number of times that threads were asked to make room.
    asked: u64,
    /// Tasks that make room when they are asked to.
    keepers: Vec<Waker>,
}

impl Capacity {
    pub(crate) fn new(limit: usize, threads: usize) -> Arc<Self> {
        let state = State {
            limit,
            ..State::default()
        };
        Arc::new(Self {
            threads,
            state: state.into(),
        })
    }

    /// Returns the largest number of connections.
    pub(super) fn limit(&self) -> usize {
        self.lock().limit
    }

    /// Returns the part of the limit that is one thread's if all have equally many connections, rounded up.
    pub(super) fn share(&self) -> usize {
        self.limit().div_ceil(self.threads)
    }

    /// Changes the limit. Connections beyond a lower limit stay until they end by themselves.
    pub(super) fn set_limit(&self, limit: usize) {
        let mut state = self.lock();
        state.limit = limit;
        fill(state);
    }

    /// Counts a connection, until [`leave`](Self::leave). Returns false if there is no room for it.
    pub(super) fn enter(&self) -> bool {
        let mut state = self.lock();
        let has_room = state.open < state.limit;
        state.open += usize::from(has_room);
        has_room
    }

    /// Counts a connection no more.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        state.open -= 1;
        fill(state);
    }

    /// Returns a place in the queue for room, which begins when it is first polled.
    pub(super) fn queue(&self) -> Queued<'_> {
        Queued {
            capacity: self,
            number: None,
        }
    }

    /// Asks the other threads to close connections that wait for their clients.
    pub(super) fn ask(&self) {
        let mut state = self.lock();
        state.asked += 1;
        let keepers = std::mem::take(&mut state.keepers);
        drop(state);
        keepers.into_iter().for_each(Waker::wake);
    }

    /// Ready when the threads were asked for room since the count `seen`, which is updated.
    pub(super) fn poll_asked(&self, seen: &mut u64, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if std::mem::replace(seen, state.asked) != state.asked {
            return Poll::Ready(());
        }
        let keepers = &mut state.keepers;
        if !keepers.iter().any(|keeper| keeper.will_wake(cx.waker())) {
            keepers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Locks the state, ignoring poison: no operation on it leaves it inconsistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the room that there is to the tasks that wait for it, and wakes them without the lock.
fn fill(mut state: MutexGuard<'_, State>) {
    let room = state.limit.saturating_sub(state.open);
    let count = room.min(state.queue.len());
    state.open += count;
    let entered: Vec<_> = state.queue.drain(..count).collect();
    drop(state);
    entered.into_iter().for_each(|(_, waker)| waker.wake());
}

/// A place in the queue for room, given up when dropped.
pub(super) struct Queued<'a> {
    capacity: &'a Capacity,
    /// `None` before it waits, and when it has entered.
    number: Option<u64>,
}

impl Queued<'_> {
    /// Ready once, when a connection of this task is counted, until [`leave`](Capacity::leave).
    pub(super) fn poll_enter(&mut self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.capacity.lock();
        let Some(number) = self.number else {
            if state.open < state.limit {
                state.open += 1;
                return Poll::Ready(());
            }
            let number = state.next_number;
            state.next_number += 1;
            state.queue.push_back((number, cx.waker().clone()));
            self.number = Some(number);
            return Poll::Pending;
        };
        match state.queue.iter_mut().find(|(other, _)| *other == number) {
            Some((_, waker)) => {
                waker.clone_from(cx.waker());
                Poll::Pending
            }
            None => {
                self.number = None;
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else {
            return;
        };
        let mut state = self.capacity.lock();
        let before = state.queue.len();
        state.queue.retain(|(other, _)| *other != number);
        let has_entered = state.queue.len() == before;
        drop(state);
        if has_entered {
            self.capacity.leave();
        }
    }
}
