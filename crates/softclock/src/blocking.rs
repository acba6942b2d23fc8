//! The helper pool: threads for calls that wait, such as disk reads (*Flash*'s helper processes).
//!
//! One pool a process, [`THREADS`] threads at most, started as needed; a thread that has been idle for ten
//! seconds ends. Its queue holds [`QUEUE`] jobs; who comes then waits for room.

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

/// Runs `f` on a helper thread and waits for its result without stopping the loop.
///
/// Dropped before `f` has begun it takes `f` back out of the way; later `f` runs to its end unheard. A panic of `f`
/// continues in the caller.
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
        if shared.strong_count() == 0 {
            return;
        }
        let result = catch_unwind(AssertUnwindSafe(f));
        if let Some(outcome) = shared.upgrade() {
            let mut outcome = lock(&outcome);
            outcome.result = Some(result);
            let waker = outcome.waker.take();
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
    /// Until there was room for it in the queue.
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
        // The waker first: the job may end before this returns.
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
    /// Tasks whose job found the queue full.
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
    /// Queues `job`, or gives it back and wakes `waker` when there is room.
    fn submit(&'static self, job: Job, waker: &Waker) -> Option<Job> {
        let mut state = lock(&self.state);
        if state.jobs.len() >= QUEUE {
            if !state.waiting.iter().any(|other| other.will_wake(waker)) {
                state.waiting.push(waker.clone());
            }
            return Some(job);
        }
        if state.jobs.len() >= state.idle && state.threads < THREADS && self.start_thread() {
            state.threads += 1;
        }
        if state.threads == 0 {
            // No thread is to be had: late is better than never.
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

/// Disks answer several requests at once; more threads than this gain nothing for a server's reads.
const THREADS: usize = 8;

/// Jobs that may wait for a thread.
const QUEUE: usize = 1024;

const IDLE_TIME: Duration = Duration::from_secs(10);
