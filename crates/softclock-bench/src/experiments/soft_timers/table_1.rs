//! `soft-timers/table-1`: the cost of an event with a null handler in a busy web server (*Soft Timers*, section 5.1).
//!
//! The paper adds interrupts of a hardware timer, or a soft event at every trigger state, to a saturated server and
//! divides the slowdown by their number. This experiment uses softclock's server over loopback; POSIX timer signals and
//! timer descriptors stand for the hardware timer, because they are the closest that a program has.

use std::error::Error;
use std::io;
use std::time::Duration;

use softclock::Histogram;

use crate::lab::busy_server::compare::{Case, Plan, Samples, compare};
use crate::lab::busy_server::timerfd::Again;
use crate::lab::busy_server::toggles::{
    Backup, Deadline, Nothing, Signal, SignalHandler, Soft, Spacing, Timerfd, Toggle,
};
use crate::lab::busy_server::{self, Workload};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/table-1",
    about: "Table I: events with a null handler in a busy web server, soft, signal and timerfd",
    takes: Takes::Nothing,
    run,
};

/// A toggle to measure, and the paper's numbers for it.
struct Variant {
    name: String,
    kind: Kind,
    toggle: fn(Duration) -> Box<dyn Toggle>,
    /// The argument of `toggle`.
    period: Duration,
    paper: Paper,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Costs close to nothing: needs many pairs, and is reported with bounds of the median.
    Small,
    /// Like [`Small`](Self::Small); the runtime's statistics also have its lateness.
    Soft,
    /// Costs so much that a few pairs show it.
    Large,
}

/// The paper's numbers.
#[derive(Clone, Copy, Default)]
struct Paper {
    cost_us: Option<f64>,
    interval_us: Option<f64>,
}

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let variants = variants();
    let plan = if context.smoke { Plan::SMOKE } else { FULL };
    let samples = busy_server::run(&Workload::of(context.smoke), || {
        measure(context, &plan, &variants)
    })?;
    let mut rows = server_rows(&samples[0]);
    for (variant, samples) in variants.iter().zip(&samples) {
        rows.extend(cost_rows(variant, samples));
        rows.extend(interval_row(variant, samples));
        if variant.kind == Kind::Soft && !samples.lateness_on.is_empty() {
            rows.extend(lateness_rows(variant, &samples.lateness_on));
        }
    }
    Ok(Report {
        title: "cost of an event with a null handler in a busy web server",
        notes: NOTES.iter().map(|&note| note.to_owned()).collect(),
        rows,
        charts: Vec::new(),
    })
}

async fn measure(context: &Context, plan: &Plan, variants: &[Variant]) -> io::Result<Vec<Samples>> {
    let mut cases: Vec<Case> = variants
        .iter()
        .map(|variant| Case {
            toggle: (variant.toggle)(variant.period),
            pairs: if variant.kind == Kind::Large {
                1
            } else {
                SMALL_PAIRS
            },
        })
        .collect();
    compare(context, plan, &mut cases).await
}

fn variants() -> Vec<Variant> {
    let small = |name: &str, us, toggle| Variant::new(name.to_owned(), Kind::Small, us, toggle);
    let soft = |name: &str, us, toggle| Variant::new(name.to_owned(), Kind::Soft, us, toggle);
    let mut variants = vec![
        small(NOTHING, 0, |_| Box::new(Nothing)),
        soft("soft event, each trigger state", 0, soft_event).paper(Some(0.0), Some(12.45)),
        soft("soft event, 10 us after the last", 10, soft_event).paper(Some(0.0), None),
        soft("soft event, 20 us after the last", 20, soft_event).paper(Some(0.0), None),
        soft("soft event, 100 us after the last", 100, soft_event).paper(Some(0.0), None),
        soft("soft event, each 10 us, none left out", 10, |period| {
            Box::new(Soft::new(Spacing::Rate(ticks(period)), || ()))
        }),
        small("backup timer, adapted up to 32 ms", 32_000, backup),
        small("backup timer, each tick of the kernel", 0, backup),
        small("alarm-safe event, 100 us, deadline 1 ms", 100, |period| {
            Box::new(Deadline::new(period, Duration::from_millis(1)))
        }),
        small("alarm-safe event, 100 us, deadline 50 us", 100, |period| {
            Box::new(Deadline::new(period, Duration::from_micros(50)))
        }),
    ];
    for us in HARDWARE_US {
        let name = format!("signal, each {us} us");
        let signal = Variant::new(name, Kind::Large, us, |period| {
            Box::new(Signal::new(Again::Each(period), SignalHandler::null()))
        });
        variants.push(signal.paper(Some(4.36), None));
    }
    for us in HARDWARE_US {
        let name = format!("timerfd, each {us} us");
        let timerfd = Variant::new(name, Kind::Large, us, |period| {
            Box::new(Timerfd::new(Again::Each(period), || ()))
        });
        variants.push(timerfd);
    }
    variants
}

