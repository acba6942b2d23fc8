//! The timer of a paced socket in the loop of the runtime: datagrams leave at its trigger states.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use softclock::{FireWindow, Instant, Sleep};
use softclock_linux::clock::monotonic_ns;
use softclock_tokio::pacing::{SendJob, SendTimer};

use super::sleep_within;

/// A handle to a task of the runtime, which waits and runs the job. The task ends with its handle or its runtime.
///
/// Any thread may use the handle. Jobs run only while the runtime does, and its end drops them.
pub(crate) struct LoopTimer(Arc<Shared>);

struct Shared {
    slot: Mutex<Slot>,
    task: AtomicWaker,
}

struct Slot {
    pending: Option<(FireWindow, Arc<dyn SendJob>)>,
    /// Whether the task looks at the slot again before it waits, so that nothing has to wake it.
    is_awake: bool,
    has_ended: bool,
}

impl LoopTimer {
    /// Starts the task on the runtime of this thread.
    pub(crate) fn new() -> Self {
        let slot = Slot {
            pending: None,
            is_awake: true,
            has_ended: false,
        };
        let shared = Arc::new(Shared {
            slot: Mutex::new(slot),
            task: AtomicWaker::new(),
        });
        let mut task = Task {
            shared: shared.clone(),
            sleep: None,
        };
        drop(softclock::spawn_local(poll_fn(move |cx| task.poll(cx))));
        Self(shared)
    }
}

impl SendTimer for LoopTimer {
    fn set(&mut self, window: FireWindow, job: Arc<dyn SendJob>) {
        self.0.change(|slot| slot.pending = Some((window, job)));
    }

    fn reset(&mut self, window: FireWindow) {
        self.0.change(|slot| {
            if let Some((pending, _)) = &mut slot.pending {
                *pending = window;
            }
        });
    }

    fn cancel(&mut self) -> bool {
        // The task is not told: at the worst it wakes up in vain at the time that was set.
        self.0.lock().pending.take().is_some()
    }
}

impl Drop for LoopTimer {
    fn drop(&mut self) {
        self.0.change(|slot| slot.has_ended = true);
    }
}

