//! One value that a thread passes to a task of another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The side that provides the value. Dropping it without [`keep`](Self::keep) breaks the promise.
pub(crate) struct Promise<T> {
    shared: Arc<Mutex<State<T>>>,
}

/// The side that waits for the value.
pub(crate) struct Promised<T> {
    shared: Arc<Mutex<State<T>>>,
}

struct State<T> {
    value: Option<T>,
    /// Whether the promise was kept or broken.
    is_settled: bool,
    waker: Option<Waker>,
}

pub(crate) fn promise<T>() -> (Promise<T>, Promised<T>) {
    let shared = Arc::new(Mutex::new(State {
        value: None,
        is_settled: false,
        waker: None,
    }));
    let promised = Promised {
        shared: shared.clone(),
    };
    (Promise { shared }, promised)
}

impl<T> Promise<T> {
    /// Returns whether the other side still exists.
    pub(crate) fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// Passes the value to the other side, and wakes its task.
    pub(crate) fn keep(self, value: T) {
        lock(&self.shared).value = Some(value);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        state.is_settled = true;
        let waker = state.waker.take();
        // Released before waking, so that the woken thread does not wait for the lock.
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Promised<T> {
    /// Returns whether [`poll`](Self::poll) is ready.
    pub(crate) fn is_settled(&self) -> bool {
        lock(&self.shared).is_settled
    }

    /// Ready with the value, or with `None` if the promise was broken or the value was taken.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.shared);
        if state.is_settled {
            return Poll::Ready(state.value.take());
        }
        let waker = cx.waker().clone();
        let replaced = state.waker.replace(waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
