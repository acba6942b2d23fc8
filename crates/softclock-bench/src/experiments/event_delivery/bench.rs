//! `event-delivery/bench`: the workload of libevent's and libev's `bench.c`.
//!
//! Of N socket pairs some are active: each event reads a byte and writes one to the next pair, until a given number of
//! writes has been made. The result is the time from the first wait to the last byte.

use std::error::Error;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use softclock::events::{EventQueue, Mechanism, Readiness, SourceEvent};

use crate::lab::readiness::rounds::{beside_libevent, in_turn};
use crate::output::report::{Context, Experiment, Report, Takes};
use crate::peers::libevent::LIBEVENT_NOTE;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "event-delivery/bench",
    about: "libevent's bench.c: N descriptors, 100 active, 1000 writes, beside libevent",
    takes: Takes::Nothing,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let (sizes, active, writes): (&[usize], _, _) = if context.smoke {
        (&[20], 5, 20)
    } else {
        (&[100, 500, 1_000, 5_000, 9_000], 100, 1_000)
    };
    let (rounds, runs) = if context.smoke { (1, 2) } else { (3, 8) };
    let mut notes = vec![
        format!(
            "{active} active, {writes} writes; the time of all of them, reads and writes included"
        ),
        LIBEVENT_NOTE.to_owned(),
    ];
    let metric = |pairs| format!("{pairs} descriptors");
    let found = in_turn(
        context,
        sizes,
        rounds,
        &mut notes,
        |mechanism, pairs, found| {
            let us = workload(mechanism, pairs, active, writes, runs)?;
            found.add(metric(pairs), &us);
            Ok(())
        },
        |libevent, pairs, found| {
            found.add(metric(pairs), &libevent.bench(pairs, active, writes, runs)?);
            Ok(())
        },
    );
    let mut rows = found.rows("us");
    rows.extend(beside_libevent(&rows));
    Ok(Report {
        title: "libevent's bench.c",
        notes,
        rows,
        charts: Vec::new(),
    })
}

/// Returns the microseconds of each run.
fn workload(
    mechanism: Mechanism,
    pairs: usize,
    active: usize,
    writes: usize,
    runs: usize,
) -> io::Result<Vec<f64>> {
    let queue = EventQueue::with_mechanism(mechanism)?;
    let mut others = Vec::with_capacity(pairs);
    let mut sources = Vec::with_capacity(pairs);
    for number in 0..pairs {
        let (here, there) = UnixStream::pair()?;
        here.set_nonblocking(true)?;
        let source = queue.add(here);
        queue.declare_interest(&source, Readiness::READABLE, None)?;
        // Events identify their pair by this index.
        debug_assert_eq!(source.id().index(), number);
        sources.push(source);
        others.push(there);
    }
    let mut events = [SourceEvent::NONE; 64];
    let space = pairs / active;
    let mut samples = Vec::with_capacity(runs);
    for _ in 0..runs {
        // Start `active` chains of events, evenly spaced over the pairs.
        for number in 0..active {
            others[number * space].write_all(b"e")?;
        }
        let (mut left, mut read) = (writes, 0);
        let start = Instant::now();
        while read < writes + active {
            let found = queue.get_next_event(&mut events, None)?;
            for event in &events[..found] {
                let number = event.source.index();
                let source = &sources[number];
                let mut buffer = [0; 1];
                // Reads one byte per event, as `bench.c` does. A second byte in the same socket arrives either with
                // another event or in this loop.
                while (&**source).read(&mut buffer).is_ok_and(|bytes| bytes == 1) {
                    read += 1;
                    if left > 0 {
                        left -= 1;
                        others[(number + space + 1) % pairs].write_all(b"e")?;
                    }
                }
                source.consumed(Readiness::READABLE);
            }
        }
        samples.push(start.elapsed().as_nanos() as f64 / 1e3);
    }
    Ok(samples)
}
