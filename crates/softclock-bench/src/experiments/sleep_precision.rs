//! `soft-timers/sleep-precision`: how late sleeps end, and what they cost, by softclock and by what else there is.
//!
//! Each figure means little without the other: a thread that spins is never late, and one that wakes each
//! millisecond is cheap. So the CPU time of a sleep stands beside its lateness, over sleeps of 20 us to 10 ms, in a
//! thread that is idle otherwise, half busy, and hardly ever idle; and with many timers in one thread.

use std::error::Error;
use std::io;
use std::process::Command;

use clap::ValueEnum;

use crate::chart::{Axis, Chart, Mark, Series};
use crate::peer_program::{Library, Source, Workshop};
use crate::report::{Context, Experiment, Report, Row};
use crate::sleepers::{Finding, Kind, Order, load};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/sleep-precision",
    about: "how late sleeps of 20 us to 10 ms end and what they cost, beside other runtimes",
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
    Ok(Report {
        title: "how late sleeps end, and the CPU time of each",
        notes: bench.notes,
        rows: bench.rows,
        charts,
    })
}

/// A program that sleeps.
struct Sleeper {
    name: &'static str,
    start: Box<dyn Fn() -> Command>,
}

impl Sleeper {
    fn run(&self, order: &Order, load: u32) -> io::Result<Finding> {
        load::run((self.start)(), order, load)
    }
}

/// Those that work here; why the others do not is noted.
fn sleepers(workshop: &Workshop, notes: &mut Vec<String>) -> io::Result<Vec<Sleeper>> {
    let this = std::env::current_exe()?;
    let mut found = Vec::new();
    for (kind, name) in KINDS {
        let this = this.clone();
        let start = move || {
            let mut command = Command::new(&this);
            let kind = kind.to_possible_value();
            command
                .arg("sleep")
                .args(kind.as_ref().map(|kind| kind.get_name()));
            command
        };
        found.push(Sleeper {
            name,
            start: Box::new(start),
        });
    }
    let compiled = [
        ("libuv", workshop.c_program(LIBUV_SOURCES, LIBUV)),
        ("Go, time.Sleep", workshop.go_program(GO_SOURCE)),
    ];
    for (name, program) in compiled {
        match program {
            Ok(program) => found.push(Sleeper {
                name,
                start: Box::new(move || Command::new(&program)),
            }),
            Err(missing) => notes.push(missing),
        }
    }
    found.retain(|sleeper| match sleeper.run(&TRIAL, 0) {
        Ok(_) => true,
        Err(error) => {
            notes.push(format!("{} is left out: {error}", sleeper.name));
            false
        }
    });
    Ok(found)
}

