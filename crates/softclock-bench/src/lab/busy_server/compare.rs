//! Pairs of slices of time with and without a toggle, measured on the server's own thread.
//!
//! A pair is so short, and its slices so close, that other work on the machine mostly affects both alike; the order
//! alternates. The cost of a toggle is the median over many pairs.

use std::io;
use std::time::Duration;

use softclock::{Histogram, Statistics};
use softclock_core::Clock;
use softclock_core::time::saturating_ns;
use softclock_linux::clock::{ThreadClock, cpu_time_ns};

use super::toggles::Toggle;
use crate::output::report::Context;

/// The size of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The length of a slice.
    pub slice: Duration,
    /// The number of rounds. Each round compares every toggle, [`Case::pairs`] times.
    pub rounds: usize,
    /// How often a pair is tried until the server is busy throughout both slices.
    pub tries: usize,
    /// The time after which no further round begins.
    pub patience: Duration,
}

impl Plan {
    /// A run that only shows that all of it works.
    pub const SMOKE: Self = Self {
        slice: Duration::from_millis(5),
        rounds: 1,
        tries: 1,
        patience: Duration::from_secs(10),
    };

    /// A measurement.
    pub const FULL: Self = Self {
        slice: Duration::from_millis(30),
        rounds: 20,
        tries: 4,
        patience: Duration::from_secs(150),
    };
}

/// A toggle to compare.
pub struct Case {
    /// The load that is switched on and off.
    pub toggle: Box<dyn Toggle>,
    /// Pairs of slices in a round; small effects need more.
    pub pairs: usize,
}

/// The server's work in a slice of time.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// The length of the slice.
    pub wall_ns: u64,
    /// Processor time of the server's thread, interrupts included.
    pub cpu_ns: u64,
    /// The part of it that the thread spun before an event, for lack of work.
    pub spun_ns: u64,
    /// Requests answered.
    pub requests: u64,
    /// Events of the toggle.
    pub events: u64,
}

/// A slice without the toggle and one with it.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Without.
    pub off: Slice,
    /// With.
    pub on: Slice,
}

/// All pairs of one case, and histograms over its slices.
#[derive(Default)]
pub struct Samples {
    /// The pairs, in the order of time.
    pub pairs: Vec<Pair>,
    /// Time between trigger states in the slices without the toggle.
    pub intervals_off: Histogram,
    /// Time between trigger states in the slices with it.
    pub intervals_on: Histogram,
    /// Lateness of soft events in the slices with it.
    pub lateness_on: Histogram,
}

/// A slice, and the runtime's statistics of it.
struct Observed {
    slice: Slice,
    intervals: Histogram,
    lateness: Histogram,
}

/// Runs the plan on the current runtime, which serves meanwhile; returns the samples of each case.
///
/// # Errors
/// Those of the toggles, and [`io::ErrorKind::TimedOut`] when the server answers no requests.
pub async fn compare(
    context: &Context,
    plan: &Plan,
    cases: &mut [Case],
) -> io::Result<Vec<Samples>> {
    let mut samples: Vec<Samples> = cases.iter().map(|_| Samples::default()).collect();
    let start = softclock::now();
    for round in 0..plan.rounds {
        if round > 0 && softclock::now().since(start) > plan.patience {
            break;
        }
        let pairs = context
            .round_of_task(round, plan.rounds, "rounds of short slices", async || {
                // Boxed, because its histograms would enlarge the stack of each future around it.
                Box::pin(pairs_of_round(plan, cases, round)).await
            })
            .await?;
        for (samples, pairs) in samples.iter_mut().zip(pairs) {
            pairs.into_iter().for_each(|pair| samples.add(pair));
        }
    }
    context.progress(1, 1, "");
    Ok(samples)
}

/// Measures the pairs of each case in a round.
async fn pairs_of_round(
    plan: &Plan,
    cases: &mut [Case],
    round: usize,
) -> io::Result<Vec<Vec<(Observed, Observed)>>> {
    let mut all = Vec::with_capacity(cases.len());
    for case in cases {
        let mut pairs = Vec::with_capacity(case.pairs);
        for pair in 0..case.pairs {
            // Alternate the order, so that a drift of the machine cancels out.
            let off_first = (round + pair).is_multiple_of(2);
            pairs.push(busy_pair(plan, case.toggle.as_mut(), off_first).await?);
        }
        all.push(pairs);
    }
    Ok(all)
}

