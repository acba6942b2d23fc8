//! The mailbox: how other threads reach a runtime.
//!
//! Wakers and closures from elsewhere are queued here; the runtime empties the queue once a turn, and is
//! woken through an eventfd only if it is blocked. Each task stands in the queue at most once and closures are
//! limited to [`CALLS`], so the queue is bounded.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_task::Runnable;
use softclock_linux::readiness::Wakeup;

/// What other threads know of a runtime.
pub(crate) struct Mailbox {
    /// Tells runtimes apart, process-wide.
    id: u64,
    queue: Mutex<Queue>,
    /// Something was put into the queue since it was last emptied.
    posted: AtomicBool,
    /// The runtime is blocked, or about to be: a post must wake it.
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

/// The mailbox cannot take a closure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// 1024 closures are waiting: the runtime is overloaded, or one of its tasks does not return.
    Full,
    /// The runtime has ended.
    Closed,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the runtime's mailbox is full",
            Self::Closed => "the runtime has ended",
        })
    }
}

impl std::error::Error for PostError {}

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

    /// Queues a woken task.
    pub(crate) fn post_runnable(&self, runnable: Runnable) {
        let mut queue = self.queue();
        if queue.closed {
            // Its future may only be dropped on the runtime's own thread, which has gone.
            mem::forget(runnable);
            return;
        }
        queue.runnables.push_back(runnable);
        drop(queue);
        self.notify();
    }

    pub(crate) fn post_call(&self, call: Call) -> Result<(), PostError> {
        let mut queue = self.queue();
        if queue.closed {
            return Err(PostError::Closed);
        }
        if queue.calls.len() == CALLS {
            return Err(PostError::Full);
        }
        queue.calls.push_back(call);
        drop(queue);
        self.notify();
        Ok(())
    }

    /// Makes the runtime take another turn.
    pub(crate) fn notify(&self) {
        self.posted.store(true, Ordering::SeqCst);
        if self.blocked.load(Ordering::SeqCst) {
            self.wakeup.wake();
        }
    }

    pub(crate) fn is_posted(&self) -> bool {
        self.posted.load(Ordering::Relaxed)
    }

    /// Announces that the runtime will block; false if something was posted, so that it must not.
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

    /// Takes all that was posted.
    pub(crate) fn take(&self) -> (VecDeque<Runnable>, VecDeque<Call>) {
        if !self.posted.swap(false, Ordering::SeqCst) {
            return Default::default();
        }
        let mut queue = self.queue();
        (mem::take(&mut queue.runnables), mem::take(&mut queue.calls))
    }

    /// Refuses what comes from now on, and hands out what has come.
    pub(crate) fn close(&self) -> (VecDeque<Runnable>, VecDeque<Call>) {
        let mut queue = self.queue();
        queue.closed = true;
        (mem::take(&mut queue.runnables), mem::take(&mut queue.calls))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle by which any thread can give a runtime something to do.
#[derive(Clone)]
pub struct Remote {
    mailbox: Arc<Mailbox>,
}

impl Remote {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox }
    }

    /// Runs `f` on the runtime's thread, in one of its next turns; it may spawn tasks there. At most 1024
    /// closures wait at a time.
    pub fn post(&self, f: impl FnOnce() + Send + 'static) -> Result<(), PostError> {
        self.mailbox.post_call(Box::new(f))
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("runtime", &self.mailbox.id)
            .finish()
    }
}

/// Closures that may wait in a mailbox.
const CALLS: usize = 1024;
