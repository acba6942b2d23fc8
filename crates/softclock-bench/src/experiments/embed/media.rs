//! `embed/media`: 50 media streams from one thread, alone and beside TCP: how even they are, and their processor time.

use std::error::Error;
use std::io;
use std::thread;
use std::time::Duration;

use super::{FULL, SMOKE};
use crate::lab::media::{Arrivals, Receiver};
use crate::load::echo::Messages;
use crate::measure::processors::Processors;
use crate::measure::turns::Turns;
use crate::output::best_peer::{Better, Comparison};
use crate::output::metric::{self, Metric};
use crate::output::report::{Context, Experiment, Report, Takes};
use crate::peers::media::{Sender, Streams};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "embed/media",
    about: "50 media streams of 200 and 1000 packets a second by softclock, tokio, timerfd, epoll and nanosleep, alone and beside TCP",
    takes: Takes::RoundsAndSubjects,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let processors = Processors::detect();
    let name = |sender: &Sender| sender.name().to_owned();
    let turns = Turns::new(context, plan.rounds, Sender::ALL, name)?;
    let found = turns.measure(|&sender| {
        let cases = CASES.iter();
        let samples = cases.map(|case| case.measure(sender, &processors, plan.slice));
        samples.collect::<io::Result<Vec<_>>>()
    })?;
    let mut rows = Vec::new();
    for (place, case) in CASES.iter().enumerate() {
        let variants = found.iter().map(|(sender, rounds)| {
            let samples = rounds.iter().filter_map(|samples| samples[place].as_ref());
            (sender.name().to_owned(), samples.collect())
        });
        let metrics: &[Metric<Sample>] = match case.beside_tcp {
            false => &ALONE,
            true => &BESIDE_TCP,
        };
        rows.extend(metric::rows(metrics, case.name, variants));
    }
    rows.extend(
        [BESIDE_PEERS, COST_BESIDE_PEERS]
            .map(|of| of.rows(&rows))
            .concat(),
    );
    Ok(Report {
        title: "50 media streams from one thread",
        notes: NOTES.iter().map(|&note| note.to_owned()).collect(),
        rows,
        charts: Vec::new(),
    })
}

struct Case {
    name: &'static str,
    period: Duration,
    beside_tcp: bool,
}

const CASES: [Case; 4] = [
    Case {
        name: "200 packets a second each",
        period: Duration::from_millis(5),
        beside_tcp: false,
    },
    Case {
        name: "1000 packets a second each",
        period: Duration::from_millis(1),
        beside_tcp: false,
    },
    Case {
        name: "200 packets a second each, beside TCP",
        period: Duration::from_millis(5),
        beside_tcp: true,
    },
    Case {
        name: "1000 packets a second each, beside TCP",
        period: Duration::from_millis(1),
        beside_tcp: true,
    },
];

struct Sample {
    arrivals: Arrivals,
    /// The packets that were due.
    due: f64,
    /// The processor time of the sender.
    ran: Duration,
    elapsed: Duration,
    messages: u64,
}

impl Case {
    /// Returns `None` if the sender cannot serve TCP.
    fn measure(
        &self,
        sender: Sender,
        processors: &Processors,
        slice: Duration,
    ) -> io::Result<Option<Sample>> {
        if self.beside_tcp && !sender.serves() {
            return Ok(None);
        }
        let streams = Streams {
            count: STREAMS,
            period: self.period,
        };
        let receiver = Receiver::start(streams, processors.clients)?;
        let start = || sender.start(streams, receiver.address());
        let server = processors.on(processors.server, start)?;
        let (messages, elapsed, [before, after]) = match self.beside_tcp {
            true => {
                let messages = Messages {
                    address: server.address(),
                    connections: CONNECTIONS,
                    bytes: 64,
                };
                let read = || {
                    receiver.count(true);
                    server.run_time()
                };
                let exchange = || messages.exchange(slice, read);
                let echoed = processors.on(processors.clients, exchange)?;
                (echoed.messages, echoed.elapsed, echoed.read)
            }
            false => {
                thread::sleep(slice / 10);
                receiver.count(true);
                let before = server.run_time()?;
                let began = std::time::Instant::now();
                thread::sleep(slice);
                (0, began.elapsed(), [before, server.run_time()?])
            }
        };
        receiver.count(false);
        drop(server);
        let due = elapsed.as_secs_f64() / self.period.as_secs_f64() * f64::from(STREAMS);
        Ok(Some(Sample {
            arrivals: receiver.end()?,
            due,
            ran: after.saturating_sub(before),
            elapsed,
            messages,
        }))
    }
}

