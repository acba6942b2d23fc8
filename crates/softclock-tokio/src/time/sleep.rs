//! Waiting until a point in time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use softclock_core::TimerKey;
use tokio::task::coop;

use crate::timers::{self, Timers};

/// Waits for at least `duration`. Never ends early; see [the crate](crate#lateness) for how late it ends.
///
/// The timer starts with this call, and the task is registered when the sleep is first polled. Like tokio's, a sleep
/// that is over when it is polled counts against the task's budget ([`tokio::task::coop`]).
///
/// Any executor can poll it, not only tokio's.
///
/// # Cancel safety
/// Dropping a sleep cancels it.
///
/// # Example
/// ```
/// use std::time::{Duration, Instant};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let start = Instant::now();
/// softclock_tokio::sleep(Duration::from_micros(100)).await;
/// assert!(start.elapsed() >= Duration::from_micros(100));
/// # }
/// ```
///
/// # Panics
/// If the first timer of the process cannot start [its thread](Timers::global).
pub fn sleep(duration: Duration) -> Sleep {
    Timers::global().sleep(duration)
}

/// Waits until `deadline`, which may be in the past. For an instant of tokio, pass its `into_std()`. The paused clock
/// of tokio's tests does not stop it.
///
/// # Panics
/// As for [`sleep`].
pub fn sleep_until(deadline: Instant) -> Sleep {
    Timers::global().sleep_until(deadline)
}

/// The future of [`sleep`]. Awaiting it again after it has ended returns at once.
#[derive(Debug)]
#[must_use = "a Sleep does nothing unless awaited"]
pub struct Sleep {
    timers: Timers,
    deadline: Instant,
    key: Option<TimerKey>,
}

impl Sleep {
    pub(crate) fn after(timers: Timers, duration: Duration) -> Self {
        Self::until(timers, later(Instant::now(), duration))
    }

    pub(crate) fn until(timers: Timers, deadline: Instant) -> Self {
        Self {
            timers,
            deadline,
            key: None,
        }
    }

    /// Moves the deadline. A task that waits must poll the sleep again.
    pub fn reset(&mut self, deadline: Instant) {
        self.cancel();
        self.deadline = deadline;
    }

    /// Returns whether the deadline has passed.
    pub fn is_elapsed(&self) -> bool {
        self.left().is_zero()
    }

    /// Returns the time to the deadline.
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn cancel(&mut self) {
        if let Some(key) = self.key.take() {
            self.timers.cancel(key);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let budget = ready!(coop::poll_proceed(cx));
        let left = self.left();
        if left.is_zero() {
            self.cancel();
            budget.made_progress();
            return Poll::Ready(());
        }
        let is_pending = |key| self.timers.replace_waker(key, cx.waker());
        if !self.key.is_some_and(is_pending) {
            // The clock is read after the time left was computed: the event is never before the deadline.
            let at = timers::now() + left;
            self.key = Some(self.timers.wake_at(at, cx.waker().clone()));
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Returns the instant `duration` after `instant`, or one far ahead if the clock cannot count that far.
pub(super) fn later(instant: Instant, duration: Duration) -> Instant {
    let latest = || instant + FAR_AHEAD;
    instant.checked_add(duration).unwrap_or_else(latest)
}

/// About 30 years.
const FAR_AHEAD: Duration = Duration::from_secs(30 * 365 * 86_400);
