//! `pspacer/tolerance`: the benefit of serving the timers of many classes together (*PSPacer/HT*, section IV-D, its
//! open issue).
//!
//! With a tolerance, packets of all classes that are due within it leave in one batch. This saves events and system
//! calls, and makes bursts.

use std::error::Error;
use std::io;
use std::thread;
use std::time::Duration;

use softclock_core::Rate;

use crate::lab::bridge::{self, Load, Pace, Setup, Shaper, Traffic, mbit};
use crate::output::metric::{self, Metric};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pspacer/tolerance",
    about: "the open issue: processor time against burstiness of 1000 classes, with tolerances of 0 to 10 ms",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "1000 classes served together within a tolerance";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    bridge::report(TITLE, &NOTES, |notes| {
        let plan = if context.smoke { &SMOKE } else { &FULL };
        let setups = (TOLERANCES.iter()).filter(|(name, _)| !context.smoke || *name != "1 ms");
        let setups: Vec<Setup> = setups
            .map(|&(name, options)| setup(name, options))
            .collect();
        let found = bridge::rounds(context, &setups, plan.rounds, notes, |_, traffic| {
            sample(traffic, plan)
        })?;
        Ok((rows(&found), Vec::new()))
    })
}

fn setup(tolerance: &str, options: &'static str) -> Setup {
    let shaper = Shaper::Pace(Pace {
        classes: CLASSES,
        class: "burst 3000",
        options,
        ..Pace::of_rate(RATE)
    });
    let load = Load::Flows {
        rate: RATE,
        offered: OFFERED,
        ports: CLASSES,
    };
    Setup::new(format!("tolerance {tolerance}"), shaper, load)
}

struct Sample {
    /// Processor time of pace per frame, in microseconds.
    process_us: f64,
    machine_us: f64,
    others: f64,
    rate_error: f64,
    /// Mean number of frames queued in the virtual bottleneck.
    mean: f64,
    p999: f64,
    trains: f64,
}

fn sample(traffic: Traffic, plan: &Plan) -> io::Result<Sample> {
    // Wait until all classes have used up their bursts.
    thread::sleep(plan.settle);
    let flow = traffic.measure(plan.slice)?;
    // After the measurement of processor time, of which tcpdump takes a part.
    let burstiness = traffic.capture(plan.slice)?.burstiness(RATE);
    let others = traffic.end_and_others(plan.slice / 2)?;
    let queue = burstiness.queue().cloned().unwrap_or_default();
    Ok(Sample {
        process_us: flow.busy.process * 1e6 / flow.frames,
        machine_us: (flow.busy.machine - others) * 1e6 / flow.frames,
        others,
        rate_error: (flow.bps / RATE.bps() as f64 - 1.0) * 100.0,
        mean: queue.mean_packets(),
        p999: queue.packets.quantile_ns(0.999) as f64,
        trains: burstiness.trains().lengths().quantile_ns(0.999) as f64,
    })
}

const METRICS: [Metric<Sample>; 7] = [
    ("process of pace, time a frame", "us", |sample| {
        // The kernel counts in ticks: 0 means less than one.
        Some(sample.process_us).filter(|&us| us > 0.0)
    }),
    ("machine, time a frame above idle", "us", |sample| {
        Some(sample.machine_us)
    }),
    ("burstiness, mean", "frames", |sample| Some(sample.mean)),
    ("burstiness, p99.9", "frames", |sample| Some(sample.p999)),
    ("trains (gaps below 10 us), p99.9", "frames", |sample| {
        Some(sample.trains)
    }),
    ("rate above its target", "%", |sample| {
        Some(sample.rate_error)
    }),
    ("processors busy with other work", "", |sample| {
        Some(sample.others)
    }),
];

fn rows(results: &[(Setup, Vec<Sample>)]) -> Vec<Row> {
    let variants = results.iter();
    let variants = variants.map(|(setup, samples)| (setup.name.clone(), samples.iter().collect()));
    metric::rows(&METRICS, "", variants)
}

/// The name of a tolerance, and pace's option for it.
const TOLERANCES: [(&str, &str); 4] = [
    ("0", ""),
    ("100 us", "--tolerance 100us"),
    ("1 ms", "--tolerance 1ms"),
    ("10 ms", "--tolerance 10ms"),
];

struct Plan {
    settle: Duration,
    /// The length of a slice: whole periods of 60 ms, in which each class sends one frame.
    slice: Duration,
    rounds: usize,
}

const FULL: Plan = Plan {
    settle: Duration::from_millis(600),
    slice: Duration::from_millis(2400),
    rounds: 5,
};

const SMOKE: Plan = Plan {
    settle: Duration::ZERO,
    slice: Duration::from_millis(120),
    rounds: 1,
};

const CLASSES: u16 = 1000;
const RATE: Rate = mbit(200);
const OFFERED: Rate = mbit(260);

const NOTES: [&str; 4] = [
    "200 Mbit/s of UDP in all: a frame each 60 us, and of each class one each 60 ms; offered is 1.3 times that; bursts of 3000 \
     bytes a class; their clocks begin evenly spread, so that without a tolerance frames leave one by one",
    "the first frame that is due waits for the tolerance, unless others arrive before: these are a trigger state at which all \
     that is due leaves, here about each millisecond",
    "burstiness is that behind a virtual bottleneck of the target's rate, or the capture's mean where that is higher; a batch of 1 ms \
     is 17 frames, one of 10 ms 167; processor time is taken without the capture, which follows",
    "machine: all processors while it runs, less those busy right after it: sender, bridge and receiver",
];