/// The experiment while it runs.
struct Bench<'a> {
    context: &'a Context,
    size: &'a Size,
    sleepers: Vec<Sleeper>,
    done: usize,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Bench<'_> {
    /// All lengths with a load of `load` percent: two charts.
    fn sleeps_under(&mut self, load: u32) -> io::Result<[Chart; 2]> {
        let alone = self.in_turn(&self.order(0, 0, 0), load, "the load alone")?;
        let turn_ns: Vec<f64> = alone.iter().map(|findings| turn_ns(findings)).collect();
        let mut charts = [
            chart(format!("lateness, median, load of {load} %"), LATENESS),
            chart(format!("CPU time of a sleep, load of {load} %"), COST),
        ];
        for chart in &mut charts {
            chart.series = self.sleepers.iter().map(series).collect();
        }
        for &sleep_us in self.size.sleeps_us {
            let what = format!("{} at a load of {load} %", length(sleep_us));
            let findings = self.in_turn(&self.order(1, sleep_us, sleep_us), load, &what)?;
            let rows = self.rows_of(&what, &findings, &turn_ns);
            for (chart, metric) in charts.iter_mut().zip([P50, CPU]) {
                let of_metric = rows.iter().filter(|row| row.metric.ends_with(metric));
                for row in of_metric {
                    let series = chart.series.iter_mut().find(|s| s.name == row.variant);
                    series.into_iter().for_each(|series| {
                        series.points.push((sleep_us as f64, row.value));
                    });
                }
            }
            self.rows.extend(rows);
        }
        if load > 0 {
            self.rows.extend(self.shares(load, &alone));
        }
        Ok(charts)
    }

    /// Many timers in a thread without a load.
    fn many(&mut self, timers: u32) -> io::Result<()> {
        let what = format!("{timers} timers of 20 us to 1 ms");
        let findings = self.in_turn(&self.order(timers, 20, 1000), 0, &what)?;
        let nothing = vec![0.0; findings.len()];
        let reached =
            |finding: &Finding| Some(finding.events() as f64 * 1e9 / finding.elapsed_ns as f64);
        let metric = format!("{what}: events reached");
        self.rows
            .extend(self.rows_by(&metric, "events/s", &findings, |_, f| reached(f)));
        let rows = self.rows_of(&what, &findings, &nothing);
        self.rows.extend(rows);
        Ok(())
    }

    fn order(&self, timers: u32, shortest_us: u64, longest_us: u64) -> Order {
        Order {
            timers,
            shortest_us,
            longest_us,
            warm_up_ms: self.size.warm_up_ms,
            milliseconds: (longest_us / 40).max(self.size.milliseconds),
        }
    }

    /// The findings of each sleeper, which take turns.
    fn in_turn(&mut self, order: &Order, load: u32, what: &str) -> io::Result<Vec<Vec<Finding>>> {
        let steps =
            self.size.loads.len() * (self.size.sleeps_us.len() + 1) + self.size.timers.len();
        self.context.progress(self.done, steps, what);
        self.done += 1;
        let mut findings = vec![Vec::new(); self.sleepers.len()];
        for _ in 0..self.size.rounds {
            for (sleeper, findings) in self.sleepers.iter().zip(&mut findings) {
                findings.push(sleeper.run(order, load)?);
            }
        }
        Ok(findings)
    }

    /// Lateness and cost; what ended early is noted.
    fn rows_of(&mut self, what: &str, findings: &[Vec<Finding>], turn_ns: &[f64]) -> Vec<Row> {
        for (sleeper, findings) in self.sleepers.iter().zip(findings) {
            let early: u64 = findings.iter().map(|finding| finding.early).sum();
            let all: u64 = findings.iter().map(Finding::events).sum();
            if early * 100 > all {
                let percent = 100.0 * early as f64 / all as f64;
                let name = sleeper.name;
                self.notes.push(format!(
                    "{name}, {what}: {percent:.0} % of the sleeps ended early"
                ));
            }
        }
        let late = |quantile| {
            move |_, finding: &Finding| {
                let us = finding.lateness.quantile_ns(quantile) as f64 / 1000.0;
                (finding.events() > 0).then_some(us)
            }
        };
        let cost = |sleeper: usize, finding: &Finding| {
            let sleeps_ns = finding.overhead_ns() - turn_ns[sleeper] * finding.bursts as f64;
            (finding.events() > 0).then(|| sleeps_ns / finding.events() as f64 / 1000.0)
        };
        let metric = |name: &str| format!("{what}: {name}");
        let mut rows = self.rows_by(&metric(P50), "us", findings, late(0.5));
        rows.extend(self.rows_by(&metric(P99), "us", findings, late(0.99)));
        rows.extend(self.rows_by(&metric(CPU), "us", findings, cost));
        rows
    }

    /// How much of the load the threads took on.
    fn shares(&self, load: u32, alone: &[Vec<Finding>]) -> Vec<Row> {
        let share = |_, finding: &Finding| {
            Some(100.0 * finding.burst_ns as f64 / finding.elapsed_ns as f64)
        };
        let metric = format!("load of {load} %: share of the time that its bursts took");
        self.rows_by(&metric, "%", alone, share)
    }

    /// One row for each sleeper, of the numbers that its findings give.
    fn rows_by(
        &self,
        metric: &str,
        unit: &'static str,
        findings: &[Vec<Finding>],
        number: impl Fn(usize, &Finding) -> Option<f64>,
    ) -> Vec<Row> {
        let mut rows = Vec::new();
        for (index, findings) in findings.iter().enumerate() {
            let samples: Vec<f64> = findings.iter().filter_map(|f| number(index, f)).collect();
            if !samples.is_empty() {
                let name = self.sleepers[index].name;
                rows.push(Row::of_samples(name, metric, unit, &samples));
            }
        }
        rows
    }
}

