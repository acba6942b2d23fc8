//! `clocked-interrupts/latency`: round trips of pings of 4 KB, without other traffic and beside a bulk transfer, by way
//! of signalling (*Clocked Interrupts*, 4.1).

use std::error::Error;
use std::io;
use std::thread;
use std::time::Duration;

use super::super::cells::{self, Cell};
use super::super::signalling::comparisons::comparisons;
use super::signals;
use crate::lab::signalling::ping::{self, Pings, RoundTrips};
use crate::lab::signalling::{Bulk, Ends, Signal, Transfer};
use crate::output::best_peer::Better;
use crate::output::metric::Metric;
use crate::output::report::{Context, Experiment, Report, Takes, quantile};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "clocked-interrupts/latency",
    about: "round trips of pings of 4 KB, alone and beside a bulk transfer, by interrupts, polling, clock and soft polls",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "latency by way of signalling";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let signals = match context.smoke {
        true => signals::few(),
        false => signals::all(),
    };
    let cells = signals.into_iter().map(|signal| Cell {
        variant: signal.name(),
        setting: String::new(),
        content: signal,
    });
    let notes: Vec<&str> = signals::NOTES.into_iter().chain(OWN_NOTES).collect();
    let mut seed = 0;
    let mut report = cells::report(
        context,
        (TITLE, &notes),
        (cells.collect(), plan.rounds),
        &METRICS,
        |&signal| {
            seed += 1;
            measure(signal, seed, plan).map(|sample| vec![sample])
        },
        |_| Vec::new(),
    )?;
    for row in &mut report.rows {
        row.paper = paper(&row.variant, &row.metric);
    }
    let ratios = comparisons(&report.rows, |metric| {
        let is_judged = metric.starts_with("mean") || metric.starts_with("99 %");
        is_judged.then_some(Better::Less)
    });
    report.rows.extend(ratios);
    Ok(report)
}

struct Sample {
    alone: RoundTrips,
    beside_bulk: RoundTrips,
    mbit_per_second: f64,
}

fn measure(signal: Signal, seed: u64, plan: &Plan) -> io::Result<Sample> {
    let ends = Ends {
        sender: signal,
        receiver: signal,
    };
    let transfer = Transfer {
        buffer: BUFFER,
        rate: None,
    };
    let bulk = Bulk::start(ends, transfer)?;
    let pings = |count| {
        let pings = Pings {
            bytes: PAYLOAD,
            count,
            pause: PAUSE,
        };
        ping::run(bulk.network(), bulk.address(), pings, seed)
    };
    // For the neighbors, and the memory that the stacks keep.
    pings(3)?;
    let alone = pings(plan.pings)?;
    bulk.begin()?;
    thread::sleep(plan.settle);
    let (beside_bulk, flow) = thread::scope(|scope| {
        let flow = scope.spawn(|| bulk.flow(plan.flow()));
        let beside_bulk = pings(plan.pings);
        (beside_bulk, flow.join())
    });
    let flow = flow.map_err(|_| io::Error::other("the measurement of the transfer failed"))??;
    let sample = Sample {
        alone,
        beside_bulk: beside_bulk?,
        mbit_per_second: flow.mbit_per_second(),
    };
    match sample.alone.times.is_empty() || sample.beside_bulk.times.is_empty() {
        true => Err(io::Error::other("no ping was answered")),
        false => Ok(sample),
    }
}

const METRICS: [Metric<Sample>; 11] = [
    ("least, alone", "us", |sample| Some(at(&sample.alone, 0.0))),
    ("mean, alone", "us", |sample| Some(mean(&sample.alone))),
    ("99 %, alone", "us", |sample| Some(at(&sample.alone, 0.99))),
    ("worst, alone", "us", |sample| Some(at(&sample.alone, 1.0))),
    ("lost, alone", "%", |sample| Some(lost(&sample.alone))),
    ("least, beside bulk", "us", |sample| {
        Some(at(&sample.beside_bulk, 0.0))
    }),
    ("mean, beside bulk", "us", |sample| {
        Some(mean(&sample.beside_bulk))
    }),
    ("99 %, beside bulk", "us", |sample| {
        Some(at(&sample.beside_bulk, 0.99))
    }),
    ("worst, beside bulk", "us", |sample| {
        Some(at(&sample.beside_bulk, 1.0))
    }),
    ("lost, beside bulk", "%", |sample| {
        Some(lost(&sample.beside_bulk))
    }),
    ("throughput of the bulk transfer", "Mbit/s", |sample| {
        Some(sample.mbit_per_second)
    }),
];

fn at(found: &RoundTrips, q: f64) -> f64 {
    quantile(&micros(found), q)
}

fn mean(found: &RoundTrips) -> f64 {
    let micros = micros(found);
    micros.iter().sum::<f64>() / micros.len() as f64
}

fn lost(found: &RoundTrips) -> f64 {
    100.0 * found.lost as f64 / (found.lost + found.times.len()) as f64
}

fn micros(found: &RoundTrips) -> Vec<f64> {
    let times = found.times.iter();
    times.map(|time| time.as_secs_f64() * 1e6).collect()
}

/// The paper's least, mean and worst round trips in milliseconds, as microseconds.
fn paper(variant: &str, metric: &str) -> Option<f64> {
    let (alone, beside_bulk) = match variant {
        "interrupt" => ([3e3, 3e3, 3e3], [5e3, 12e3, 18e3]),
        "clocked=2000us" => ([4e3, 4e3, 6e3], [4e3, 11e3, 25e3]),
        _ => return None,
    };
    let (name, of) = match metric.split_once(", ")? {
        (name, "alone") => (name, alone),
        (name, _) => (name, beside_bulk),
    };
    let place = ["least", "mean", "worst"].iter().position(|&of| of == name);
    place.map(|place| of[place])
}

struct Plan {
    /// Pings alone, and as many beside the transfer.
    pings: usize,
    settle: Duration,
    rounds: usize,
}

impl Plan {
    /// The time in which the transfer is measured: that of most pings.
    fn flow(&self) -> Duration {
        PAUSE * self.pings as u32 / 2
    }
}

const FULL: Plan = Plan {
    pings: 300,
    settle: Duration::from_millis(100),
    rounds: 5,
};

const SMOKE: Plan = Plan {
    pings: 10,
    settle: Duration::from_millis(60),
    rounds: 1,
};

/// As in the paper.
const PAYLOAD: usize = 4 << 10;
const BUFFER: u32 = 256 << 10;
/// Longer than the longest period.
const PAUSE: Duration = Duration::from_millis(3);

const OWN_NOTES: [&str; 3] = [
    "ICMP echo with 4096 bytes of payload, which are three fragments each way at the MTU of 1500; the receiver's stack answers; \
     from a raw socket of the kernel on the sender's processor, SCHED_FIFO, by a link whose sender's end never waits for the \
     sender; 300 pings of each kind in a round, at random times 1.5 to 4.5 ms after the answer before",
    "beside bulk: a transfer with buffers of 256 KB from the sender, both ends with the same signalling; it shares the receiver's \
     rings with the pings",
    "the worst is that of 300 pings, at the mercy of the machine: it is reported, and not judged; lost: without an answer within \
     200 ms",
];
