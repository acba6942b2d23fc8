//! The thread that owns the soft timers, and the handle by which other threads use it.
//!
//! - [`Timers`]: the handle.
//! - `shared`: the events, which other threads schedule and cancel under a lock.
//! - `alarm`: the kernel timer for which the thread waits.
//! - `run`: the loop of the thread.

mod alarm;
mod run;
mod shared;

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use softclock_core::{Instant, TimerKey};
use softclock_linux::clock::monotonic_ns;

use crate::time::{Interval, Sleep};
pub use shared::SendJob;
use shared::{Event, Shared};

/// A handle to a thread with soft timers. Clones are handles to the same thread.
///
/// The functions [`sleep`](crate::sleep), [`sleep_until`](crate::sleep_until) and [`interval`](crate::interval) use
/// the thread of the process, which [`global`](Self::global) returns. A program that wants its timers apart from
/// others, say those of a library, creates a thread of its own.
///
/// The thread waits in the kernel while nothing is due. It ends after the last handle, sleep, interval and paced socket
/// that uses it has been dropped. The thread of the process ends with the process.
///
/// # Example
/// ```
/// use softclock_tokio::Timers;
/// use std::time::{Duration, Instant};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let timers = Timers::new()?;
/// let start = Instant::now();
/// timers.sleep(Duration::from_micros(200)).await;
/// assert!(start.elapsed() >= Duration::from_micros(200));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Timers(Arc<Handle>);

/// The last clone ends the thread.
struct Handle {
    shared: Arc<Shared>,
}

impl Timers {
    /// Starts a thread.
    ///
    /// # Errors
    /// EMFILE or ENFILE if descriptors have run out, and the error of starting a thread.
    pub fn new() -> io::Result<Self> {
        let shared = Arc::new(Shared::new(now())?);
        let thread = shared.clone();
        thread::Builder::new()
            .name("softclock-timers".to_owned())
            .spawn(move || run::run(&thread))?;
        Ok(Self(Arc::new(Handle { shared })))
    }

    /// Returns the thread of the process. The first call starts it.
    ///
    /// # Panics
    /// If the thread cannot be started: see [`new`](Self::new). The next call tries again.
    pub fn global() -> Self {
        static GLOBAL: OnceLock<Timers> = OnceLock::new();
        let start = || Self::new().expect("the thread of the timers starts");
        GLOBAL.get_or_init(start).clone()
    }

    /// Waits for at least `duration`: see [`sleep`](crate::sleep).
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::after(self.clone(), duration)
    }

    /// Waits until `deadline`: see [`sleep_until`](crate::sleep_until).
    pub fn sleep_until(&self, deadline: std::time::Instant) -> Sleep {
        Sleep::until(self.clone(), deadline)
    }

    /// Creates an interval: see [`interval`](crate::interval).
    ///
    /// # Panics
    /// If `period` is zero.
    pub fn interval(&self, period: Duration) -> Interval {
        Interval::new(self.clone(), period)
    }

    /// Wakes `waker` once `at` has passed.
    pub(crate) fn wake_at(&self, at: Instant, waker: Waker) -> TimerKey {
        self.0.shared.schedule(at, Event::Wake(waker))
    }

    /// Replaces the waker of a pending event. Returns false if it has fired.
    pub(crate) fn replace_waker(&self, key: TimerKey, waker: &Waker) -> bool {
        self.0.shared.replace_waker(key, waker)
    }

    /// Runs `job` on the thread once `at` has passed.
    pub(crate) fn run_at(&self, at: Instant, job: Arc<dyn SendJob>) -> TimerKey {
        self.0.shared.schedule(at, Event::Run(job))
    }

    /// Moves a pending event to `at`. Returns false if it has fired.
    pub(crate) fn reschedule(&self, key: TimerKey, at: Instant) -> bool {
        self.0.shared.reschedule(key, at)
    }

    /// Cancels a pending event. Returns false if it has fired.
    pub(crate) fn cancel(&self, key: TimerKey) -> bool {
        self.0.shared.cancel(key)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").finish_non_exhaustive()
    }
}

/// Returns the time on the clock of the thread, which is CLOCK_MONOTONIC itself: that of [`std::time::Instant`]. A
/// counter of the processor would be read faster, but differs from it by up to a microsecond, and could end a sleep
/// early.
pub(crate) fn now() -> Instant {
    Instant::from_ns(monotonic_ns())
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::task::Wake;

    use super::*;

    struct Unpark(thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn waker() -> Waker {
        Waker::from(Arc::new(Unpark(thread::current())))
    }

    #[test]
    fn an_event_fires_after_its_time_and_not_before() {
        let timers = Timers::new().unwrap();
        for us in [0, 1, 50, 3_000] {
            let at = now() + Duration::from_micros(us);
            let key = timers.wake_at(at, waker());
            while timers.replace_waker(key, &waker()) {
                thread::park_timeout(Duration::from_millis(1));
            }
            assert!(now() > at);
        }
    }

    #[test]
    fn a_cancelled_event_gives_its_waker_back() {
        let timers = Timers::new().unwrap();
        let unpark = Arc::new(Unpark(thread::current()));
        let at = now() + Duration::from_secs(3600);
        let key = timers.wake_at(at, Waker::from(unpark.clone()));
        assert_eq!(Arc::strong_count(&unpark), 2);
        assert!(timers.cancel(key));
        assert!(!timers.cancel(key));
        assert_eq!(Arc::strong_count(&unpark), 1);
        assert!(!timers.replace_waker(key, &waker()));
    }

    #[test]
    fn an_earlier_event_overtakes_one_that_the_thread_waits_for() {
        let timers = Timers::new().unwrap();
        let late = timers.wake_at(now() + Duration::from_secs(3600), waker());
        thread::sleep(Duration::from_millis(5));
        let early = timers.wake_at(now() + Duration::from_millis(1), waker());
        while timers.replace_waker(early, &waker()) {
            thread::park_timeout(Duration::from_millis(1));
        }
        assert!(timers.replace_waker(late, &waker()));
    }

    #[test]
    fn the_thread_ends_with_its_last_handle() {
        let timers = Timers::new().unwrap();
        let thread: Weak<Shared> = Arc::downgrade(&timers.0.shared);
        let other = timers.clone();
        drop(timers);
        assert!(thread.upgrade().is_some());
        let sleep = other.sleep(Duration::from_secs(3600));
        drop(other);
        thread::sleep(Duration::from_millis(5));
        assert!(thread.upgrade().is_some(), "the sleep is a handle");
        drop(sleep);
        while thread.upgrade().is_some() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_panic_of_a_waker_does_not_end_the_thread() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("expected by the test");
            }
        }
        let timers = Timers::new().unwrap();
        timers.wake_at(now(), Waker::from(Arc::new(Panics)));
        let key = timers.wake_at(now() + Duration::from_millis(1), waker());
        while timers.replace_waker(key, &waker()) {
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}
