//! `event-delivery/figure-7`: what `declare_interest` costs, against the number of cold connections (*Event Delivery*,
//! section 7.2).

use std::error::Error;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use softclock::events::{Mechanism, Readiness, Source, SourceEvent};

use crate::chart::{Axis, Chart, Mark, Series};
use crate::event_peer;
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
    armed: Vec<f64>,
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
                (ARMED, &samples.armed),
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
    for costs in &peer {
        for (what, values) in [
            (FIRST, &costs.add_ns),
            (ARMED, &costs.armed_ns),
            (REVOKE, &costs.delete_ns),
            (CLOSE, &costs.close_ns),
        ] {
            let metric = format!("{what}, {} cold", costs.cold);
            rows.push(Row::of_samples("libevent", metric, "ns", values));
        }
    }
    Ok(Report {
        title: "what declare_interest costs",
        notes,
        rows,
        charts: vec![chart],
    })
}

/// Declares for new sockets, looks, closes; declares for others, asks again, revokes.
fn round(set: &EventSet, mut samples: Samples) -> io::Result<Samples> {
    let (sources, _others) = sockets(set)?;
    let start = Instant::now();
    samples.first.push(timed(set, &sources, READ, false)?);
    look(set)?;
    samples.armed.push(since(start));
    let start = Instant::now();
    drop(sources);
    samples.close.push(since(start));
    let (sources, _others) = sockets(set)?;
    let first = timed(set, &sources, READ, true)?;
    samples.first_with_state.push(first);
    samples.again.push(timed(set, &sources, READ, true)?);
    let revoke = timed(set, &sources, Readiness::NONE, false)?;
    samples.revoke.push(revoke);
    Ok(samples)
}

/// Takes what there is without waiting, and so has every mechanism tell the kernel what was declared.
fn look(set: &EventSet) -> io::Result<()> {
    let mut events = [SourceEvent::NONE; BATCH];
    let now = Some(Duration::ZERO);
    while set.queue.get_next_event(&mut events, now)? > 0 {}
    Ok(())
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
    Ok(since(start))
}

/// Nanoseconds a socket.
fn since(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / BATCH as f64
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
        "the first declaration tells the kernel by epoll and libevent; by io_uring, poll and select the next look does, and the declaration only asks the kernel what kind of file it is".into(),
        format!("armed: the same with a get_next_event that does not wait, after each {BATCH} (libevent: a turn of its loop)"),
        "asking for the state is a system call more, which libevent has not; revoking is done in memory, where libevent tells the kernel".into(),
        "closing ends what was armed, and contains close(2) (libevent: event_del and close)".into(),
        "the paper's Figure 7: 10 to 20 us a call on an Alpha of 500 MHz, whatever the number of connections (read off)".into(),
    ]
}

const READ: Readiness = Readiness::READABLE;

const FIRST: &str = "first declaration";
const ARMED: &str = "first declaration, armed";
const FIRST_WITH_STATE: &str = "first declaration, with the state";
const AGAIN: &str = "declaration again, with the state";
const REVOKE: &str = "revocation";
const CLOSE: &str = "closing";

/// Sockets declared in one sample.
const BATCH: usize = 64;