/// Measures a pair: without and with the toggle. It is repeated, up to `plan.tries` times in all, if the server was not
/// busy throughout: then its clients, or its thread, waited for a processor that other programs used.
async fn busy_pair(
    plan: &Plan,
    toggle: &mut dyn Toggle,
    off_first: bool,
) -> io::Result<(Observed, Observed)> {
    let mut pair = one_pair(plan, toggle, off_first).await?;
    for _ in 1..plan.tries {
        if pair.0.slice.is_busy() && pair.1.slice.is_busy() {
            break;
        }
        pair = one_pair(plan, toggle, off_first).await?;
    }
    Ok(pair)
}

async fn one_pair(
    plan: &Plan,
    toggle: &mut dyn Toggle,
    off_first: bool,
) -> io::Result<(Observed, Observed)> {
    if off_first {
        let off = slice_off(plan, toggle).await?;
        let on = slice_on(plan, toggle).await?;
        Ok((off, on))
    } else {
        let on = slice_on(plan, toggle).await?;
        let off = slice_off(plan, toggle).await?;
        Ok((off, on))
    }
}

async fn slice_off(plan: &Plan, toggle: &mut dyn Toggle) -> io::Result<Observed> {
    toggle.before_off();
    let before = softclock::statistics();
    let slice = slice(plan.slice).await;
    let after = softclock::statistics();
    toggle.after_off();
    Ok(Observed::new(slice?, &before, &after))
}

async fn slice_on(plan: &Plan, toggle: &mut dyn Toggle) -> io::Result<Observed> {
    let before = softclock::statistics();
    // After the first statistics, which must not miss the toggle's first events.
    toggle.start(plan.slice)?;
    let slice = slice(plan.slice).await;
    let events = toggle.stop()?;
    let after = softclock::statistics();
    Ok(Observed::new(Slice { events, ..slice? }, &before, &after))
}

impl Observed {
    fn new(slice: Slice, before: &Statistics, after: &Statistics) -> Self {
        let spun_ns = saturating_ns(after.spun.saturating_sub(before.spun));
        let (before, after) = (&before.triggers, &after.triggers);
        Self {
            slice: Slice { spun_ns, ..slice },
            intervals: after.intervals().since(&before.intervals()),
            lateness: after.lateness().since(&before.lateness()),
        }
    }
}

/// Measures a slice. It is extended until a request was answered, which on a busy machine may take several lengths.
async fn slice(length: Duration) -> io::Result<Slice> {
    let clock = ThreadClock::new();
    let (wall, cpu_ns, requests) = (clock.now(), cpu_time_ns(), requests_answered());
    for _ in 0..LONGEST_SLICE {
        softclock::sleep(length).await;
        let slice = Slice {
            wall_ns: clock.now().ns_since(wall),
            cpu_ns: cpu_time_ns() - cpu_ns,
            requests: requests_answered() - requests,
            spun_ns: 0,
            events: 0,
        };
        if slice.requests > 0 && slice.cpu_ns > 0 {
            return Ok(slice);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        "the server answers no requests",
    ))
}

fn requests_answered() -> u64 {
    softclock_http::requests_answered()
}

impl Slice {
    fn is_busy(&self) -> bool {
        self.cpu_ns.saturating_sub(self.spun_ns) as f64 >= BUSY * self.wall_ns as f64
    }

    fn cpu_ns_per_request(&self) -> f64 {
        self.cpu_ns as f64 / self.requests as f64
    }

    fn requests_per_second(&self) -> f64 {
        self.requests as f64 * 1e9 / self.wall_ns as f64
    }
}

impl Pair {
    fn is_busy(&self) -> bool {
        self.off.is_busy() && self.on.is_busy()
    }
}

impl Samples {
    fn add(&mut self, (off, on): (Observed, Observed)) {
        self.pairs.push(Pair {
            off: off.slice,
            on: on.slice,
        });
        self.intervals_off.merge(&off.intervals);
        self.intervals_on.merge(&on.intervals);
        self.lateness_on.merge(&on.lateness);
    }

