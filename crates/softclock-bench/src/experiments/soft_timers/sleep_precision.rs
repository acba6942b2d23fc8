//! `soft-timers/sleep-precision`: the lateness and the cost of sleeps, by softclock and by other runtimes.
//!
//! Neither figure means much without the other: a thread that spins is never late, and one that wakes each millisecond
//! is cheap. So the processor time of a sleep stands beside its lateness, for sleeps of 20 us to 10 ms in a thread that
//! is otherwise idle, half busy, or hardly ever idle; and for many timers in one thread.

mod variants;

use std::error::Error;
use std::io;

use crate::lab::sleepers::{Finding, Order};
use crate::output::best_peer::{Better, Comparison};
use crate::output::chart::{Axis, Chart, Mark, Series};
use crate::output::report::{Context, Experiment, Report, Row, Takes};
use crate::peers::program::Workshop;
use variants::{SOFTCLOCK, Sleeper, sleepers};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/sleep-precision",
    about: "how late sleeps of 20 us to 10 ms end and what they cost, beside other runtimes",
    takes: Takes::Nothing,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let size = if context.smoke { &SMOKE } else { &FULL };
    let workshop = Workshop::new()?;
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    let mut bench = Bench {
        context,
        size,
        sleepers: sleepers(&workshop, &mut notes)?,
        done: 0,
        rows: Vec::new(),
        notes,
    };
    let mut charts = Vec::new();
    for &load in size.loads {
        charts.extend(bench.sleeps_under(load)?);
    }
    for &timers in size.timers {
        bench.many(timers)?;
    }
    context.progress(1, 1, "");
    let beside = BESIDE_PEERS.rows(&bench.rows);
    bench.rows.extend(beside);
    Ok(Report {
        title: "how late sleeps end, and the CPU time of each",
        notes: bench.notes,
        rows: bench.rows,
        charts,
    })
}

