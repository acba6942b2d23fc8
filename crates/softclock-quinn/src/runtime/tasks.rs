//! The tasks that quinn starts outside of the runtime, as other threads do when they open connections.
//!
//! quinn starts them while it holds the lock of an endpoint, so that this must neither fail nor wait. A task of the
//! runtime takes them over: its wake-ups are not limited in number, as the closures of a mailbox are.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;

pub(super) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The side of quinn. Its end ends the task of the runtime.
pub(super) struct Tasks(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    runtime: AtomicWaker,
}

#[derive(Default)]
struct State {
    waiting: Vec<Task>,
    /// Whether either side has ended.
    is_closed: bool,
}

impl Tasks {
    /// Starts the task that takes tasks over. Call it on the runtime's thread.
    pub(super) fn of(runtime: &softclock::Runtime) -> Self {
        let shared = Arc::new(Shared::default());
        let closing = CloseOnDrop(shared.clone());
        drop(runtime.spawn_local(async move {
            poll_fn(|cx| closing.0.poll(cx)).await;
        }));
        Self(shared)
    }

    /// Leaves a task for the runtime, which drops it if it has ended.
    pub(super) fn push(&self, task: Task) {
        let mut state = self.0.state();
        if state.is_closed {
            // After the lock, as all that is dropped here.
            drop(state);
            return drop(task);
        }
        state.waiting.push(task);
        drop(state);
        self.0.runtime.wake();
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.runtime.wake();
    }
}

impl Shared {
    /// Takes tasks over until quinn's side has ended.
    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        // Registered before the look: a later task wakes this one.
        self.runtime.register(cx.waker());
        let mut state = self.state();
        let (waiting, is_closed) = (mem::take(&mut state.waiting), state.is_closed);
        drop(state);
        for task in waiting {
            drop(softclock::spawn_local(task));
        }
        match is_closed {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side of the runtime.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_closed = true;
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
    }
}
