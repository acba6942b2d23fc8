//! Throughput after the end of a flood, by the bytes that arrive at the clients.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use softclock_linux::priority::Priority;

use super::stage::Stage;
use crate::lab::lrp::Link;
use crate::measure::processors::pin;

/// The bytes that have arrived at the clients' link by each time.
#[derive(Clone, Debug)]
pub struct Recovery {
    counts: Vec<(Duration, u64)>,
}

impl Recovery {
    /// Counts for the time `during` after `event`, which is called first.
    ///
    /// # Errors
    /// The counter cannot be read.
    pub fn after(stage: &Stage, event: impl FnOnce() + Send, during: Duration) -> io::Result<Self> {
        let path = stage.network.counter(Link::Clients, "rx_bytes");
        let count = || {
            pin(stage.network.processors.clients);
            // Before the clients and the flood on the same processor.
            let _ = Priority::Fifo(PRIORITY).apply();
            let read = || -> io::Result<u64> {
                let text = fs::read_to_string(&path)?;
                text.trim().parse().map_err(io::Error::other)
            };
            let begun = Instant::now();
            event();
            let mut counts = Vec::new();
            while begun.elapsed() < during {
                counts.push((begun.elapsed(), read()?));
                thread::sleep(EACH);
            }
            Ok(Self { counts })
        };
        let counted = thread::scope(|scope| scope.spawn(count).join());
        counted.map_err(|_| io::Error::other("the counting thread panicked"))?
    }

    /// Returns the time until this number of bytes a second arrives in three windows of 20 ms in a row: the end of the
    /// first. All of the time that was counted, if that does not happen.
    pub fn time_until(&self, wanted: f64) -> Duration {
        let mut reached = self.counts.iter().map(|&(from, _)| from);
        let first = reached.find(|&from| self.is_sustained(from, wanted));
        let all = self.counts.last().map_or(Duration::ZERO, |(at, _)| *at);
        first.map_or(all, |from| from + WINDOW)
    }

    /// Returns the bytes a second over all of the time.
    pub fn mean(&self) -> f64 {
        match (self.counts.first(), self.counts.last()) {
            (Some((from, before)), Some((to, after))) if to > from => {
                (after - before) as f64 / (*to - *from).as_secs_f64()
            }
            _ => 0.0,
        }
    }

    fn is_sustained(&self, from: Duration, wanted: f64) -> bool {
        let count = |at: Duration| {
            let place = self.counts.partition_point(|(time, _)| *time < at);
            self.counts.get(place)
        };
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
}

const PRIORITY: u8 = 6;
const EACH: Duration = Duration::from_millis(1);
const WINDOW: Duration = Duration::from_millis(20);
const WINDOWS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_is_the_end_of_the_first_of_three_windows() {
        let at = Duration::from_millis;
        // Nothing for 50 ms, then 10 bytes in each.
        let counts = (0..200u64).map(|ms| (at(ms), ms.saturating_sub(50) * 10));
        let late = Recovery {
            counts: counts.collect(),
        };
        assert_eq!(late.time_until(10_000.0), at(70));
        assert_eq!(late.time_until(20_000.0), at(199));
        assert!(late.mean() > 7000.0 && late.mean() < 8000.0);
    }
}
