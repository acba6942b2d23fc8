//! Tasks: futures that run on the runtime's thread, queued when woken.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::thread;

use async_task::FallibleTask;
use pin_project_lite::pin_project;

use super::active::{Runnable, TaskId};
use super::inner::{Inner, is_entered};
use super::join_error::JoinError;

/// A spawned task. Awaiting it returns the task's result. Dropping it lets the task continue.
///
/// A task that panics ends, and nothing else does: the runtime and all other tasks continue. Awaiting the handle
/// continues the panic in the waiting task, and [`outcome`](Self::outcome) returns it as an error. If the handle was
/// dropped, only the panic hook has seen the panic; the default hook prints it.
///
/// The handle stays on its thread. For a result in another thread, see [`Remote::spawn`](crate::Remote::spawn).
///
/// # Cancel safety
/// Await `&mut handle` to stop waiting and wait again later: no result is lost. A dropped handle loses the result, and
/// the task continues.
///
/// # Panics
/// When awaited, if the task has panicked or was aborted, and if its result was taken before.
pub struct JoinHandle<T> {
    /// `None` once the result was taken.
    task: Option<FallibleTask<T, TaskId>>,
    abort: AbortHandle,
}

impl<T> JoinHandle<T> {
    /// Waits for the end of the task, and returns its result or the reason why there is none.
    ///
    /// # Errors
    /// [`JoinError`] if the task has panicked, was aborted, or has been dropped with its runtime.
    ///
    /// # Panics
    /// If the result was taken before.
    ///
    /// # Cancel safety
    /// If the future is dropped, no result is lost: call this again.
    pub async fn outcome(&mut self) -> Result<T, JoinError> {
        poll_fn(|cx| self.poll_outcome(cx)).await
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        let task = self.task.as_mut().expect(TAKEN);
        // The handle may also be awaited by another executor of the thread.
        if task.is_finished() && is_entered() {
            ready!(Inner::with_current(|runtime| runtime.poll_allowance(cx)));
        }
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(task).poll(cx)));
        let outcome = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => result.ok_or_else(JoinError::aborted),
            Err(panic) => Err(JoinError::panicked(panic)),
        };
        self.task = None;
        Poll::Ready(outcome)
    }

    /// Ends the task: its future is dropped soon, and not polled again.
    pub fn abort(mut self) {
        drop(self.task.take());
    }

    /// Returns a handle that can abort the task while another place waits for its end. Allocates nothing.
    pub fn abort_handle(&self) -> AbortHandle {
        self.abort.clone()
    }

    /// Returns whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(FallibleTask::is_finished)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match ready!(self.poll_outcome(cx)) {
            Ok(result) => Poll::Ready(result),
            Err(error) => error.panic(),
        }
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

/// Aborts a task, while another place waits for its end. Created by [`JoinHandle::abort_handle`]. Keeps neither the
/// task nor the runtime alive.
///
/// # Example
/// ```
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let mut task = softclock::spawn_local(std::future::pending::<()>());
///     let abort = task.abort_handle();
///     softclock::spawn_local(async move { abort.abort() });
///     assert!(task.outcome().await.unwrap_err().is_aborted());
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AbortHandle {
    runtime: Weak<Inner>,
    id: TaskId,
}

impl AbortHandle {
    /// Ends the task: its future is dropped in one of the next turns, and not polled again. Then tasks that wait for
    /// its end continue. A task that completes in its current poll keeps its result. Does nothing if the task has
    /// ended.
    pub fn abort(&self) {
        if let Some(runtime) = self.runtime.upgrade() {
            let waker = runtime.active.borrow_mut().abort(self.id);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns whether the task has ended.
    pub fn is_finished(&self) -> bool {
        let runtime = self.runtime.upgrade();
        runtime.is_none_or(|runtime| !runtime.active.borrow().contains(self.id))
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle")
            .field("is_finished", &self.is_finished())
            .finish()
    }
}

impl Inner {
    pub(crate) fn spawn<F>(self: &Rc<Self>, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let id = self.active.borrow_mut().next_id();
        let runtime = Rc::downgrade(self);
        let listed = Listed(AbortHandle { runtime, id });
        let abort = listed.0.clone();
        let future = Tracked {
            future: Some(future),
            listed,
        };
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
            .metadata(id)
            .spawn_local(move |_| future, schedule);
        self.active.borrow_mut().insert(id, runnable.waker());
        runnable.schedule();
        let task = Some(task.fallible());
        JoinHandle { task, abort }
    }

    /// Polls a task, or drops it if it was aborted.
    #[inline]
    pub(super) fn run_task(&self, task: Runnable) {
        let is_aborted = self.active.borrow().is_aborted(*task.metadata());
        if !is_aborted {
            self.running.set(Some(*task.metadata()));
            task.run();
        }
    }

    /// Drops the futures of all tasks and all handlers, which may own owners of the runtime. Their destructors may
    /// wake, spawn and schedule, so this repeats until nothing is left.
    pub(crate) fn drop_tasks(&self) {
        loop {
            // Waking a task moves it to a queue, from which it is dropped below.
            let wakers = self.active.borrow().wakers();
            wakers.into_iter().for_each(Waker::wake);
            let ready = self.ready.take();
            let (posted, calls) = self.mailbox.close();
            let deferred = self.deferred.take();
            drop(self.turn_end.take());
            let events = self.timers.borrow_mut().clear();
            let timeouts = self.timeouts.clear();
            let unreleased = self.unreleased.take();
            let nothing_left = ready.is_empty() && posted.is_empty() && events.is_empty();
            let nothing_left = nothing_left && calls.is_empty() && deferred.is_empty();
            if nothing_left && timeouts.is_empty() && unreleased.is_empty() {
                if self.active.borrow().is_empty() {
                    return;
                }
                // Another thread is waking the tasks that are left, and has not posted them yet.
                thread::yield_now();
            }
            drop((ready, posted, calls, deferred, events, timeouts, unreleased));
        }
    }
}

pin_project! {
    /// A task's future, until it has ended, and its entry. An `async` block would reserve memory for the future twice.
    struct Tracked<F> {
        #[pin]
        future: Option<F>,
        // Dropped after the future, as fields are dropped in order.
        listed: Listed,
    }

    impl<F> PinnedDrop for Tracked<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            // A panic here would abort the process. The hook has reported it.
            let _panic = catch_unwind(AssertUnwindSafe(|| this.future.set(None)));
        }
    }
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let future = this.future.as_mut().as_pin_mut();
        let output = ready!(future.expect("a task is not polled after its end").poll(cx));
        this.future.set(None);
        Poll::Ready(output)
    }
}

/// A task's entry in the table of tasks that have not ended.
struct Listed(AbortHandle);

impl Drop for Listed {
    fn drop(&mut self) {
        let Self(AbortHandle { runtime, id }) = self;
        if let Some(runtime) = runtime.upgrade() {
            let waker = runtime.active.borrow_mut().remove(*id);
            drop(waker);
        }
    }
}

const TAKEN: &str = "the result of this task was taken before: await a JoinHandle once";
