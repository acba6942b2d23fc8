//! Sets of tasks: their ends are awaited together.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use slab::Slab;

use super::inner::{Inner, is_entered};
use super::join_error::JoinError;
use super::reported::Reported;
use super::task::AbortHandle;

/// A set of tasks with results of one type, which are returned in the order in which the tasks end. Dropping the set
/// aborts its tasks.
///
/// A task of the set that panics is one result, a [`JoinError`]; the other tasks continue. Spawning and waiting take
/// the same time however many tasks there are. The set has no limit: wait for a result before each spawn beyond the
/// number of tasks that may run.
///
/// # Example
/// ```
/// use softclock::JoinSet;
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let mut tasks = JoinSet::new();
///     for n in 1..=10 {
///         tasks.spawn_local(async move { n * n });
///     }
///     let mut sum = 0;
///     while let Some(square) = tasks.join_next().await {
///         sum += square.expect("no task panics");
///     }
///     assert_eq!(sum, 385);
/// });
/// # Ok(())
/// # }
/// ```
pub struct JoinSet<T> {
    shared: Rc<RefCell<Shared<T>>>,
}

struct Shared<T> {
    running: Slab<AbortHandle>,
    /// The outcomes of tasks that have ended, the earliest first.
    ended: VecDeque<Result<T, JoinError>>,
    /// The task that waits for an outcome.
    waiting: Option<Waker>,
}

impl<T> JoinSet<T> {
    /// Creates an empty set. It needs no runtime.
    pub fn new() -> Self {
        Self {
            shared: Rc::new(RefCell::new(Shared {
                running: Slab::new(),
                ended: VecDeque::new(),
                waiting: None,
            })),
        }
    }

    /// Starts a task of the set, like [`spawn_local`](crate::spawn_local).
    ///
    /// # Panics
    /// If called outside a runtime.
    pub fn spawn_local<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
        T: 'static,
    {
        Inner::with_current(|runtime| {
            let key = self.shared.borrow().running.vacant_key();
            let shared = Rc::downgrade(&self.shared);
            let future = Reported::new(future, move |outcome| {
                if let Some(shared) = shared.upgrade() {
                    let waiting = shared.borrow_mut().on_end(key, outcome);
                    waiting.into_iter().for_each(Waker::wake);
                }
            });
            let task = runtime.spawn(future).abort_handle();
            let inserted = self.shared.borrow_mut().running.insert(task.clone());
            debug_assert_eq!(inserted, key);
            task
        })
    }

    /// Waits until a task of the set ends, removes it, and returns its outcome; `None` if the set is empty.
    ///
    /// # Cancel safety
    /// If the future is dropped, no outcome is lost and all tasks continue.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// Like [`join_next`](Self::join_next), for hand-written futures. Wakes the task that called it last.
    pub fn poll_join_next(&mut self, cx: &Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        let mut shared = self.shared.borrow_mut();
        if shared.ended.is_empty() && !shared.running.is_empty() {
            let replaced = shared.waiting.replace(cx.waker().clone());
            drop(shared);
            drop(replaced);
            return Poll::Pending;
        }
        drop(shared);
        if is_entered() {
            ready!(Inner::with_current(|runtime| runtime.poll_allowance(cx)));
        }
        Poll::Ready(self.try_join_next())
    }

    /// Removes a task that has ended and returns its outcome; `None` if there is no such task.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.shared.borrow_mut().ended.pop_front()
    }

    /// Aborts all tasks, as [`AbortHandle::abort`] does. They stay in the set until their outcomes are taken.
    pub fn abort_all(&mut self) {
        for (_, task) in &self.shared.borrow().running {
            task.abort();
        }
    }

    /// Aborts all tasks, and waits until their futures are dropped. Discards all outcomes, panics included.
    ///
    /// # Cancel safety
    /// If the future is dropped, the tasks are aborted nevertheless, and some of the outcomes are discarded.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }

    /// Returns the number of tasks in the set: those that run, and those that have ended with outcomes that
    /// were not taken.
    pub fn len(&self) -> usize {
        let shared = self.shared.borrow();
        shared.running.len() + shared.ended.len()
    }

    /// Returns whether the set has no task.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Shared<T> {
    /// Records the end of a task, and returns the waker of the task that waits for it.
    fn on_end(&mut self, key: usize, outcome: Result<T, JoinError>) -> Option<Waker> {
        self.running.remove(key);
        self.ended.push_back(outcome);
        self.waiting.take()
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}
