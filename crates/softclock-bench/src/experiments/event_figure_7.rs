//! `event-delivery/figure-7`: what `declare_interest` costs, against the number of cold connections (*Event Delivery*,
//! section 7.2).

use std::error::Error;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use softclock::events::{Mechanism, Readiness, Source};

use crate::chart::{Axis, Chart, Mark, Series};
use crate::event_peer::{self, Costs};
use crate::event_sets::{EventSet, cold_counts, raise_limit};
use crate::report::{Context, Experiment, Report, Row};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "event-delivery/figure-7",
    about: "cost of declare_interest against the number of cold connections",
    run,
};

/// What is timed, in nanoseconds a call.
#[derive(Default)]
struct Samples {
    first: Vec<f64>,
    first_with_state: Vec<f64>,
    again: Vec<f64>,
    revoke: Vec<f64>,
    close: Vec<f64>,
}

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    raise_limit();
    let mut notes = notes();
    let mut rows = Vec::new();
    let mut chart = chart();
    let counts = cold_counts(context.smoke);
    let rounds = if context.smoke { 3 } else { 100 };
    let total = counts.len() * Mechanism::ALL.len();
    for (number, mechanism) in Mechanism::ALL.into_iter().enumerate() {
        let mut points = Vec::new();
        for (step, &cold) in counts.iter().enumerate() {
            let done = number * counts.len() + step;
            context.progress(done, total, mechanism.name());
            let samples = EventSet::new(mechanism, 0, cold).and_then(|set| {
                (0..rounds).try_fold(Samples::default(), |all, _| round(&set, all))
            });
            let samples = match samples {
                Ok(samples) => samples,
                Err(error) => {
                    notes.push(format!("{mechanism} with {cold} cold sockets: {error}"));
                    break;
                }
            };
            for (what, values) in [
                (FIRST, &samples.first),
                (FIRST_WITH_STATE, &samples.first_with_state),
                (AGAIN, &samples.again),
                (REVOKE, &samples.revoke),
                (CLOSE, &samples.close),
            ] {
                let metric = format!("{what}, {cold} cold");
                let row = Row::of_samples(mechanism.name(), metric, "ns", values);
                if what == FIRST {
                    points.push((cold.max(1) as f64, row.value));
                }
                rows.push(row);
            }
        }
        chart.series.push(Series {
            name: mechanism.name().into(),
            mark: Mark::Line,
            points,
        });
    }
    context.progress(total, total, "");
    let (peer, more) = event_peer::costs(BATCH, counts, rounds);
    notes.extend(more);
    for Costs {
        cold,
        add_ns,
        delete_ns,
        ..
    } in peer
    {
        let metric = |what: &str| format!("{what}, {cold} cold");
        rows.push(Row::of_samples("libevent", metric(FIRST), "ns", &add_ns));
        rows.push(Row::of_samples(
            "libevent",
            metric(REVOKE),
            "ns",
            &delete_ns,
        ));
    }
    Ok(Report {
        title: "what declare_interest costs",
        notes,
        rows,
        charts: vec![chart],
    })
}

/// Declares for new sockets, asks again, revokes, closes.
fn round(set: &EventSet, mut samples: Samples) -> io::Result<Samples> {
    let (sources, _others) = sockets(set)?;
    samples.first.push(timed(set, &sources, READ, false)?);
    drop(sources);
    let (sources, _others) = sockets(set)?;
    let first = timed(set, &sources, READ, true)?;
    samples.first_with_state.push(first);
    samples.again.push(timed(set, &sources, READ, true)?);
    let revoke = timed(set, &sources, Readiness::NONE, false)?;
    samples.revoke.push(revoke);
    let start = Instant::now();
    drop(sources);
    samples
        .close
        .push(start.elapsed().as_nanos() as f64 / BATCH as f64);
    Ok(samples)
}

type Sockets = (Vec<Source<UnixStream>>, Vec<UnixStream>);

/// Those of the queue, and their other ends.
fn sockets(set: &EventSet) -> io::Result<Sockets> {
    let pairs: Vec<_> = (0..BATCH)
        .map(|_| UnixStream::pair())
        .collect::<io::Result<_>>()?;
    let pairs = pairs.into_iter();
    Ok(pairs
        .map(|(here, there)| (set.queue.add(here), there))
        .unzip())
}

/// Nanoseconds a declaration of `mask`, with or without asking for the state.
fn timed(
    set: &EventSet,
    sources: &[Source<UnixStream>],
    mask: Readiness,
    ask: bool,
) -> io::Result<f64> {
    let start = Instant::now();
    for source in sources {
        let mut state = Readiness::NONE;
        set.queue
            .declare_interest(source, mask, ask.then_some(&mut state))?;
    }
    Ok(start.elapsed().as_nanos() as f64 / BATCH as f64)
}

fn chart() -> Chart {
    Chart {
        title: "declare_interest: nanoseconds a first declaration against cold connections".into(),
        x: Axis::decades("cold connections", 1.0, 20_000.0),
        y: Axis::decades("ns a call", 100.0, 100_000.0),
        series: Vec::new(),
    }
}

fn notes() -> Vec<String> {
    vec![
        "the first declaration tells the kernel; asking for the state is a system call more, which libevent has not; revoking is done in memory, where libevent tells the kernel".into(),
        "closing contains close(2)".into(),
        "the paper's Figure 7: 10 to 20 us a call on an Alpha of 500 MHz, whatever the number of connections (read off)".into(),
    ]
}

const READ: Readiness = Readiness::READABLE;

const FIRST: &str = "first declaration";
const FIRST_WITH_STATE: &str = "first declaration, with the state";
const AGAIN: &str = "declaration again, with the state";
const REVOKE: &str = "revocation";
const CLOSE: &str = "closing";

/// Sockets declared in one sample.
const BATCH: usize = 64;
