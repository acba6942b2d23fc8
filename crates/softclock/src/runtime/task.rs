//! Tasks: futures that run on the runtime's thread, queued when woken.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};

use async_task::{Runnable, Task};
use pin_project_lite::pin_project;

use super::inner::{Inner, is_entered};

/// A spawned task. Awaiting it returns the task's result. Dropping it lets the task continue.
pub struct JoinHandle<T> {
    task: Option<Task<T>>,
}

impl<T> JoinHandle<T> {
    /// Ends the task: its future is dropped soon, and not polled again.
    pub fn abort(mut self) {
        drop(self.task.take());
    }

    /// Returns whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(Task::is_finished)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    /// Returns the task's result. A panic of the task continues here.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let task = self.task.as_mut().expect("present until dropped");
        // The handle may also be awaited by another executor of the thread.
        if task.is_finished() && is_entered() {
            ready!(Inner::with_current(|runtime| runtime.poll_allowance(cx)));
        }
        Pin::new(task).poll(cx)
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn spawn<F>(self: &Rc<Self>, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let mut active = self.active.borrow_mut();
        let entry = active.vacant_entry();
        let listed = Listed {
            runtime: Rc::downgrade(self),
            index: entry.key(),
        };
        let future = Tracked { future, listed };
        let mailbox = self.mailbox.clone();
        let schedule = move |runnable: Runnable| {
            // On the runtime's own thread, wakers queue the task directly; other threads use the mailbox.
            let mut runnable = Some(runnable);
            Inner::with_id(mailbox.id(), |runtime| {
                if let Some(runnable) = runnable.take() {
                    runtime.on_woken(runnable);
                }
            });
            if let Some(runnable) = runnable {
                mailbox.post_runnable(runnable);
            }
        };
        // A panic ends the task, not the runtime: it continues in the task that awaits the handle.
        let (runnable, task) = async_task::Builder::new()
            .propagate_panic(true)
            .spawn_local(move |()| future, schedule);
        entry.insert(runnable.waker());
        // Released first, since dropping a task borrows the list as well.
        drop(active);
        runnable.schedule();
        JoinHandle { task: Some(task) }
    }

    /// Drops the futures of all tasks and all handlers, which may own owners of the runtime. Their destructors may
    /// wake, spawn and schedule, so this repeats until nothing is left.
    pub(crate) fn drop_tasks(&self) {
        loop {
            // Waking a task moves it to a queue, from which it is dropped below.
            let wakers: Vec<_> = self.active.borrow_mut().drain().collect();
            wakers.into_iter().for_each(|waker| waker.wake());
            let ready = self.ready.take();
            let (posted, calls) = self.mailbox.close();
            let deferred = self.deferred.take();
            drop(self.turn_end.take());
            let events = self.timers.borrow_mut().clear();
            let timeouts = self.timeouts.clear();
            let nothing_left = ready.is_empty() && posted.is_empty() && events.is_empty();
            if nothing_left && calls.is_empty() && deferred.is_empty() && timeouts.is_empty() {
                return;
            }
            drop((ready, posted, calls, deferred, events, timeouts));
        }
    }
}

pin_project! {
    /// A task's future and its entry. An `async` block would reserve memory for the future twice.
    struct Tracked<F> {
        #[pin]
        future: F,
        // Dropped after the future, as fields are dropped in order.
        listed: Listed,
    }
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(cx)
    }
}

/// A task's entry in the list of tasks that have not ended.
struct Listed {
    runtime: Weak<Inner>,
    index: usize,
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.upgrade() {
            let waker = runtime.active.borrow_mut().try_remove(self.index);
            drop(waker);
        }
    }
}
