//! Ticks at a fixed period.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use softclock_core::{Clock, Instant};

use super::{Sleep, sleep_until};
use crate::runtime::inner::Inner;

/// Creates an interval whose first tick is now and whose further ticks follow every `period`. Ticks do not drift;
/// missed ticks are [skipped](MissedTickBehavior::Skip) unless the interval is
/// [set otherwise](Interval::with_missed_ticks).
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
        missed: MissedTickBehavior::default(),
    }
}

/// The ticks that an [`Interval`] makes after it was late by a whole period or more, because the task or its thread was
/// busy. Ticks that are less late are returned at once, and do not move the later ones.
///
/// With a period of 10 ms, ticks at 0 and 10, and a task that asks for the next tick at 45:
///
/// | | returned at 45 | next ticks |
/// |---|---|---|
/// | `Burst` | 20, 30 and 40 | 50, 60 |
/// | `Delay` | 20 | 55, 65 |
/// | `Skip` | 20 | 50, 60 |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum MissedTickBehavior {
    /// Makes up for all missed ticks, without a pause between them: as many ticks as periods.
    Burst,
    /// Forgets the missed ticks, and counts the following periods from the moment at which the late tick was returned.
    Delay,
    /// Forgets the missed ticks, and continues at the next whole number of periods after the first tick. The default.
    #[default]
    Skip,
}

/// A sequence of ticks, created by [`interval`].
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    /// Sets the ticks that follow after some were missed.
    ///
    /// # Example
    /// ```
    /// use softclock::time::MissedTickBehavior;
    /// use std::time::Duration;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// softclock::Runtime::new()?.block_on(async {
    ///     let period = Duration::from_millis(1);
    ///     let mut ticks = softclock::interval(period).with_missed_ticks(MissedTickBehavior::Burst);
    ///     let first = ticks.tick().await;
    ///     std::thread::sleep(3 * period);
    ///     assert_eq!(ticks.tick().await, first + period);
    ///     assert_eq!(ticks.tick().await, first + 2 * period);
    /// });
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_missed_ticks(self, missed: MissedTickBehavior) -> Self {
        Self { missed, ..self }
    }

    /// Waits for the next tick, and returns the time at which it was due.
    ///
    /// # Cancel safety
    /// If the future is dropped, no tick is lost.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Like [`tick`](Self::tick), for hand-written futures and streams.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        Poll::Ready(self.advance())
    }

    /// Returns the period of the ticks.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// Returns the ticks that follow after some were missed.
    pub const fn missed_ticks(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Moves to the next tick and returns the time of the present one.
    fn advance(&mut self) -> Instant {
        let due = self.sleep.deadline();
        let now = Inner::with_current(|runtime| runtime.clock.now());
        let missed = now.since(due).as_nanos() / self.period.as_nanos();
        let next = match self.missed {
            MissedTickBehavior::Delay if missed > 0 => now + self.period,
            MissedTickBehavior::Skip if missed > 0 => {
                let steps = u32::try_from(missed + 1).unwrap_or(u32::MAX);
                due + self.period.saturating_mul(steps)
            }
            _ => due + self.period,
        };
        self.sleep.reset(next);
        due
    }
}
