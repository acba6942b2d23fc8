//! `lrp/figure-4`: latency with concurrent load (*LRP*, Figure 4).
//!
//! A client and a server exchange short datagrams in turn, while a flood reaches another server on the same processor.

use std::error::Error;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use softclock_core::Histogram;

use super::super::cells::{self, Cell};
use crate::lab::lrp::client::Pings;
use crate::lab::lrp::{Background, Service, Stage, Target, Variant, notes};
use crate::output::metric::Metric;
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "lrp/figure-4",
    about: "round trips and losses of a ping-pong, against the rate of a flood to another socket",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "latency with concurrent load";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let cells = plan.floods.iter().flat_map(|&(flood, target)| {
        let into = match target {
            Target::Server => "",
            Target::Reference => " into the reference",
        };
        Variant::ALL.into_iter().map(move |variant| Cell {
            variant: variant.name().to_owned(),
            setting: format!("flood of {} k/s{into}", flood / 1000),
            content: (variant, flood, target),
        })
    });
    cells::report(
        context,
        (TITLE, &notes(&OWN_NOTES)),
        (cells.collect(), plan.rounds),
        &METRICS,
        |&(variant, flood, target)| {
            measure(variant, flood, target, plan).map(|sample| vec![sample])
        },
        |_| Vec::new(),
    )
}

struct Sample {
    /// Datagrams a second that the blast server has served.
    blast: f64,
    round_trips: Histogram,
    at_server: Histogram,
    /// Requests without an answer.
    lost: u64,
    /// Those of them that were dropped behind the demultiplexer; `None` for the kernel.
    refused: Option<u64>,
    /// Frames lost in the ring of the link, of all.
    ring: f64,
}

fn measure(variant: Variant, flood: u64, target: Target, plan: &Plan) -> io::Result<Sample> {
    let blast = Service::sink(BLAST_PORT, BLAST_WORK);
    let echo = Service::answering(PING_PORT, Duration::ZERO);
    let stage = Stage::new(variant, &[blast, echo])?;
    let _background = Background::start(&stage.network)?;
    stage.flood.set(flood, target);
    let pings = Pings::start(&stage.network, PING_PORT, PING_BYTES, PAUSE)?;
    thread::sleep(plan.settle);
    pings.take();
    stage.server.take_latency(ECHO);
    let (refused, before) = (stage.server.refused(ECHO), stage.network.losses()?);
    let (begun, served) = (Instant::now(), stage.server.delivered(BLAST));
    thread::sleep(plan.slice);
    let served = stage.server.delivered(BLAST) - served;
    let blast = served as f64 / begun.elapsed().as_secs_f64();
    let (found, after) = (pings.take(), stage.network.losses()?);
    let passed = (after.passed - before.passed) + (after.ring - before.ring);
    Ok(Sample {
        blast,
        round_trips: found.round_trips,
        at_server: stage.server.take_latency(ECHO),
        lost: found.lost,
        refused: matches!(variant, Variant::Stack(..))
            .then(|| stage.server.refused(ECHO) - refused),
        ring: 100.0 * (after.ring - before.ring) as f64 / passed.max(1) as f64,
    })
}

const METRICS: [Metric<Sample>; 8] = [
    ("round trip, p50", "us", |sample| {
        quantile(&sample.round_trips, 0.5)
    }),
    ("round trip, p99", "us", |sample| {
        quantile(&sample.round_trips, 0.99)
    }),
    ("at the server, p50", "us", |sample| {
        quantile(&sample.at_server, 0.5)
    }),
    ("at the server, p99", "us", |sample| {
        quantile(&sample.at_server, 0.99)
    }),
    ("requests lost", "%", |sample| {
        let all = sample.round_trips.count() + sample.lost;
        Some(100.0 * sample.lost as f64 / all.max(1) as f64)
    }),
    ("requests lost behind the demultiplexer", "", |sample| {
        Some(sample.refused? as f64)
    }),
    ("share of frames lost in veth's ring", "%", |sample| {
        Some(sample.ring)
    }),
    ("delivered to the blast server", "k/s", |sample| {
        Some(sample.blast / 1e3)
    }),
];

/// `None` if nothing was answered.
fn quantile(times: &Histogram, place: f64) -> Option<f64> {
    (!times.is_empty()).then(|| times.quantile_ns(place) as f64 / 1e3)
}

struct Plan {
    floods: &'static [(u64, Target)],
    settle: Duration,
    slice: Duration,
    rounds: usize,
}

const FULL: Plan = Plan {
    floods: &[
        (0, Target::Server),
        (50_000, Target::Server),
        (100_000, Target::Server),
        (300_000, Target::Server),
        (600_000, Target::Server),
        (600_000, Target::Reference),
    ],
    settle: Duration::from_millis(200),
    slice: Duration::from_millis(1500),
    rounds: 3,
};

const SMOKE: Plan = Plan {
    floods: &[(100_000, Target::Server)],
    settle: Duration::from_millis(20),
    slice: Duration::from_millis(60),
    rounds: 1,
};

const BLAST_PORT: u16 = 9;
const PING_PORT: u16 = 7;
/// The places of the servers in the list of services.
const BLAST: usize = 0;
const ECHO: usize = 1;
const PING_BYTES: usize = 14;
const BLAST_WORK: Duration = Duration::from_micros(10);
/// Short against the time that the flood takes, and long enough that the ping-pong is no load of its own.
const PAUSE: Duration = Duration::from_micros(500);

const OWN_NOTES: [&str; 3] = [
    "the blast server works for 10 us on each datagram and is saturated at some 60 k/s; both servers are ordinary threads of \
     the same priority; computing processes of nice 19 run on both processors, as in the paper",
    "at the server: from the time stamp that the driver or the XDP program gives the request to the end of the call that sends \
     the answer; quantiles are upper ends of buckets; a round trip is lost after 20 ms",
    "into the reference: the same flood goes to another namespace, so that it delays only what shares the clients' processor",
];
