//! The helper pool: threads for calls that block, such as disk reads (the helper processes of *Flash*, Pai, Druschel
//! and Zwaenepoel, USENIX 1999).
//!
//! There is one pool per process, with at most [`THREADS`] threads, started as needed. A thread that has been idle
//! for ten seconds ends. The queue holds [`QUEUE`] jobs; further tasks wait for room.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use std::{mem, process, thread};

use crate::runtime::inner::{Inner, is_entered};
use crate::runtime::promise::{Promised, promise};

/// Runs `f` on a helper thread and waits for its result without blocking the loop.
///
/// A panic of `f` continues in the caller. Works on any executor, also outside a runtime.
///
/// # Example
/// ```
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let version = softclock::spawn_blocking(|| std::fs::read("/proc/version")).await;
///     println!("{} bytes", version?.len());
///     std::io::Result::Ok(())
/// })
/// # }
/// ```
///
/// # Cancel safety
/// If the future is dropped before `f` has begun, `f` does not run. Later, `f` runs to its end and its result is
/// discarded.
pub fn spawn_blocking<F, R>(f: F) -> impl Future<Output = R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let (promise, promised) = promise();
    let job = move || {
        // Otherwise the future was dropped before its job began: the result would have no receiver.
        if promise.is_wanted() {
            promise.keep(catch_unwind(AssertUnwindSafe(f)));
        }
    };
    SpawnBlocking {
        job: Some(Box::new(job)),
        promised,
    }
}

struct SpawnBlocking<R> {
    /// The job, until the queue had room for it.
    job: Option<Job>,
    promised: Promised<thread::Result<R>>,
}

type Job = Box<dyn FnOnce() + Send>;

impl<R> Future for SpawnBlocking<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let this = &mut *self;
        if is_entered() && this.promised.is_settled() {
            ready!(Inner::with_current(|runtime| runtime.poll_allowance(cx)));
        }
        // The waker is stored before the job is submitted, which may end before this function returns.
        if let Poll::Ready(result) = this.promised.poll(cx) {
            return match result.expect("the pool runs every job, and its result is taken once") {
                Ok(value) => Poll::Ready(value),
                Err(panic) => resume_unwind(panic),
            };
        }
        if let Some(job) = this.job.take() {
            this.job = POOL.submit(job, cx.waker());
        }
        Poll::Pending
    }
}

struct Pool {
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    /// Tasks whose job did not fit into the queue.
    waiting: Vec<Waker>,
    threads: usize,
    idle: usize,
    /// The process that has the threads: they do not come along with a fork.
    process: u32,
}

static POOL: Pool = Pool {
    state: Mutex::new(State {
        jobs: VecDeque::new(),
        waiting: Vec::new(),
        threads: 0,
        idle: 0,
        process: 0,
    }),
    work: Condvar::new(),
};

impl Pool {
    /// Queues `job`, or returns it if the queue is full, to wake `waker` when there is room.
    fn submit(&'static self, job: Job, waker: &Waker) -> Option<Job> {
        let mut state = lock(&self.state);
        let process = process::id();
        if mem::replace(&mut state.process, process) != process {
            (state.threads, state.idle) = (0, 0);
        }
        if state.jobs.len() >= QUEUE {
            if !state.waiting.iter().any(|other| other.will_wake(waker)) {
                state.waiting.push(waker.clone());
            }
            return Some(job);
        }
        // Each idle thread will take one queued job; one more job needs one more thread.
        if state.jobs.len() >= state.idle && state.threads < THREADS && self.start_thread() {
            state.threads += 1;
        }
        if state.threads == 0 {
            // No thread could be started. Blocking the loop once is better than never running the job.
            drop(state);
            run(job);
            return None;
        }
        state.jobs.push_back(job);
        drop(state);
        self.work.notify_one();
        None
    }

    fn start_thread(&'static self) -> bool {
        thread::Builder::new()
            .name("softclock-helper".into())
            .spawn(|| self.serve())
            .is_ok()
    }

    fn serve(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                // The queue has room for one more job: wake the tasks whose jobs did not fit.
                let waiting = mem::take(&mut state.waiting);
                drop(state);
                for waker in waiting {
                    run(|| waker.wake());
                }
                run(job);
                state = lock(&self.state);
                continue;
            }
            state.idle += 1;
            let (woken, wait) = self
                .work
                .wait_timeout(state, IDLE_TIME)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            // A job may have been queued at the moment of the timeout.
            if wait.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// Runs what may panic beside the closure of a caller, such as the destructor of one that is not wanted any more. The
/// thread goes on: the hook has reported the panic.
fn run(f: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(f));
    // The destructor of the panic's value may panic, too.
    mem::forget(panic);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Disks serve several requests at once, but more threads than this do not speed up a server's reads.
const THREADS: usize = 8;

/// Capacity of the queue of jobs.
const QUEUE: usize = 1024;

const IDLE_TIME: Duration = Duration::from_secs(10);
