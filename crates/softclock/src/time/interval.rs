//! Ticks at a fixed distance.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use softclock_core::{Clock, Instant};

use super::{Sleep, sleep_until};
use crate::runtime::inner::Inner;

/// Ticks every `period`, first now. Ticks do not drift; those that were missed are left out.
///
/// # Panics
/// If `period` is zero, and outside a runtime.
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

/// See [`interval`].
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
}

impl Interval {
    /// Waits for the next tick, and tells when it was due.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| match Pin::new(&mut self.sleep).poll(cx) {
            Poll::Ready(()) => Poll::Ready(self.advance()),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// The distance between ticks.
    pub const fn period(&self) -> Duration {
        self.period
    }

    fn advance(&mut self) -> Instant {
        let due = self.sleep.deadline();
        let now = Inner::with_current(|runtime| runtime.clock.now());
        let missed = now.since(due).as_nanos() / self.period.as_nanos();
        let steps = u32::try_from(missed + 1).unwrap_or(u32::MAX);
        self.sleep.reset(due + self.period.saturating_mul(steps));
        due
    }
}
