//! The helper pool: threads for calls that block, such as disk reads (the helper processes of *Flash*, Pai, Druschel
//! and Zwaenepoel, USENIX 1999).
//!
//! There is one pool per process, with at most [`THREADS`] threads, started as needed. A thread that has been idle
//! for ten seconds ends. The queue holds [`QUEUE`] jobs; further tasks wait for room.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::thread;
use std::time::Duration;

use crate::runtime::inner::{Inner, is_entered};

/// Runs `f` on a helper thread and waits for its result without blocking the loop.
///
/// If the future is dropped before `f` has begun, `f` does not run; later, `f` runs to its end and its result is
/// discarded. A panic of `f` continues in the caller.
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
pub fn spawn_blocking<F, R>(f: F) -> impl Future<Output = R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let outcome = Arc::new(Mutex::new(Outcome {
        result: None,
        waker: None,
    }));
    let shared = Arc::downgrade(&outcome);
    let job = move || {
        // The future was dropped before its job began: the result would have no receiver.
        if shared.strong_count() == 0 {
            return;
        }
        let result = catch_unwind(AssertUnwindSafe(f));
        if let Some(outcome) = shared.upgrade() {
            let mut outcome = lock(&outcome);
            outcome.result = Some(result);
            let waker = outcome.waker.take();
            // Released before waking, so that the woken thread does not wait for the lock.
            drop(outcome);
            waker.into_iter().for_each(Waker::wake);
        }
    };
    SpawnBlocking {
        job: Some(Box::new(job)),
        outcome,
    }
}

struct SpawnBlocking<R> {
    /// The job, until the queue had room for it.
    job: Option<Job>,
    outcome: Arc<Mutex<Outcome<R>>>,
}

struct Outcome<R> {
    result: Option<Result<R, Box<dyn Any + Send>>>,
    waker: Option<Waker>,
}

type Job = Box<dyn FnOnce() + Send>;

impl<R> Future for SpawnBlocking<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let this = &mut *self;
        // The lock is held until the waker is stored: the job may end before this function returns.
        let mut outcome = lock(&this.outcome);
        if outcome.result.is_some() && is_entered() {
            ready!(Inner::with_current(|runtime| runtime.poll_allowance(cx)));
        }
        match outcome.result.take() {
            Some(Ok(value)) => return Poll::Ready(value),
            Some(Err(panic)) => {
                drop(outcome);
                resume_unwind(panic)
            }
            None => outcome.waker = Some(cx.waker().clone()),
        }
        drop(outcome);
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
}

static POOL: Pool = Pool {
    state: Mutex::new(State {
        jobs: VecDeque::new(),
        waiting: Vec::new(),
        threads: 0,
        idle: 0,
    }),
    work: Condvar::new(),
};

impl Pool {
    /// Queues `job`, or returns it if the queue is full, to wake `waker` when there is room.
    fn submit(&'static self, job: Job, waker: &Waker) -> Option<Job> {
        let mut state = lock(&self.state);
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
            job();
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
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                waiting.into_iter().for_each(Waker::wake);
                job();
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Disks serve several requests at once, but more threads than this do not speed up a server's reads.
const THREADS: usize = 8;

/// Capacity of the queue of jobs.
const QUEUE: usize = 1024;

const IDLE_TIME: Duration = Duration::from_secs(10);