/// The state of the experiment while it runs.
struct Bench<'a> {
    context: &'a Context,
    size: &'a Size,
    sleepers: Vec<Sleeper>,
    done: usize,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Bench<'_> {
    /// Measures all lengths of sleeps under a load of `load` percent; returns two charts.
    fn sleeps_under(&mut self, load: u32) -> io::Result<[Chart; 2]> {
        let mut charts = [
            chart(format!("lateness, median, load of {load} %"), LATENESS),
            chart(format!("CPU time of a sleep, load of {load} %"), COST),
        ];
        for chart in &mut charts {
            // An empty curve for each sleeper fixes the order of colours in all charts.
            chart.series = self.sleepers.iter().map(series).collect();
        }
        let mut all = vec![Vec::new(); self.sleepers.len()];
        for &sleep_us in self.size.sleeps_us {
            let what = format!("{} at a load of {load} %", length(sleep_us));
            let samples = self.in_turn(&self.order(1, sleep_us, sleep_us), load, &what)?;
            let rows = self.rows_of(&what, &samples);
            for (chart, metric) in charts.iter_mut().zip([P50, CPU]) {
                add_points(
                    chart,
                    sleep_us,
                    rows.iter().filter(|r| r.metric.ends_with(metric)),
                );
            }
            self.rows.extend(rows);
            for (all, samples) in all.iter_mut().zip(samples) {
                all.extend(samples);
            }
        }
        if load > 0 {
            let metric = format!("load of {load} %: share of the time that its bursts took");
            let rows = self.rows_by(&metric, "%", &all, |sample| Some(sample.share()));
            self.rows.extend(rows);
        }
        Ok(charts)
    }

    /// Measures many timers in a thread without a load.
    fn many(&mut self, timers: u32) -> io::Result<()> {
        let what = format!("{timers} timers of 20 us to 1 ms");
        let samples = self.in_turn(&self.order(timers, 20, 1000), 0, &what)?;
        let metric = format!("{what}: events reached");
        let reached = self.rows_by(&metric, "events/s", &samples, |sample| Some(sample.rate()));
        self.rows.extend(reached);
        let rows = self.rows_of(&what, &samples);
        self.rows.extend(rows);
        Ok(())
    }

    fn order(&self, timers: u32, shortest_us: u64, longest_us: u64) -> Order {
        Order {
            timers,
            shortest_us,
            longest_us,
            warm_up_ms: self.size.warm_up_ms,
            milliseconds: (longest_us / 5).max(self.size.milliseconds),
        }
    }

    /// Returns the samples of each sleeper. The sleepers take turns.
    fn in_turn(&mut self, order: &Order, load: u32, what: &str) -> io::Result<Vec<Vec<Sample>>> {
        let steps = self.size.loads.len() * self.size.sleeps_us.len() + self.size.timers.len();
        let mut samples = vec![Vec::new(); self.sleepers.len()];
        let count = self.sleepers.len();
        for round in 0..self.size.rounds {
            for turn in 0..count {
                // Rotate the order, so that no sleeper always runs first.
                let index = (round + turn) % count;
                let sample = || self.sample(&self.sleepers[index], order, load);
                let sample = self.context.round(self.done, steps, what, sample)?;
                samples[index].push(sample);
            }
        }
        self.done += 1;
        Ok(samples)
    }

    /// Runs a sleeper once. Under a load, the load alone is then measured, to be subtracted.
    fn sample(&self, sleeper: &Sleeper, order: &Order, load: u32) -> io::Result<Sample> {
        let finding = sleeper.run(order, load)?;
        let turn_ns = if load == 0 {
            Some(0.0)
        } else if order.longest_us <= RARE_US {
            turn_ns(&sleeper.run(&self.order(0, 0, 0), load)?)
        } else {
            None
        };
        Ok(Sample { finding, turn_ns })
    }

    /// Returns the rows of lateness and cost; adds a note if more than 1 % of the sleeps ended early.
    fn rows_of(&mut self, what: &str, samples: &[Vec<Sample>]) -> Vec<Row> {
        for (sleeper, samples) in self.sleepers.iter().zip(samples) {
            let findings = samples.iter().map(|sample| &sample.finding);
            let early: u64 = findings.clone().map(|finding| finding.early).sum();
            let all: u64 = findings.map(Finding::events).sum();
            // Below one percent, early ends are rounding.
            if early * 100 > all {
                let percent = 100.0 * early as f64 / all as f64;
                let name = sleeper.name;
                self.notes.push(format!(
                    "{name}, {what}: {percent:.0} % of the sleeps ended early"
                ));
            }
        }
        let metric = |name: &str| format!("{what}: {name}");
        let mut rows = self.rows_by(&metric(P50), "us", samples, |s| s.late_us(0.5));
        rows.extend(self.rows_by(&metric(P99), "us", samples, |s| s.late_us(0.99)));
        rows.extend(self.rows_by(&metric(CPU), "us", samples, Sample::cost_us));
        rows
    }

    /// Returns a row for each sleeper of the values that `number` takes from its samples.
    fn rows_by(
        &self,
        metric: &str,
        unit: &'static str,
        samples: &[Vec<Sample>],
        number: impl Fn(&Sample) -> Option<f64>,
    ) -> Vec<Row> {
        let mut rows = Vec::new();
        for (sleeper, samples) in self.sleepers.iter().zip(samples) {
            let numbers: Vec<f64> = samples.iter().filter_map(&number).collect();
            if !numbers.is_empty() {
                rows.push(Row::of_samples(sleeper.name, metric, unit, &numbers));
            }
        }
        rows
    }
}

/// One run of a sleeper.
#[derive(Clone)]
struct Sample {
    finding: Finding,
    /// The cost of a turn of its loop for a burst, if measured.
    turn_ns: Option<f64>,
}

impl Sample {
    fn late_us(&self, quantile: f64) -> Option<f64> {
        let us = self.finding.lateness.quantile_ns(quantile) as f64 / 1000.0;
        (self.finding.events() > 0).then_some(us)
    }

    /// Returns the processor time per sleep, without the bursts and their turns.
    fn cost_us(&self) -> Option<f64> {
        let turns_ns = self.turn_ns? * self.finding.bursts as f64;
        let sleeps_ns = self.finding.overhead_ns() - turns_ns;
        let events = self.finding.events();
        (events > 0).then(|| sleeps_ns / events as f64 / 1000.0)
    }

    /// Returns the bursts' share of the time, in percent.
    fn share(&self) -> f64 {
        100.0 * self.finding.burst_ns as f64 / self.finding.elapsed_ns as f64
    }

    /// Returns the sleeps per second.
    fn rate(&self) -> f64 {
        self.finding.events() as f64 * 1e9 / self.finding.elapsed_ns as f64
    }
}

/// Returns the cost of a turn of the loop for a burst, without the burst, in a run without sleeps.
fn turn_ns(alone: &Finding) -> Option<f64> {
    (alone.bursts > 0).then(|| alone.overhead_ns() / alone.bursts as f64)
}

fn add_points<'a>(chart: &mut Chart, sleep_us: u64, rows: impl Iterator<Item = &'a Row>) {
    for row in rows {
        let series = chart.series.iter_mut().find(|s| s.name == row.variant);
        if let Some(series) = series {
            series.points.push((sleep_us as f64, row.value));
        }
    }
}

