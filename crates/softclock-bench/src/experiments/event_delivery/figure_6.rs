//! `event-delivery/figure-6`: the cost of `get_next_event` per event, against the size of the array and the number of
//! cold connections (*Event Delivery*, section 7.2).

use std::error::Error;
use std::io;
use std::time::Instant;

use crate::lab::readiness::rounds::{beside_libevent, curves, in_turn};
use crate::lab::readiness::sets::{EventSet, cold_counts};
use crate::output::chart::{Axis, Chart, Series};
use crate::output::report::{Context, Experiment, Report, Takes};
use crate::peers::libevent::LIBEVENT_NOTE;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "event-delivery/figure-6",
    about: "cost of get_next_event against its array and the number of cold connections",
    takes: Takes::Nothing,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let mut notes = notes();
    let counts = cold_counts(context.smoke);
    let (rounds, samples) = if context.smoke { (1, 3) } else { (3, 67) };
    let found = in_turn(
        context,
        counts,
        rounds,
        &mut notes,
        |mechanism, cold, found| {
            let mut set = EventSet::new(mechanism, HOT, cold)?;
            for array_max in arrays(cold) {
                let ns = sample(&mut set, array_max, samples)?;
                found.add(metric(array_max, cold), &ns);
            }
            Ok(())
        },
        |libevent, cold, found| {
            let costs = libevent.costs(HOT, cold, samples)?;
            found.add(metric(FULL, cold), &costs.event_ns);
            Ok(())
        },
    );
    let mut rows = found.rows("ns");
    rows.extend(beside_libevent(&rows));
    let series = curves(&rows, counts, |cold| metric(FULL, cold));
    Ok(Report {
        title: "what get_next_event costs for each event it delivers",
        notes,
        rows,
        charts: vec![chart(series)],
    })
}

fn metric(array_max: usize, cold: usize) -> String {
    format!("an event, array of {array_max}, {cold} cold")
}

/// Returns the nanoseconds per event of several rounds; in each round every hot socket has one event.
fn sample(set: &mut EventSet, array_max: usize, rounds: usize) -> io::Result<Vec<f64>> {
    let mut samples = Vec::with_capacity(rounds);
    for round in 0..rounds + WARM_UP {
        set.heat()?;
        let start = Instant::now();
        let found = set.take_all(array_max)?;
        let ns = start.elapsed().as_nanos() as f64 / found as f64;
        set.cool()?;
        // The first rounds fault in memory and fill caches.
        if round >= WARM_UP {
            samples.push(ns);
        }
    }
    Ok(samples)
}

/// Returns the array sizes to measure. The effect of the size does not depend on the cold connections, so it is
/// measured without them only.
fn arrays(cold: usize) -> Vec<usize> {
    if cold == 0 {
        vec![1, 4, 16, FULL]
    } else {
        vec![FULL]
    }
}

fn chart(series: Vec<Series>) -> Chart {
    Chart {
        title: "get_next_event: nanoseconds an event against cold connections".into(),
        x: Axis::decades("cold connections", 1.0, 20_000.0),
        y: Axis::decades("ns an event", 10.0, 100_000.0),
        series,
    }
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "{HOT} hot sockets become readable, then all their events are taken, so many at a time as the array has room for"
        ),
        "the paper's Figure 6: some 10 us an event with an array of 1, less than 2 us with one of 64 and more, whatever the number of connections (read off)"
            .into(),
        LIBEVENT_NOTE.into(),
        "libevent calls back instead of filling an array; its figure is that of a turn of its loop".into(),
    ]
}

const HOT: usize = 64;
const FULL: usize = 64;
const WARM_UP: usize = 3;
