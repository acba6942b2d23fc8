//! Ticks at a fixed period.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use softclock_core::{Clock, Instant};

use super::{Sleep, sleep_until};
use crate::runtime::inner::Inner;

/// Creates an interval whose first tick is now and whose further ticks follow every `period`. Ticks do not drift;
/// missed ticks are skipped.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let mut ticks = softclock::interval(Duration::from_micros(500));
///     let first = ticks.tick().await;
///     let second = ticks.tick().await;
///     // A whole number of periods, even if the second tick was late.
///     assert_eq!(second.since(first).as_nanos() % 500_000, 0);
/// });
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// If `period` is zero, and if called outside a runtime.
pub fn interval(period: Duration) -> Interval {
    assert!(
        !period.is_zero(),
        "the period of an interval must not be zero"
    );
    Interval {
        sleep: sleep_until(crate::now()),
        period,
    }
}

/// A sequence of ticks, created by [`interval`].
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
}

impl Interval {
    /// Waits for the next tick, and returns the time at which it was due.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| match Pin::new(&mut self.sleep).poll(cx) {
            Poll::Ready(()) => Poll::Ready(self.advance()),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Returns the period of the ticks.
    pub const fn period(&self) -> Duration {
        self.period
    }

    fn advance(&mut self) -> Instant {
        let due = self.sleep.deadline();
        let now = Inner::with_current(|runtime| runtime.clock.now());
        // Missed ticks are skipped; the next one stays on the grid of the first.
        let missed = now.since(due).as_nanos() / self.period.as_nanos();
        let steps = u32::try_from(missed + 1).unwrap_or(u32::MAX);
        self.sleep.reset(due + self.period.saturating_mul(steps));
        due
    }
}
