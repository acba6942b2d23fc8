//! `event-delivery/figure-7`: the cost of `declare_interest` against the number of cold connections (*Event Delivery*,
//! section 7.2).

use std::error::Error;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use softclock::events::{Readiness, Source, SourceEvent};

use crate::lab::readiness::rounds::{beside_libevent, curves, in_turn};
use crate::lab::readiness::sets::{EventSet, cold_counts};
use crate::output::chart::{Axis, Chart, Series};
use crate::output::report::{Context, Experiment, Report, Takes};
use crate::peers::libevent::LIBEVENT_NOTE;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "event-delivery/figure-7",
    about: "cost of declare_interest against the number of cold connections",
    takes: Takes::Nothing,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let mut notes = notes();
    let counts = cold_counts(context.smoke);
    let (rounds, samples) = if context.smoke { (1, 3) } else { (3, 33) };
    let found = in_turn(
        context,
        counts,
        rounds,
        &mut notes,
        |mechanism, cold, found| {
            let set = EventSet::new(mechanism, 0, cold)?;
            let once = |_| measure(&set);
            let all = (0..samples).map(once).collect::<io::Result<Vec<Costs>>>()?;
            for (index, what) in TIMED.into_iter().enumerate() {
                let ns: Vec<f64> = all.iter().map(|costs| costs[index]).collect();
                found.add(metric(what, cold), &ns);
            }
            Ok(())
        },
        |libevent, cold, found| {
            let costs = libevent.costs(BATCH, cold, samples)?;
            found.add(metric(FIRST, cold), &costs.add_ns);
            found.add(metric(ARMED, cold), &costs.armed_ns);
            found.add(metric(REVOKE, cold), &costs.delete_ns);
            found.add(metric(CLOSE, cold), &costs.close_ns);
            Ok(())
        },
    );
    let mut rows = found.rows("ns");
    rows.extend(beside_libevent(&rows));
    let series = curves(&rows, counts, |cold| metric(FIRST, cold));
    Ok(Report {
        title: "what declare_interest costs",
        notes,
        rows,
        charts: vec![chart(series)],
    })
}

fn metric(what: &str, cold: usize) -> String {
    format!("{what}, {cold} cold")
}

/// Nanoseconds per call of each operation in [`TIMED`].
type Costs = [f64; TIMED.len()];

/// Times one batch of each operation: declares interest in new sockets, polls once, closes them; declares interest in
/// others, declares it again, revokes it.
fn measure(set: &EventSet) -> io::Result<Costs> {
    let (sources, _others) = sockets(set)?;
    let start = Instant::now();
    let first = timed(set, &sources, READ, false)?;
    look(set)?;
    let armed = since(start);
    let start = Instant::now();
    drop(sources);
    let close = since(start);
    let (sources, _others) = sockets(set)?;
    let first_with_state = timed(set, &sources, READ, true)?;
    let again = timed(set, &sources, READ, true)?;
    let revoke = timed(set, &sources, Readiness::NONE, false)?;
    Ok([first, armed, first_with_state, again, revoke, close])
}

/// Takes all pending events without waiting. Mechanisms that tell the kernel lazily pass on the declarations here.
fn look(set: &EventSet) -> io::Result<()> {
    let mut events = [SourceEvent::NONE; BATCH];
    let now = Some(Duration::ZERO);
    while set.queue.get_next_event(&mut events, now)? > 0 {}
    Ok(())
}

type Sockets = (Vec<Source<UnixStream>>, Vec<UnixStream>);

/// Returns a batch of sources of the queue, and the other ends of their socket pairs.
fn sockets(set: &EventSet) -> io::Result<Sockets> {
    let pairs: Vec<_> = (0..BATCH)
        .map(|_| UnixStream::pair())
        .collect::<io::Result<_>>()?;
    let pairs = pairs.into_iter();
    Ok(pairs
        .map(|(here, there)| (set.queue.add(here), there))
        .unzip())
}

/// Returns the nanoseconds per declaration of `mask`, with or without asking for the current state.
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

/// Returns the nanoseconds since `start`, per socket of the batch.
fn since(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / BATCH as f64
}

fn chart(series: Vec<Series>) -> Chart {
    Chart {
        title: "declare_interest: nanoseconds a first declaration against cold connections".into(),
        x: Axis::decades("cold connections", 1.0, 20_000.0),
        y: Axis::decades("ns a call", 100.0, 100_000.0),
        series,
    }
}

fn notes() -> Vec<String> {
    vec![
        "the first declaration tells the kernel by epoll and libevent; by io_uring, poll and select the next look does, and the declaration only asks the kernel what kind of file it is".into(),
        format!("armed: the same with a get_next_event that does not wait, after each {BATCH} (libevent: a turn of its loop)"),
        "asking for the state is a system call more, which libevent has not; revoking is done in memory, where libevent tells the kernel".into(),
        "closing ends what was armed, and contains close(2) (libevent: event_del, close and a turn of its loop)".into(),
        LIBEVENT_NOTE.into(),
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

const TIMED: [&str; 6] = [FIRST, ARMED, FIRST_WITH_STATE, AGAIN, REVOKE, CLOSE];

/// Sockets declared in one sample.
const BATCH: usize = 64;
