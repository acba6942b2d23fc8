//! The rate of arrival over time, after an event such as a step of the load or the end of a flood.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use softclock_linux::priority::Priority;

use crate::measure::processors::pin;

/// The number of datagrams or bytes that have arrived by each time after an event.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// The length of the windows in which a rate must be reached.
    window: Duration,
    /// Times since the event, in ascending order, and the number by then.
    counts: Vec<(Duration, u64)>,
}

impl Arrivals {
    /// Calls `event`, then `count` each millisecond for the time `during`, on this processor. The rates of
    /// [`time_until`](Self::time_until) are those of windows of this length.
    ///
    /// # Errors
    /// Those of `count`, or it panics.
    pub(super) fn after(
        event: impl FnOnce() + Send,
        count: impl Fn() -> io::Result<u64> + Send,
        processor: Option<usize>,
        window: Duration,
        during: Duration,
    ) -> io::Result<Self> {
        let all = move || {
            pin(processor);
            // Before the clients and the flood on the same processor.
            let _ = Priority::Fifo(PRIORITY).apply();
            let begun = Instant::now();
            event();
            let mut counts = Vec::new();
            while begun.elapsed() < during {
                counts.push((begun.elapsed(), count()?));
                thread::sleep(EACH);
            }
            Ok(Self { window, counts })
        };
        let counted = thread::scope(|scope| scope.spawn(all).join());
        counted.map_err(|_| io::Error::other("the counting thread panicked"))?
    }

    /// Returns the time until `wanted` a second arrive in three windows in a row: the end of the first of these. All of
    /// the time that was counted, if that does not happen.
    pub fn time_until(&self, wanted: f64) -> Duration {
        let mut times = self.counts.iter().map(|&(from, _)| from);
        let first = times.find(|&from| self.is_sustained(from, wanted));
        let all = self.counts.last().map_or(Duration::ZERO, |(at, _)| *at);
        first.map_or(all, |from| from + self.window)
    }

    /// Returns the arrivals a second over all of the time.
    pub fn mean(&self) -> f64 {
        match (self.counts.first(), self.counts.last()) {
            (Some((from, before)), Some((to, after))) if to > from => {
                (after - before) as f64 / (*to - *from).as_secs_f64()
            }
            _ => 0.0,
        }
    }

    /// Whether the rate is reached in each of the windows that begin at this time.
    fn is_sustained(&self, from: Duration, wanted: f64) -> bool {
        let count = |at: Duration| {
            let place = self.counts.partition_point(|(time, _)| *time < at);
            self.counts.get(place)
        };
        (0..WINDOWS).all(|number| {
            let begin = from + number * self.window;
            match (count(begin), count(begin + self.window)) {
                (Some((from, before)), Some((to, after))) => {
                    (after - before) as f64 >= wanted * (*to - *from).as_secs_f64()
                }
                _ => false,
            }
        })
    }
}

const PRIORITY: u8 = 6;
const EACH: Duration = Duration::from_millis(1);
const WINDOWS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn arrivals(window: Duration, times: u32, count: impl Fn(u64) -> u64) -> Arrivals {
        let counts = (0..times).map(|ms| (ms * MS, count(ms.into())));
        Arrivals {
            window,
            counts: counts.collect(),
        }
    }

    #[test]
    fn recovery_is_the_end_of_the_first_of_three_windows_with_the_rate() {
        // Nothing for 10 ms, then one in each millisecond.
        let late = arrivals(5 * MS, 50, |ms| ms.saturating_sub(10));
        assert_eq!(late.time_until(1000.0), 15 * MS);
        assert_eq!(late.time_until(400.0), 12 * MS);
        assert_eq!(late.time_until(2000.0), 49 * MS);
        // A burst of 10 ms is too short.
        let burst = arrivals(5 * MS, 50, |ms| ms.min(10));
        assert_eq!(burst.time_until(1000.0), 49 * MS);
    }

    #[test]
    fn the_mean_is_that_of_all_the_time() {
        // Nothing for 50 ms, then 10 in each millisecond.
        let late = arrivals(20 * MS, 200, |ms| ms.saturating_sub(50) * 10);
        assert_eq!(late.time_until(10_000.0), 70 * MS);
        assert_eq!(late.time_until(20_000.0), 199 * MS);
        assert!(late.mean() > 7000.0 && late.mean() < 8000.0);
    }
}