/// What a turn of the loop for a burst costs, the burst itself apart: the median.
fn turn_ns(alone: &[Finding]) -> f64 {
    let with_bursts = alone.iter().filter(|finding| finding.bursts > 0);
    let samples: Vec<f64> = with_bursts
        .map(|finding| finding.overhead_ns() / finding.bursts as f64)
        .collect();
    if samples.is_empty() {
        return 0.0;
    }
    Row::of_samples("", "", "ns", &samples).value
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
    /// At least; forty sleeps if that is longer.
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
    warm_up_ms: 30,
    milliseconds: 120,
};

/// Whether a sleeper works at all.
const TRIAL: Order = Order {
    timers: 1,
    shortest_us: 100,
    longest_us: 100,
    warm_up_ms: 1,
    milliseconds: 2,
};

const KINDS: [(Kind, &str); 6] = [
    (Kind::Softclock, "softclock"),
    (Kind::SoftclockNoSpin, "softclock, spin cap 0"),
    (Kind::Tokio, "tokio"),
    (Kind::TokioTimerfd, "tokio, timerfd"),
    (Kind::AsyncIo, "async-io"),
    (Kind::IoUring, "io_uring timeout"),
];

const LIBUV: Library = Library {
    name: "libuv",
    debian: "libuv1-dev",
    link: &["-luv"],
};
const LIBUV_SOURCES: &[Source] = &[
    ("sleep_libuv.c", include_str!("../../peers/sleep_libuv.c")),
    ("sleep.h", include_str!("../../peers/sleep.h")),
];
const GO_SOURCE: Source = ("sleep_go.go", include_str!("../../peers/sleep_go.go"));

const P50: &str = "lateness, median";
const P99: &str = "lateness, 99 %";
const CPU: &str = "cost of an event, CPU time";

const LATENESS: Axis = Axis::decades("us", 0.1, 10_000.0);
const COST: Axis = Axis::decades("us", 0.1, 1000.0);

const NOTES: [&str; 7] = [
    "each variant is a process of its own with one thread that sleeps; CPU time is the process's, helper threads of \
     its runtime included; variants take turns, and a row is the median of the rounds",
    "load: bytes come through a pipe, one each 50 us / load, at most 4 waiting; for each the sleeping thread computes \
     until it has used 50 us of CPU time, one a turn of its loop, woken by the pipe as by a socket",
    "cost of an event: the process's CPU time less that of the bursts, less what turns for bursts cost where nothing \
     sleeps, divided by the sleeps; below zero where noise is greater, most of all for long sleeps under load",
    "at a load of 95 % the sleeps themselves can take the rest: then the thread is never idle, and takes on less of \
     the load",
    "softclock spins for at most 5 % of the time (its default), and sets the thread's timer slack to 1 ns; the others \
     have the slack they come with, 50 us, which delays waits with a time-out but neither timerfd nor io_uring",
    "tokio and libuv count milliseconds: shorter sleeps take one; libuv is given them rounded up",
    "many timers: each sleeps a random time again and again; 1000 of them ask for 2 million events a second, which \
     shows the most that a thread can do, at any lateness",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_costs_what_is_not_the_bursts_own() {
        let finding = |cpu_ns, bursts| Finding {
            cpu_ns,
            bursts,
            burst_ns: 50_000 * bursts,
            ..Finding::default()
        };
        let alone = [finding(5_000, 0), finding(102_000, 2), finding(52_000, 1)];
        assert_eq!(turn_ns(&alone), 1500.0);
        assert_eq!(turn_ns(&alone[..1]), 0.0);
    }
}