impl Sample {
    fn error_us(&self, quantile: f64) -> f64 {
        self.arrivals.errors.quantile_ns(quantile) as f64 / 1e3
    }
}

const ERROR_P50: Metric<Sample> = (P50, "us", |sample| Some(sample.error_us(0.5)));
const ERROR_P99: Metric<Sample> = (P99, "us", |sample| Some(sample.error_us(0.99)));
const SPACING: Metric<Sample> = (SPACING_P50, "us", |sample| {
    Some(sample.arrivals.spacing.quantile_ns(0.5) as f64 / 1e3)
});
const MISSED: Metric<Sample> = ("packets missed or lost", "%", |sample| {
    let share = 1.0 - sample.arrivals.packets as f64 / sample.due;
    Some(100.0 * share.max(0.0))
});

const ALONE: [Metric<Sample>; 5] = [
    ERROR_P50,
    ERROR_P99,
    SPACING,
    (COST, "us", |sample| {
        Some(sample.ran.as_secs_f64() * 1e6 / sample.arrivals.packets as f64)
    }),
    MISSED,
];

const BESIDE_TCP: [Metric<Sample>; 5] = [
    ERROR_P50,
    ERROR_P99,
    SPACING,
    ("messages of TCP a second", "1/s", |sample| {
        Some(sample.messages as f64 / sample.elapsed.as_secs_f64())
    }),
    MISSED,
];

const P50: &str = "error of gaps, p50";
const P99: &str = "error of gaps, p99";
const SPACING_P50: &str = "error of gaps between streams, p50";
const COST: &str = "processor time a packet";

const BESIDE_PEERS: Comparison = Comparison {
    is_ours,
    is_peer: |name| !is_ours(name),
    better: |metric| {
        let of = [P50, P99, SPACING_P50];
        let is_compared = of.iter().any(|of| metric.starts_with(of));
        is_compared.then_some(Better::Less)
    },
};

/// Without tokio, which wakes up less often: its timers have a resolution of 1 ms, so its cost is not that of the same
/// evenness.
const COST_BESIDE_PEERS: Comparison = Comparison {
    is_ours,
    is_peer: |name| !is_ours(name) && name != Sender::Tokio.name(),
    better: |metric| metric.starts_with(COST).then_some(Better::Less),
};

fn is_ours(name: &str) -> bool {
    name.starts_with("softclock")
}

const NOTES: [&str; 5] = [
    "the error of a gap is its difference from the stream's period, or between streams, from the period divided by their number; by the kernel's time stamps, which it takes within the sender's call on the loopback",
    "packets of 172 bytes, the streams evenly spaced; packets that are not sent in time: tokio and softclock skip them, the others send all at once",
    "the sender has one thread and one processor; the receiver has another, at real-time priority so that no packet is lost there",
    "beside TCP: the same thread sends back messages of 64 bytes of 8 connections, each with one outstanding, from clients on the other processor; a loop of clock_nanosleep cannot",
    "softclock: with its defaults an idle thread spins for up to 5 % of its time so that timers fire exactly; no spinning: a spin cap of 0; regular waits: that, and Builder::regular_waits; tokio's runtime of the current thread (its timer has a resolution of 1 ms); the others have the least timer slack (PR_SET_TIMERSLACK)",
];

const STREAMS: u32 = 50;
const CONNECTIONS: usize = 8;
