//! Ticks at a fixed period.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::sleep::{Sleep, later};
use crate::timers::Timers;

/// Creates an interval whose first tick is now and whose further ticks follow every `period`. Ticks do not drift;
/// missed ticks are skipped.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut ticks = softclock_tokio::interval(Duration::from_micros(500));
/// let first = ticks.tick().await;
/// let second = ticks.tick().await;
/// // A whole number of periods, even if the second tick was late.
/// assert_eq!(second.duration_since(first).as_nanos() % 500_000, 0);
/// # }
/// ```
///
/// # Panics
/// If `period` is zero, and if the first timer of the process cannot start [its thread](Timers::global).
pub fn interval(period: Duration) -> Interval {
    Timers::global().interval(period)
}

/// A sequence of ticks, created by [`interval`].
#[derive(Debug)]
#[must_use = "an Interval does nothing unless its ticks are awaited"]
pub struct Interval {
    sleep: Sleep,
    due: Instant,
    period: Duration,
}

impl Interval {
    pub(crate) fn new(timers: Timers, period: Duration) -> Self {
        assert!(
            !period.is_zero(),
            "the period of an interval must not be zero"
        );
        let due = Instant::now();
        Self {
            sleep: timers.sleep_until(due),
            due,
            period,
        }
    }

    /// Waits for the next tick, and returns the time at which it was due.
    ///
    /// # Cancel safety
    /// A tick is lost only if it is returned.
    pub async fn tick(&mut self) -> Instant {
        std::future::poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Like [`tick`](Self::tick), for hand-written futures.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let due = self.due;
        // The next tick stays on the grid of the first.
        let missed = due.elapsed().as_nanos() / self.period.as_nanos();
        let steps = u32::try_from(missed + 1).unwrap_or(u32::MAX);
        self.due = later(due, self.period.saturating_mul(steps));
        self.sleep.reset(self.due);
        Poll::Ready(due)
    }

    /// Returns the period of the ticks.
    pub const fn period(&self) -> Duration {
        self.period
    }
}