fn length(us: u64) -> String {
    if us >= 1000 {
        format!("{} ms", us / 1000)
    } else {
        format!("{us} us")
    }
}

fn chart(title: String, y: Axis) -> Chart {
    Chart {
        title,
        x: Axis::decades("sleep, us", 10.0, 10_000.0),
        y,
        series: Vec::new(),
    }
}

fn series(sleeper: &Sleeper) -> Series {
    Series {
        name: sleeper.name.to_owned(),
        mark: Mark::Line,
        points: Vec::new(),
    }
}

struct Size {
    loads: &'static [u32],
    sleeps_us: &'static [u64],
    timers: &'static [u32],
    rounds: usize,
    warm_up_ms: u64,
    /// The least length of a run; it is longer where two hundred sleeps take longer.
    milliseconds: u64,
}

const SMOKE: Size = Size {
    loads: &[0, 50],
    sleeps_us: &[100, 1000],
    timers: &[10],
    rounds: 1,
    warm_up_ms: 3,
    milliseconds: 25,
};

const FULL: Size = Size {
    loads: &[0, 50, 95],
    sleeps_us: &[20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000],
    timers: &[100, 1000],
    rounds: 5,
    warm_up_ms: 15,
    milliseconds: 100,
};

/// The longest sleep whose cost is measured under a load. Longer ones are so rare beside the load's bursts that their
/// cost is below the noise.
const RARE_US: u64 = 1000;

const P50: &str = "lateness, median";
const P99: &str = "lateness, 99 %";
const CPU: &str = "cost of an event, CPU time";

const BESIDE_PEERS: Comparison = Comparison {
    is_ours: |variant| variant == SOFTCLOCK,
    is_peer: |variant| !variant.starts_with(SOFTCLOCK),
    better: |metric| {
        let is_compared = [P50, P99, CPU].iter().any(|what| metric.ends_with(what));
        is_compared.then_some(Better::Less)
    },
};

const LATENESS: Axis = Axis::decades("us", 0.1, 10_000.0);
const COST: Axis = Axis::decades("us", 0.1, 1000.0);

const NOTES: [&str; 7] = [
    "each variant is a process of its own with one thread that sleeps; CPU time is the process's, helper threads of \
     its runtime included; variants take turns, and a row is the median of the rounds",
    "load: bytes come through a pipe, one each 50 us / load, at most 4 waiting; for each the sleeping thread computes \
     until it has used 50 us of CPU time, one a turn of its loop, woken by the pipe as by a socket",
    "cost of an event: the process's CPU time less that of the bursts, less what turns for bursts cost in a run beside \
     it where nothing sleeps, divided by the sleeps. It is below zero where noise is greater, and where a thread that \
     a sleep woke finds the next byte without another wake-up. Not measured under load for sleeps above 1 ms: there \
     are tens of bursts for each, whose noise is greater",
    "at a load of 95 % the sleeps can take what is left: then the thread is never idle, and takes on less of the load; \
     so it does where other programs want its processor",
    "softclock spins for at most 5 % of the time (its default); all have a timer slack of 1 ns, which softclock sets itself \
     and the others are started with (PR_SET_TIMERSLACK; the usual 50 us delay waits with a time-out)",
    "tokio and libuv count milliseconds: shorter sleeps take one; libuv is given them rounded up",
    "many timers: each sleeps a random time again and again; 1000 of them ask for 2 million events a second, which \
     shows the most that a thread can do, at any lateness",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(cpu_ns: u64, bursts: u64) -> Finding {
        Finding {
            cpu_ns,
            bursts,
            burst_ns: 50_000 * bursts,
            ..Finding::default()
        }
    }

    #[test]
    fn a_sleep_costs_what_neither_bursts_nor_their_turns_do() {
        let turn_ns = turn_ns(&finding(103_000, 2));
        assert_eq!(turn_ns, Some(1500.0));
        let mut finding = finding(60_500, 1);
        for _ in 0..3 {
            finding.lateness.record(5);
        }
        let sample = Sample { finding, turn_ns };
        assert_eq!(sample.cost_us(), Some(3.0));
        assert_eq!(sample.late_us(0.5), Some(0.005));
    }

    #[test]
    fn nothing_is_said_of_what_did_not_happen() {
        assert_eq!(turn_ns(&finding(5_000, 0)), None);
        let sample = Sample {
            finding: finding(5_000, 0),
            turn_ns: Some(0.0),
        };
        assert_eq!((sample.cost_us(), sample.late_us(0.5)), (None, None));
    }
}
