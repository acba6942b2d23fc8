//! The mailbox, through which other threads reach a runtime.
//!
//! Other threads queue wakers and closures here. The runtime empties the queue once per turn, and is woken through an
//! eventfd only if it blocks. Each task is queued at most once and the number of closures is limited to [`CALLS`], so
//! the queue is bounded.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_task::Runnable;
use softclock_linux::readiness::Wakeup;

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

/// The reason why a mailbox did not accept a closure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The queue already holds 1024 closures: the runtime is overloaded, or one of its tasks does not return.
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
            // The task's future may be dropped only on the runtime's own thread, which has ended.
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
        // The order of the two accesses matters: `announce_block` accesses them in the opposite order, so that at
        // least one
        // side sees the other.
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

    /// Rejects entries from now on, and returns those queued so far.
    pub(crate) fn close(&self) -> (VecDeque<Runnable>, VecDeque<Call>) {
        let mut queue = self.queue();
        // Under the lock, so that no post can slip in behind the entries returned here.
        queue.closed = true;
        (mem::take(&mut queue.runnables), mem::take(&mut queue.calls))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle through which any thread can run closures on a runtime's thread.
///
/// # Example
/// ```
/// use softclock::{PostError, Runtime};
/// use std::sync::mpsc;
/// use std::thread;
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// let runtime = Runtime::new()?;
/// let remote = runtime.remote();
/// let (sender, receiver) = mpsc::channel();
/// let other = thread::spawn(move || {
///     remote.post(move || sender.send(thread::current().id()).expect("is received"))
/// });
/// runtime.block_on(async {
///     let ran_on = loop {
///         match receiver.try_recv() {
///             Ok(id) => break id,
///             Err(_) => softclock::sleep(Duration::from_millis(1)).await,
///         }
///     };
///     assert_eq!(ran_on, thread::current().id());
/// });
/// assert_eq!(other.join().expect("no panic"), Ok::<(), PostError>(()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Remote {
    mailbox: Arc<Mailbox>,
}

impl Remote {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox }
    }

    /// Runs `f` on the runtime's thread, in one of its next turns. `f` may spawn tasks there. At most 1024 closures
    /// may be waiting.
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

/// Capacity of a mailbox in closures.
const CALLS: usize = 1024;
