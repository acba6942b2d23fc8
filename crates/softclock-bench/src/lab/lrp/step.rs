//! The rate of delivery over time, around steps of the load.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use softclock_linux::priority::Priority;

use super::{Stage, Target};
use crate::measure::processors::pin;

/// The datagrams that were delivered by each time, from the step on.
#[derive(Clone, Debug)]
pub struct Deliveries {
    /// Times since the step, in ascending order, and the number delivered by then.
    counts: Vec<(Duration, u64)>,
}

impl Deliveries {
    /// Counts what the first service of a stage delivers, each millisecond, from the moment at which the flood goes to
    /// `rate`.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn after_step(stage: &Stage, rate: u64, during: Duration) -> io::Result<Self> {
        let count = || {
            pin(stage.network.processors.clients);
            // Before the flood on the same processor.
            let _ = Priority::Fifo(6).apply();
            let begun = Instant::now();
            stage.flood.set(rate, Target::Server);
            let mut counts = Vec::new();
            while begun.elapsed() < during {
                counts.push((begun.elapsed(), stage.server.delivered(0)));
                thread::sleep(EACH);
            }
            counts
        };
        let counted = thread::scope(|scope| scope.spawn(count).join());
        let counts = counted.map_err(|_| io::Error::other("the counting thread panicked"))?;
        Ok(Self { counts })
    }

    /// The time from the step until `wanted` datagrams a second are delivered in three windows of 5 ms in a row; the
    /// end of the first of these. All of the time that was counted, if that never happens.
    pub fn time_until(&self, wanted: f64) -> Duration {
        let reached = self
            .counts
            .iter()
            .find_map(|&(from, _)| self.is_sustained(from, wanted).then_some(from + WINDOW));
        reached.unwrap_or_else(|| self.counts.last().map_or(Duration::ZERO, |(at, _)| *at))
    }

    /// Whether the rate is reached in each of the windows that begin at this time.
    fn is_sustained(&self, from: Duration, wanted: f64) -> bool {
        let count = |at: Duration| self.counts.iter().find(|(time, _)| *time >= at);
        (0..WINDOWS).all(|number| {
            let begin = from + number * WINDOW;
            match (count(begin), count(begin + WINDOW)) {
                (Some((from, before)), Some((to, after))) => {
                    (after - before) as f64 >= wanted * (*to - *from).as_secs_f64()
                }
                _ => false,
            }
        })
    }

    /// Datagrams a second over all of the time.
    pub fn mean(&self) -> f64 {
        let (Some((from, before)), Some((to, after))) = (self.counts.first(), self.counts.last())
        else {
            return 0.0;
        };
        (after - before) as f64 / (*to - *from).as_secs_f64().max(1e-9)
    }
}

const EACH: Duration = Duration::from_millis(1);
const WINDOW: Duration = Duration::from_millis(5);
const WINDOWS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn deliveries(count: impl Fn(u64) -> u64) -> Deliveries {
        let counts = (0..50).map(|ms| (Duration::from_millis(ms), count(ms)));
        Deliveries {
            counts: counts.collect(),
        }
    }

    #[test]
    fn recovery_is_the_end_of_the_first_of_three_windows_with_the_rate() {
        let at = Duration::from_millis;
        // Nothing for 10 ms, then one in each millisecond.
        let late = deliveries(|ms| ms.saturating_sub(10));
        assert_eq!(late.time_until(1000.0), at(15));
        assert_eq!(late.time_until(400.0), at(12));
        assert_eq!(late.time_until(2000.0), at(49));
        // A burst of 10 ms is too short.
        let burst = deliveries(|ms| ms.min(10));
        assert_eq!(burst.time_until(1000.0), at(49));
    }
}
