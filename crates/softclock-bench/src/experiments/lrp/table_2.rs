//! `lrp/table-2`: a worker and two servers of short calls on one processor (*LRP*, Table 2).
//!
//! The worker computes in response to one call. Meanwhile two servers always have calls outstanding. With fair shares
//! the worker gets a third of the processor; a kernel that charges protocol work to the thread that it interrupts
//! favours the servers.

use std::error::Error;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::super::cells::{self, Cell};
use crate::lab::lrp::client::{Calls, call_once};
use crate::lab::lrp::{KernelReceive, Service, Stage, Variant, check_weights, notes};
use crate::output::metric::Metric;
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "lrp/table-2",
    about: "a computing server beside two servers of short calls on one processor: completion time, calls and shares",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "synthetic server workload";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let weights = check_weights();
    let weighted = weights.is_ok().then_some(WEIGHTED);
    let cells = plan.speeds.iter().flat_map(|&(speed, call)| {
        let variants = Variant::ALL.into_iter().chain(weighted);
        variants.map(move |variant| Cell {
            variant: variant.name().to_owned(),
            setting: format!("{speed}: calls of {} us", call.as_micros()),
            content: (variant, call),
        })
    });
    let left_out = weights.err().map(|reason| {
        let name = WEIGHTED.name();
        format!("{name}: not measured, {reason}")
    });
    let own_notes: Vec<&str> = OWN_NOTES.into_iter().chain(left_out.as_deref()).collect();
    cells::report(
        context,
        (TITLE, &notes(&own_notes)),
        (cells.collect(), plan.rounds),
        &METRICS,
        |&(variant, call)| measure(variant, call, plan).map(|sample| vec![sample]),
        |_| Vec::new(),
    )
}

struct Sample {
    /// The worker's, alone.
    alone: Duration,
    /// The worker's, beside the servers of calls.
    beside: Duration,
    /// Calls answered a second, of both servers.
    calls: [f64; 2],
}

fn measure(variant: Variant, call: Duration, plan: &Plan) -> io::Result<Sample> {
    let services = [
        Service::answering(WORKER, plan.work),
        Service::answering(CALLED[0], call),
        Service::answering(CALLED[1], call),
    ];
    let stage = Stage::new(variant, &services)?;
    let alone = call_once(&stage.network, WORKER, PATIENCE)?;
    let start = |port| Calls::start(&stage.network, port, CALL_BYTES, OUTSTANDING, PAUSE);
    let clients = [start(CALLED[0])?, start(CALLED[1])?];
    thread::sleep(plan.settle);
    let answered = || clients.each_ref().map(Calls::answered);
    let (begun, before) = (Instant::now(), answered());
    let beside = call_once(&stage.network, WORKER, PATIENCE)?;
    let (after, seconds) = (answered(), begun.elapsed().as_secs_f64());
    Ok(Sample {
        alone,
        beside,
        calls: [0, 1].map(|of| (after[of] - before[of]) as f64 / seconds),
    })
}

const METRICS: [Metric<Sample>; 5] = [
    ("worker's completion, alone", "ms", |sample| {
        Some(sample.alone.as_secs_f64() * 1e3)
    }),
    ("worker's completion", "ms", |sample| {
        Some(sample.beside.as_secs_f64() * 1e3)
    }),
    ("worker's share of the processor", "%", |sample| {
        Some(100.0 * sample.alone.as_secs_f64() / sample.beside.as_secs_f64())
    }),
    ("calls answered by both servers", "k/s", |sample| {
        let sum: f64 = sample.calls.iter().sum();
        (sum > 0.0).then_some(sum / 1e3)
    }),
    ("first server's share of these", "%", |sample| {
        let sum: f64 = sample.calls.iter().sum();
        (sum > 0.0).then(|| 100.0 * sample.calls[0] / sum)
    }),
];

struct Plan {
    /// The worker's computation.
    work: Duration,
    settle: Duration,
    /// Names, and the computation for a call.
    speeds: &'static [(&'static str, Duration)],
    rounds: usize,
}

const FULL: Plan = Plan {
    work: Duration::from_millis(600),
    settle: Duration::from_millis(200),
    speeds: &SPEEDS,
    rounds: 4,
};

const SMOKE: Plan = Plan {
    work: Duration::from_millis(10),
    settle: Duration::from_millis(10),
    speeds: SPEEDS.split_at(1).0,
    rounds: 1,
};

/// The paper's speeds, with calls of our choice: it does not give them.
const SPEEDS: [(&str, Duration); 3] = [
    ("fast", Duration::from_micros(5)),
    ("medium", Duration::from_micros(50)),
    ("slow", Duration::from_micros(200)),
];

const WEIGHTED: Variant = Variant::Kernel(KernelReceive::Weights);

const WORKER: u16 = 11;
const CALLED: [u16; 2] = [12, 13];
const CALL_BYTES: usize = 32;
/// Each server always has calls that wait, so that it never sleeps.
const OUTSTANDING: u32 = 64;
/// As with the flood: a wake-up of the driver for each request would be most of the measured load.
const PAUSE: Duration = Duration::from_micros(200);
const PATIENCE: Duration = Duration::from_secs(30);

const OWN_NOTES: [&str; 2] = [
    "worker's share: the time of its computation alone over that beside two servers with 64 calls outstanding each, which leave in bursts each 200 us; the ideal is \
     a third; the kernel charges interrupts to their victim, so that rusage would hide them",
    "the worker computes for 0.6 s in registers (the paper's for 11.5 s in memory); threads of one \
     priority; cgroup weights: each of the three in a cgroup of its own with the same cpu.shares",
];
