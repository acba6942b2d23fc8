//! `lrp/table-1-udp`: latency and throughput of UDP without overload (*LRP*, Table 1).

use std::error::Error;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use softclock_core::Histogram;

use super::super::cells::{self, Cell};
use crate::lab::lrp::client::{Calls, Pings};
use crate::lab::lrp::{Background, Service, Stage, Variant, notes};
use crate::output::metric::Metric;
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "lrp/table-1-udp",
    about: "round trip of one byte, and throughput of a sliding window, without overload",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "throughput and latency of UDP";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let variants = Variant::ALL.into_iter();
    let cells = variants.map(|variant| Cell {
        variant: variant.name().to_owned(),
        setting: String::new(),
        content: variant,
    });
    cells::report(
        context,
        (TITLE, &notes(&OWN_NOTES)),
        (cells.collect(), plan.rounds),
        &METRICS,
        |&variant| measure(variant, plan).map(|sample| vec![sample]),
        |_| Vec::new(),
    )
}

struct Sample {
    round_trips: Histogram,
    /// Datagrams a second.
    window: f64,
}

fn measure(variant: Variant, plan: &Plan) -> io::Result<Sample> {
    let stage = Stage::new(variant, &[Service::answering(PORT, Duration::ZERO)])?;
    let _background = Background::start(&stage.network)?;
    let pings = Pings::start(&stage.network, PORT, 1, Duration::ZERO)?;
    thread::sleep(plan.settle);
    pings.take();
    thread::sleep(plan.slice);
    let round_trips = pings.take().round_trips;
    drop(pings);
    let calls = Calls::start(&stage.network, PORT, BYTES, WINDOW, Duration::ZERO)?;
    thread::sleep(plan.settle);
    let (begun, before) = (Instant::now(), calls.answered());
    thread::sleep(plan.slice);
    let window = (calls.answered() - before) as f64 / begun.elapsed().as_secs_f64();
    Ok(Sample {
        round_trips,
        window,
    })
}

const METRICS: [Metric<Sample>; 3] = [
    ("round trip of one byte, mean", "us", |sample| {
        let times = &sample.round_trips;
        (!times.is_empty()).then(|| times.mean_ns() / 1e3)
    }),
    ("round trip of one byte, p99", "us", |sample| {
        let times = &sample.round_trips;
        (!times.is_empty()).then(|| times.quantile_ns(0.99) as f64 / 1e3)
    }),
    ("throughput of a sliding window", "Mbit/s", |sample| {
        (sample.window > 0.0).then_some(sample.window * BYTES as f64 * 8.0 / 1e6)
    }),
];

struct Plan {
    settle: Duration,
    slice: Duration,
    rounds: usize,
}

const FULL: Plan = Plan {
    settle: Duration::from_millis(200),
    slice: Duration::from_millis(2000),
    rounds: 5,
};

const SMOKE: Plan = Plan {
    settle: Duration::from_millis(10),
    slice: Duration::from_millis(50),
    rounds: 1,
};

const PORT: u16 = 7;
/// The payload of a full packet of 1500 bytes.
const BYTES: usize = 1472;
const WINDOW: u32 = 32;

const OWN_NOTES: [&str; 1] = [
    "sliding window: 32 datagrams of 1472 bytes are outstanding, and each is answered by 64 bytes, which let the next one leave; \
     payload of requests; computing processes of nice 19 run on both processors, as in the paper",
];