    /// Returns the share of pairs in which the server was busy throughout, in percent.
    pub fn busy_pairs(&self) -> f64 {
        let busy = self.pairs.iter().filter(|pair| pair.is_busy()).count();
        100.0 * busy as f64 / self.pairs.len() as f64
    }

    /// Returns the requests per second without the toggle.
    pub fn throughput_off(&self) -> Vec<f64> {
        self.of_pairs(|pair| pair.off.requests_per_second())
    }

    /// Returns the share of the time in which the server's thread ran without the toggle, in percent.
    pub fn utilisation_off(&self) -> Vec<f64> {
        self.of_pairs(|pair| 100.0 * pair.off.cpu_ns as f64 / pair.off.wall_ns as f64)
    }

    /// Returns the processor time per request without the toggle, in microseconds.
    pub fn cpu_us_off(&self) -> Vec<f64> {
        self.of_pairs(|pair| pair.off.cpu_ns_per_request() / 1e3)
    }

    /// Returns the share of its throughput that the server loses with the toggle, in percent.
    pub fn throughput_lost(&self) -> Vec<f64> {
        self.of_pairs(|pair| {
            100.0 * (1.0 - pair.on.requests_per_second() / pair.off.requests_per_second())
        })
    }

    /// Returns the additional processor time per request with the toggle, in percent.
    pub fn extra_cpu(&self) -> Vec<f64> {
        self.of_pairs(|pair| {
            100.0 * (pair.on.cpu_ns_per_request() / pair.off.cpu_ns_per_request() - 1.0)
        })
    }

    /// Returns the processor time per event in microseconds: the additional time of the slice, divided by its events.
    pub fn cost_us_per_event(&self) -> Vec<f64> {
        self.of_pairs_with_events(|pair| {
            // The requests of the slice at the price of the slice without events; the remainder is the events' cost.
            let expected_ns = pair.off.cpu_ns_per_request() * pair.on.requests as f64;
            (pair.on.cpu_ns as f64 - expected_ns) / pair.on.events as f64 / 1e3
        })
    }

    /// Returns the events per request.
    pub fn events_per_request(&self) -> Vec<f64> {
        self.of_pairs_with_events(|pair| pair.on.events as f64 / pair.on.requests as f64)
    }

    /// Returns the microseconds from one event to the next.
    pub fn event_interval_us(&self) -> Vec<f64> {
        self.of_pairs_with_events(|pair| pair.on.wall_ns as f64 / pair.on.events as f64 / 1e3)
    }

    fn of_pairs(&self, value: impl Fn(&Pair) -> f64) -> Vec<f64> {
        self.counted().map(value).collect()
    }

    fn of_pairs_with_events(&self, value: impl Fn(&Pair) -> f64) -> Vec<f64> {
        let pairs = self.counted().filter(|pair| pair.on.events > 0);
        pairs.map(value).collect()
    }

    /// Returns the pairs in which the server was busy, or all pairs if these are too few.
    fn counted(&self) -> impl Iterator<Item = &Pair> {
        let busy = self.pairs.iter().filter(|pair| pair.is_busy()).count();
        let all = busy < FEW_PAIRS;
        self.pairs.iter().filter(move |pair| all || pair.is_busy())
    }
}

/// The least share of a slice in which a busy server's thread runs; the remainder is left to the kernel and other
/// programs.
const BUSY: f64 = 0.97;

/// The number of pairs below which a median means nothing.
const FEW_PAIRS: usize = 10;

/// The longest slice, as a multiple of its planned length.
const LONGEST_SLICE: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_relative_to_the_slice_without() {
        let off = Slice {
            wall_ns: 10_000_000,
            cpu_ns: 10_000_000,
            requests: 1_000,
            spun_ns: 0,
            events: 0,
        };
        let on = Slice {
            requests: 800,
            events: 100,
            ..off
        };
        let samples = Samples {
            pairs: vec![Pair { off, on }],
            ..Samples::default()
        };
        let close = |value: Vec<f64>, expected: f64| (value[0] - expected).abs() < 1e-9;
        assert!(close(samples.throughput_lost(), 20.0));
        assert!(close(samples.extra_cpu(), 25.0));
        assert!(close(samples.cost_us_per_event(), 20.0));
        assert!(close(samples.event_interval_us(), 100.0));
        assert!(close(samples.utilisation_off(), 100.0));
    }
}
