//! The timer of a paced socket in the loop of the runtime: datagrams leave at its trigger states.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use softclock::{FireWindow, Sleep};
use softclock_tokio::pacing::{SendJob, SendTimer};

/// A handle to a task of the runtime, which waits and runs the job. The task ends with its handle or its runtime.
///
/// Any thread may use the handle. After the end of the runtime, jobs are dropped.
pub(crate) struct LoopTimer(Arc<Shared>);

#[derive(Default)]
struct Shared {
    slot: Mutex<Slot>,
    task: AtomicWaker,
}

#[derive(Default)]
struct Slot {
    pending: Option<(FireWindow, Arc<dyn SendJob>)>,
    /// Whether the task looks at the slot again before it waits, so that nothing has to wake it.
    is_awake: bool,
    has_ended: bool,
}

impl LoopTimer {
    /// Starts the task on the runtime of this thread.
    pub(crate) fn new() -> Self {
        let shared = Arc::<Shared>::default();
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
        // The task wakes up once in vain if nothing is set until then.
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
    /// Until the time of the job, or of an earlier one.
    sleep: Option<Sleep>,
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
                let is_over = |pending: &mut (FireWindow, _)| pending.0 == window;
                // Bound to a name: the job runs without the lock.
                let pending = self.shared.lock().pending.take_if(is_over);
                if let Some((_, job)) = pending {
                    job.run();
                }
                continue;
            }
            let mut slot = self.shared.lock();
            let is_same = matches!(&slot.pending, Some((pending, _)) if *pending == window);
            if is_same {
                slot.is_awake = false;
                return Poll::Pending;
            }
        }
    }

    fn poll_sleep(&mut self, window: FireWindow, cx: &mut Context<'_>) -> Poll<()> {
        let new = || softclock::sleep_until(window.earliest);
        let sleep = self.sleep.get_or_insert_with(new);
        sleep.reset_within(window);
        Pin::new(sleep).poll(cx)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let mut slot = self.shared.lock();
        slot.has_ended = true;
        // The job may hold the handle: dropped without the lock.
        let pending = mem::take(&mut slot.pending);
        drop(slot);
        drop(pending);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::Duration;

    use softclock::Instant;

    use super::*;

    /// Tells when it runs.
    struct Job(Mutex<Sender<Instant>>);

    impl SendJob for Job {
        fn run(self: Arc<Self>) {
            let sender = self.0.lock().unwrap();
            let _ = sender.send(softclock::now());
        }
    }

    fn job() -> (Arc<Job>, Receiver<Instant>) {
        let (sender, receiver) = channel();
        (Arc::new(Job(Mutex::new(sender))), receiver)
    }

    fn after(delay: Duration) -> FireWindow {
        FireWindow::from(softclock::now() + delay)
    }

    const MS: Duration = Duration::from_millis(1);
    const HOUR: Duration = Duration::from_secs(3600);

    /// Runs `f` inside a runtime, and then the runtime for 20 ms.
    fn inside<R>(f: impl FnOnce() -> R) -> R {
        softclock::Runtime::new().unwrap().block_on(async {
            let result = f();
            softclock::sleep(20 * MS).await;
            result
        })
    }

    #[test]
    fn a_job_runs_once_and_not_before_its_time() {
        let (job, ran) = job();
        let (due, _timer) = inside(|| {
            let (window, mut timer) = (after(MS), LoopTimer::new());
            timer.set(window, job);
            (window.earliest, timer)
        });
        assert!(ran.try_recv().unwrap() > due);
        assert!(ran.try_recv().is_err());
    }

    #[test]
    fn a_time_is_moved_forward_and_back() {
        let (early, early_ran) = job();
        let (late, late_ran) = job();
        let (due, _timers) = inside(|| {
            let [mut first, mut second] = [LoopTimer::new(), LoopTimer::new()];
            first.set(after(HOUR), early);
            first.reset(after(MS));
            let window = after(10 * MS);
            second.set(after(MS), late);
            second.reset(window);
            (window.earliest, [first, second])
        });
        assert!(early_ran.try_recv().is_ok());
        assert!(late_ran.try_recv().unwrap() > due);
    }

    #[test]
    fn a_job_is_cancelled_until_it_has_begun() {
        let (first, first_ran) = job();
        let (second, second_ran) = job();
        let mut timer = inside(|| {
            let mut timer = LoopTimer::new();
            assert!(!timer.cancel());
            timer.set(after(MS), first);
            assert!(timer.cancel());
            timer.set(after(2 * MS), second);
            timer
        });
        assert!(first_ran.try_recv().is_err());
        assert!(second_ran.try_recv().is_ok());
        assert!(!timer.cancel());
    }

    #[test]
    fn another_thread_sets_the_time() {
        let (job, ran) = job();
        softclock::Runtime::new().unwrap().block_on(async {
            let mut timer = LoopTimer::new();
            // The task waits.
            softclock::sleep(MS).await;
            let window = after(MS);
            let other = thread::spawn(move || {
                timer.set(window, job);
                timer
            });
            while ran.try_recv().is_err() {
                softclock::sleep(MS).await;
            }
            drop(other.join());
        });
    }

    #[test]
    fn the_end_of_the_runtime_drops_the_job() {
        let (job, ran) = job();
        let mut timer = inside(|| {
            let mut timer = LoopTimer::new();
            timer.set(after(HOUR), job.clone());
            timer
        });
        assert_eq!(Arc::strong_count(&job), 1);
        timer.set(FireWindow::from(Instant::ORIGIN), job.clone());
        assert_eq!(Arc::strong_count(&job), 1);
        assert!(ran.try_recv().is_err());
    }

    #[test]
    fn the_task_ends_with_its_handle() {
        softclock::Runtime::new().unwrap().block_on(async {
            let timer = LoopTimer::new();
            let weak = Arc::downgrade(&timer.0);
            softclock::sleep(MS).await;
            drop(timer);
            softclock::sleep(MS).await;
            assert!(weak.upgrade().is_none());
        });
    }
}
