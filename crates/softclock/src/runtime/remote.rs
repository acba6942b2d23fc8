//! Access to a runtime from other threads: closures, and tasks that return results to them.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use atomic_waker::AtomicWaker;

use super::inner::{Inner, is_entered};
use super::join_error::JoinError;
use super::mailbox::{Mailbox, PostError};
use super::promise::{Promised, promise};
use super::reported::Reported;

/// Returns a handle through which other threads reach the current runtime.
///
/// # Panics
/// If called outside a runtime.
pub fn remote() -> Remote {
    Inner::with_current(|runtime| Remote::new(runtime.mailbox.clone()))
}

/// Like [`remote`], but returns `None` outside a runtime. A library that also runs elsewhere calls it to find out
/// whether it may use softclock's timers and sockets. It is the counterpart of tokio's `Handle::try_current`.
///
/// # Example
/// ```
/// # fn main() -> std::io::Result<()> {
/// assert!(softclock::try_remote().is_none());
/// softclock::Runtime::new()?.block_on(async {
///     assert!(softclock::try_remote().is_some());
/// });
/// # Ok(())
/// # }
/// ```
pub fn try_remote() -> Option<Remote> {
    is_entered().then(remote)
}

/// A handle through which any thread can run closures and tasks on a runtime's thread. It does not keep the runtime
/// alive.
///
/// # Example
/// Another thread has a task run by the runtime, and waits for its result:
/// ```
/// use futures_lite::future::block_on;
/// use softclock::net::UdpSocket;
/// use std::thread;
///
/// # fn main() -> std::io::Result<()> {
/// let address = softclock::Runtime::new()?.block_on(async {
///     let remote = softclock::remote();
///     let other = thread::spawn(move || {
///         let task = remote.spawn(|| async {
///             // Sockets stay on the thread of their runtime; their addresses may leave it.
///             UdpSocket::bind(([127, 0, 0, 1], 0))?.local_addr()
///         });
///         block_on(task.expect("the runtime has room")).expect("the task does not panic")
///     });
///     softclock::spawn_blocking(|| other.join().expect("no panic")).await
/// })?;
/// assert!(address.ip().is_loopback());
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

    /// Runs `f` on the runtime's thread, in one of its next turns within `block_on`. `f` may spawn tasks there. A panic
    /// of `f` ends `block_on`, and drops the closures of the same turn: use [`spawn`](Self::spawn) for code that may
    /// panic.
    ///
    /// A closure that has not run when the runtime ends is dropped, on the runtime's thread.
    ///
    /// # Errors
    /// [`PostError`] with `f` if 1024 closures are waiting, or the runtime has ended.
    pub fn post<F: FnOnce() + Send + 'static>(&self, f: F) -> Result<(), PostError<F>> {
        self.mailbox.post_call(f, |f| Box::new(f))
    }

    /// Starts a task on the runtime's thread: `make` is called there, and the future that it returns need not be
    /// `Send`. Returns a handle that any executor in any thread can await. Dropping it lets the task continue.
    ///
    /// A panic of `make` or of the future ends the task, and is returned by the handle.
    ///
    /// # Errors
    /// [`PostError`] with `make` if 1024 closures are waiting, or the runtime has ended.
    pub fn spawn<F, Fut>(&self, make: F) -> Result<RemoteHandle<Fut::Output>, PostError<F>>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        let (promise, promised) = promise();
        let abort = Arc::new(Abort::default());
        let handle = RemoteHandle {
            promised,
            abort: abort.clone(),
        };
        let report = |outcome: Result<Option<_>, _>| {
            promise.keep(outcome.and_then(|result| result.ok_or_else(JoinError::aborted)));
        };
        let posted = self.mailbox.post_call(make, |make| {
            Box::new(move || {
                let task = Reported::new(run(make, abort), report);
                Inner::with_current(|runtime| drop(runtime.spawn(task)));
            })
        });
        posted.map(|()| handle)
    }
}

/// Runs the future that `make` returns. Returns `None` if it is aborted before its end.
async fn run<Fut: Future>(make: impl FnOnce() -> Fut, abort: Arc<Abort>) -> Option<Fut::Output> {
    if abort.is_set.load(Ordering::Acquire) {
        return None;
    }
    let mut future = pin!(make());
    poll_fn(|cx| {
        if abort.poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// The request of a handle to end its task.
#[derive(Default)]
struct Abort {
    is_set: AtomicBool,
    task: AtomicWaker,
}

impl Abort {
    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        // Registered before the look: a later request wakes the task.
        self.task.register(cx.waker());
        match self.is_set.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

/// A task that was started by [`Remote::spawn`]. Awaiting it, on any executor, returns the task's result. Dropping it
/// lets the task continue.
///
/// # Errors
/// When awaited, [`JoinError`] if the task has panicked, was aborted, or has been dropped with its runtime.
///
/// # Cancel safety
/// Await `&mut handle` to stop waiting and wait again later: no result is lost. A handle that is awaited after it has
/// returned a result says that the task was aborted.
#[must_use = "dropping it discards the result"]
pub struct RemoteHandle<T> {
    promised: Promised<Result<T, JoinError>>,
    abort: Arc<Abort>,
}

impl<T> RemoteHandle<T> {
    /// Ends the task: the runtime's thread drops its future soon, and does not poll it again. Does nothing if the task
    /// has ended.
    pub fn abort(&self) {
        self.abort.is_set.store(true, Ordering::Release);
        self.abort.task.wake();
    }

    /// Returns whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.promised.is_settled()
    }
}

impl<T> fmt::Debug for RemoteHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteHandle")
            .field("is_finished", &self.is_finished())
            .finish()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("runtime", &self.mailbox.id())
            .finish()
    }
}

impl<T> Future for RemoteHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if is_entered() && self.promised.is_settled() {
            ready!(Inner::with_current(|runtime| runtime.poll_allowance(cx)));
        }
        let outcome = ready!(self.promised.poll(cx));
        // A promise that was not kept was dropped with its runtime.
        Poll::Ready(outcome.unwrap_or_else(|| Err(JoinError::aborted())))
    }
}
