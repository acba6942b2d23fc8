//! `lrp/step`: recovery from a step of the load, by the method of *Breakwater* (OSDI 2020, section 5).
//!
//! The load goes from 0.7 of the capacity to 1.4 times and to 4 times of it for a second, and back.

use std::error::Error;
use std::io;
use std::time::Duration;

use super::super::cells::{self, Cell};
use crate::lab::lrp::{Service, Stage, Variant, after_step, notes};
use crate::output::metric::Metric;
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "lrp/step",
    about: "time until goodput is back at 95 % after the load steps to 1.4 and 4 times the capacity, and back",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "steps of the load";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let cells = plan.factors.iter().flat_map(|&factor| {
        let variants = Variant::ALL.into_iter();
        variants.map(move |variant| Cell {
            variant: variant.name().to_owned(),
            setting: format!("step to {factor} times the capacity"),
            content: (variant, factor),
        })
    });
    cells::report(
        context,
        (TITLE, &notes(&OWN_NOTES)),
        (cells.collect(), plan.rounds),
        &METRICS,
        |&(variant, factor)| measure(variant, factor, plan),
        |_| Vec::new(),
    )
}

struct Sample {
    /// Datagrams a second.
    capacity: f64,
    up: Duration,
    /// Delivered during the step, as a share of the capacity.
    goodput: f64,
    down: Duration,
}

fn measure(variant: Variant, factor: f64, plan: &Plan) -> io::Result<Vec<Sample>> {
    let stage = Stage::new(variant, &[Service::sink(PORT, WORK)])?;
    let mut capacity: f64 = 1000.0;
    for &rate in plan.probes {
        let rates = stage.rates(rate, plan.settle, plan.probe)?;
        capacity = capacity.max(rates.delivered);
    }
    let normal = 0.7 * capacity;
    let step = |_| {
        let before = stage.rates(normal as u64, plan.settle, plan.probe)?;
        let during = after_step(&stage, (factor * capacity) as u64, plan.step)?;
        let after = after_step(&stage, normal as u64, plan.back)?;
        Ok(Sample {
            capacity,
            up: during.time_until(0.95 * before.delivered),
            goodput: during.mean() / capacity,
            down: after.time_until(0.95 * before.delivered),
        })
    };
    (0..plan.steps).map(step).collect()
}

const METRICS: [Metric<Sample>; 4] = [
    ("capacity", "k/s", |sample| Some(sample.capacity / 1e3)),
    ("goodput back at 95 % after the step up", "ms", |sample| {
        Some(sample.up.as_secs_f64() * 1e3)
    }),
    (
        "delivered during the step, as share of the capacity",
        "%",
        |sample| Some(sample.goodput * 100.0),
    ),
    ("goodput back at 95 % after the step down", "ms", |sample| {
        Some(sample.down.as_secs_f64() * 1e3)
    }),
];

struct Plan {
    /// The loads of the step, as multiples of the capacity.
    factors: &'static [f64],
    /// Offered rates, of which the one with the most deliveries shows the capacity.
    probes: &'static [u64],
    probe: Duration,
    settle: Duration,
    step: Duration,
    /// The time after the step.
    back: Duration,
    /// Steps in each round, on the same server.
    steps: u32,
    rounds: usize,
}

const FULL: Plan = Plan {
    factors: &[1.4, 4.0],
    probes: &[60_000, 70_000, 80_000, 90_000],
    probe: Duration::from_millis(60),
    settle: Duration::from_millis(30),
    step: Duration::from_secs(1),
    back: Duration::from_millis(150),
    steps: 5,
    rounds: 4,
};

const SMOKE: Plan = Plan {
    factors: &[4.0],
    probes: &[60_000],
    probe: Duration::from_millis(30),
    settle: Duration::from_millis(10),
    step: Duration::from_millis(30),
    back: Duration::from_millis(30),
    steps: 1,
    rounds: 1,
};

const PORT: u16 = 9;
const WORK: Duration = Duration::from_micros(10);

const OWN_NOTES: [&str; 2] = [
    "the receiver works for 10 us on each datagram; capacity: the most that is delivered at loads of 60 to 90 k/s; goodput is \
     back at the end of the first of three windows of 5 ms in a row with at least 95 % of what was delivered before the step, so \
     that 5 ms is the least; 20 steps of each kind",
    "1000 ms: not within the second; 150 ms: not within 150 ms of the step down",
];