impl Shared {
    /// Changes the slot, and lets the task see it.
    fn change(&self, change: impl FnOnce(&mut Slot)) {
        let mut slot = self.lock();
        if !slot.has_ended {
            change(&mut slot);
        }
        let is_awake = slot.is_awake;
        drop(slot);
        if !is_awake {
            self.task.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Task {
    shared: Arc<Shared>,
    /// The sleep for a job, with the window that was set.
    sleep: Option<(FireWindow, Sleep)>,
}

impl Task {
    /// Runs the job when its window has begun. Ready when the handle has been dropped.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.shared.task.register(cx.waker());
        self.shared.lock().is_awake = true;
        loop {
            let mut slot = self.shared.lock();
            if slot.has_ended {
                return Poll::Ready(());
            }
            let Some((window, _)) = slot.pending else {
                slot.is_awake = false;
                return Poll::Pending;
            };
            drop(slot);
            if self.poll_sleep(window, cx).is_ready() {
                self.sleep = None;
                let is_over = |pending: &mut (FireWindow, _)| pending.0 == window;
                // Bound to a name: the job runs without the lock.
                let pending = self.shared.lock().pending.take_if(is_over);
                if let Some((_, job)) = pending {
                    // The panic hook reports a panic, and the sender goes on.
                    let _ = catch_unwind(AssertUnwindSafe(|| job.run()));
                }
                continue;
            }
            let mut slot = self.shared.lock();
            let is_same = matches!(&slot.pending, Some((pending, _)) if *pending == window);
            if is_same && !slot.has_ended {
                slot.is_awake = false;
                return Poll::Pending;
            }
        }
    }

    /// Ready when `window` has begun.
    fn poll_sleep(&mut self, window: FireWindow, cx: &mut Context<'_>) -> Poll<()> {
        let same = self.sleep.take().filter(|(slept, _)| *slept == window);
        let new = || (window, sleep_within(on_softclock(window)));
        let (_, sleep) = self.sleep.insert(same.unwrap_or_else(new));
        Pin::new(sleep).poll(cx)
    }
}

/// Returns a window of CLOCK_MONOTONIC on the clock of the runtime, which may be ahead after the machine has slept.
fn on_softclock(window: FireWindow) -> FireWindow {
    let now = Instant::from_ns(monotonic_ns());
    FireWindow {
        earliest: softclock::now() + window.earliest.since(now),
        ..window
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let mut slot = self.shared.lock();
        slot.has_ended = true;
        // The job may hold the handle: dropped without the lock.
        let pending = slot.pending.take();
        drop(slot);
        drop(pending);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Counts its runs.
    #[derive(Default)]
    struct Job {
        runs: AtomicUsize,
        last: Mutex<Option<Instant>>,
    }

    impl Job {
        fn runs(&self) -> usize {
            self.runs.load(Ordering::Relaxed)
        }

        /// Waits until it has run `times`. Returns the time of the last run.
        async fn ran(&self, times: usize) -> Instant {
            while self.runs() < times {
                softclock::sleep(MS).await;
            }
            let last = *self.last.lock().unwrap();
            last.expect("it ran")
        }
    }

    impl SendJob for Job {
        fn run(self: Arc<Self>) {
            *self.last.lock().unwrap() = Some(monotonic());
            self.runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn monotonic() -> Instant {
        Instant::from_ns(monotonic_ns())
    }

    fn after(delay: Duration) -> FireWindow {
        FireWindow::from(monotonic() + delay)
    }

    const MS: Duration = Duration::from_millis(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn inside<R>(task: impl Future<Output = R>) -> R {
        softclock::Runtime::new().unwrap().block_on(task)
    }

    /// A timer whose task waits.
    async fn timer() -> LoopTimer {
        let timer = LoopTimer::new();
        while timer.0.lock().is_awake {
            softclock::yield_now().await;
        }
        timer
    }

    #[test]
    fn a_job_runs_once_and_not_before_its_time() {
        inside(async {
            let (job, window) = (Arc::<Job>::default(), after(2 * MS));
            let mut timer = timer().await;
            timer.set(window, job.clone());
            assert!(job.ran(1).await >= window.earliest);
            softclock::sleep(5 * MS).await;
            assert_eq!(job.runs(), 1);
            assert!(!timer.cancel());
        });
    }

    #[test]
    fn a_time_is_moved_forward_and_back() {
        inside(async {
            let job = Arc::<Job>::default();
            let mut timer = timer().await;
            timer.set(after(HOUR), job.clone());
            softclock::sleep(MS).await;
            timer.reset(after(MS));
            job.ran(1).await;
            timer.set(after(5 * MS), job.clone());
            softclock::sleep(MS).await;
            // A thread that has slept for too long has run it.
            let was_pending = job.runs() == 1;
            let window = after(20 * MS);
            timer.reset(window);
            let ran = job.ran(2).await;
            assert!(ran >= window.earliest || !was_pending);
        });
    }

    #[test]
    fn a_job_that_was_cancelled_does_not_run() {
        inside(async {
            let [first, second] = [Arc::<Job>::default(), Arc::default()];
            let mut timer = timer().await;
            assert!(!timer.cancel());
            timer.set(after(20 * MS), first.clone());
            softclock::sleep(MS).await;
            let is_cancelled = timer.cancel();
            timer.set(after(25 * MS), second.clone());
            second.ran(1).await;
            assert_eq!(first.runs(), usize::from(!is_cancelled));
        });
    }

    #[test]
    fn another_thread_sets_the_time() {
        inside(async {
            let job = Arc::<Job>::default();
            let mut timer = timer().await;
            let set = job.clone();
            let other = thread::spawn(move || {
                timer.set(after(MS), set);
                timer
            });
            job.ran(1).await;
            drop(other.join().unwrap());
        });
    }

    /// Sets its timer again for some runs, and panics in each.
    struct Repeats {
        timer: Mutex<Option<LoopTimer>>,
        job: Job,
    }

    impl SendJob for Repeats {
        fn run(self: Arc<Self>) {
            let runs = self.job.runs.fetch_add(1, Ordering::Relaxed) + 1;
            let timer = self.timer.lock().unwrap().take();
            if let Some(mut timer) = timer.filter(|_| runs < 3) {
                timer.set(after(Duration::ZERO), self.clone());
                *self.timer.lock().unwrap() = Some(timer);
            }
            panic!("expected by the test");
        }
    }

    #[test]
    fn a_job_may_set_the_timer_again_and_panic() {
        inside(async {
            let timer = timer().await;
            let shared = Arc::downgrade(&timer.0);
            let repeats = Arc::new(Repeats {
                timer: Mutex::new(Some(timer)),
                job: Job::default(),
            });
            if let Some(timer) = repeats.timer.lock().unwrap().as_mut() {
                timer.set(after(MS), repeats.clone());
            }
            while repeats.job.runs() < 3 || shared.upgrade().is_some() {
                softclock::sleep(MS).await;
            }
        });
    }

    #[test]
    fn the_end_of_the_runtime_drops_the_job() {
        let job = Arc::<Job>::default();
        let mut timer = inside(async {
            let mut timer = timer().await;
            timer.set(after(HOUR), job.clone());
            timer
        });
        assert_eq!(Arc::strong_count(&job), 1);
        timer.set(after(Duration::ZERO), job.clone());
        assert_eq!((Arc::strong_count(&job), job.runs()), (1, 0));
    }

    #[test]
    fn the_task_ends_with_its_handle() {
        inside(async {
            let timer = timer().await;
            let shared = Arc::downgrade(&timer.0);
            drop(timer);
            while shared.upgrade().is_some() {
                softclock::sleep(MS).await;
            }
        });
    }
}