impl Variant {
    fn new(name: String, kind: Kind, us: u64, toggle: fn(Duration) -> Box<dyn Toggle>) -> Self {
        Self {
            name,
            kind,
            toggle,
            period: Duration::from_micros(us),
            paper: Paper::default(),
        }
    }

    fn paper(self, cost_us: Option<f64>, interval_us: Option<f64>) -> Self {
        Self {
            paper: Paper {
                cost_us,
                interval_us,
            },
            ..self
        }
    }
}

fn soft_event(period: Duration) -> Box<dyn Toggle> {
    Box::new(Soft::new(Spacing::Since(ticks(period)), || ()))
}

fn backup(longest: Duration) -> Box<dyn Toggle> {
    Box::new(Backup::new(longest))
}

fn ticks(period: Duration) -> u64 {
    // Microseconds suffice: all periods here are below a second.
    period.as_micros() as u64
}

/// Returns the rows of the server without any events.
fn server_rows(samples: &Samples) -> Vec<Row> {
    let intervals = &samples.intervals_off;
    let row =
        |metric, unit, samples: &[f64]| Row::of_samples("server alone", metric, unit, samples);
    vec![
        row("throughput", "requests/s", &samples.throughput_off()),
        row("processor time a request", "us", &samples.cpu_us_off()),
        row(
            "processor time of the server's thread",
            "%",
            &samples.utilisation_off(),
        ),
        row(
            "pairs of slices with a busy server",
            "%",
            &[samples.busy_pairs()],
        ),
        row("trigger interval, mean", "us", &[intervals.mean_ns() / 1e3]),
        row(
            "trigger interval, median",
            "us",
            &[quantile_us(intervals, 0.5)],
        ),
    ]
}

fn cost_rows(variant: &Variant, samples: &Samples) -> Vec<Row> {
    let (cpu, lost) = (samples.extra_cpu(), samples.throughput_lost());
    let mut rows = vec![
        Row::of_samples(&variant.name, "more processor time a request", "%", &cpu),
        Row::of_samples(&variant.name, "throughput lost", "%", &lost),
    ];
    if variant.kind != Kind::Large {
        rows.push(Row::median_bounds(
            &variant.name,
            "more processor time: 95 % bounds of the median",
            "%",
            &cpu,
        ));
        rows.push(Row::median_bounds(
            &variant.name,
            "throughput lost: 95 % bounds of the median",
            "%",
            &lost,
        ));
    }
    let cost = samples.cost_us_per_event();
    if !cost.is_empty() {
        let row = Row::of_samples(&variant.name, "cost of an event", "us", &cost);
        rows.push(Row {
            paper: variant.paper.cost_us,
            ..row
        });
    }
    rows
}

fn interval_row(variant: &Variant, samples: &Samples) -> Option<Row> {
    let intervals = samples.event_interval_us();
    if intervals.is_empty() {
        return None;
    }
    let row = Row::of_samples(&variant.name, "time from event to event", "us", &intervals);
    Some(Row {
        paper: variant.paper.interval_us,
        ..row
    })
}

fn lateness_rows(variant: &Variant, lateness: &Histogram) -> Vec<Row> {
    let quantiles = [(0.5, "lateness, p50"), (0.99, "lateness, p99")];
    quantiles
        .into_iter()
        .map(|(quantile, metric)| {
            let us = quantile_us(lateness, quantile);
            Row::of_samples(&variant.name, metric, "us", &[us])
        })
        .collect()
}

fn quantile_us(histogram: &Histogram, quantile: f64) -> f64 {
    histogram.quantile_ns(quantile) as f64 / 1e3
}

const NOTHING: &str = "nothing (what is found here is noise)";

const HARDWARE_US: [u64; 6] = [20, 50, 100, 250, 500, 1000];

/// Pairs per round of variants with a small cost.
const SMALL_PAIRS: usize = 4;

const FULL: Plan = Plan {
    rounds: 60,
    ..Plan::FULL
};

const NOTES: [&str; 7] = [
    "Table I of the paper: 8.64 us (Alpha), 4.45 us (8253, PII-300), 4.36 us (8253, PIII-500), 0.8 us (APIC, \
     PIII-500), soft timers about 0; signals stand beside 4.36",
    "the server answers requests for a 6 KB file on 256 keep-alive connections of this process; server and clients \
     have a processor each where there are two",
    "each figure is the median over pairs of slices, one with and one without, next to each other; the spread \
     is that of single pairs, the bounds are those of the median (sign test)",
    "a pair in which the server was not busy all the time, because others used the processors, is taken again, up \
     to three times, and then left out, unless hardly one is left",
    "cost of an event: the processor time of the server's thread, interrupts included, beyond what its requests take \
     in the other slice of the pair, over the number of events",
    "lateness and trigger intervals are those of all slices together, time in which the thread could not run \
     included",
    "a timer descriptor fires once a turn of the loop at most: what expires meanwhile is read as one event",
];
