//! The mailbox, through which other threads reach a runtime.
//!
//! Other threads queue wakers and closures here. The runtime empties the queue once per turn, and is woken through an
//! eventfd only if it blocks. Each task is queued at most once and the number of closures is limited to [`CALLS`], so
//! the queue is bounded.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use softclock_linux::readiness::Wakeup;

use super::active::Runnable;

/// The part of a runtime that other threads can access.
pub(crate) struct Mailbox {
    /// Identifies the runtime within the process.
    id: u64,
    queue: Mutex<Queue>,
    /// Whether entries were added to the queue since it was last emptied.
    posted: AtomicBool,
    /// Whether the runtime blocks or is about to, so that a post must wake it.
    blocked: AtomicBool,
    wakeup: Wakeup,
}

#[derive(Default)]
struct Queue {
    runnables: VecDeque<Runnable>,
    calls: VecDeque<Call>,
    closed: bool,
}

pub(crate) type Call = Box<dyn FnOnce() + Send>;

/// The reason why a runtime did not accept a closure, with the closure.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError<F> {
    /// 1024 closures are waiting: the runtime is overloaded, one of its tasks does not return, or it is not in
    /// `block_on`. Try again later.
    Full(F),
    /// The runtime has ended.
    Closed(F),
}

impl<F> PostError<F> {
    /// Returns the closure that was not accepted.
    pub fn into_inner(self) -> F {
        match self {
            Self::Full(f) | Self::Closed(f) => f,
        }
    }
}

impl<F> fmt::Display for PostError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the runtime's mailbox is full",
            Self::Closed(_) => "the runtime has ended",
        })
    }
}

impl<F> fmt::Debug for PostError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<F> std::error::Error for PostError<F> {}

impl Mailbox {
    pub(crate) fn new(wakeup: Wakeup) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            queue: Mutex::default(),
            posted: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            wakeup,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Queues a woken task. A runtime ends only after all of its tasks, so that it takes this one.
    pub(crate) fn post_runnable(&self, runnable: Runnable) {
        self.queue().runnables.push_back(runnable);
        self.notify();
    }

    /// Queues the call that `make` makes of `closure`.
    pub(crate) fn post_call<F>(
        &self,
        closure: F,
        make: impl FnOnce(F) -> Call,
    ) -> Result<(), PostError<F>> {
        let mut queue = self.queue();
        if queue.closed {
            return Err(PostError::Closed(closure));
        }
        if queue.calls.len() == CALLS {
            return Err(PostError::Full(closure));
        }
        queue.calls.push_back(make(closure));
        drop(queue);
        self.notify();
        Ok(())
    }

    /// Makes the runtime take another turn.
    pub(crate) fn notify(&self) {
        // The order of the two accesses matters: `announce_block` accesses them in the opposite order, so that at
        // least one side sees the other.
        self.posted.store(true, Ordering::SeqCst);
        if self.blocked.load(Ordering::SeqCst) {
            self.wakeup.wake();
        }
    }

    pub(crate) fn is_posted(&self) -> bool {
        self.posted.load(Ordering::Relaxed)
    }

    /// Announces that the runtime will block. Returns false if an entry was posted, so that it must not.
    pub(crate) fn announce_block(&self) -> bool {
        self.blocked.store(true, Ordering::SeqCst);
        let free = !self.posted.load(Ordering::SeqCst);
        if !free {
            self.blocked.store(false, Ordering::Relaxed);
        }
        free
    }

    pub(crate) fn end_block(&self) {
        self.blocked.store(false, Ordering::SeqCst);
    }

    /// Takes all entries.
    pub(crate) fn take(&self) -> (VecDeque<Runnable>, VecDeque<Call>) {
        // Cleared before the queue is read: a later post sets it again.
        if !self.posted.swap(false, Ordering::SeqCst) {
            return Default::default();
        }
        let mut queue = self.queue();
        (mem::take(&mut queue.runnables), mem::take(&mut queue.calls))
    }

    /// Rejects closures from now on, and returns the entries queued so far.
    pub(crate) fn close(&self) -> (VecDeque<Runnable>, VecDeque<Call>) {
        let mut queue = self.queue();
        // Under the lock, so that no closure can slip in behind the entries returned here.
        queue.closed = true;
        (mem::take(&mut queue.runnables), mem::take(&mut queue.calls))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Capacity of a mailbox in closures.
const CALLS: usize = 1024;
