//! `event-delivery/figure-6`: what `get_next_event` costs an event, against the size of the array and the number of cold
//! connections (*Event Delivery*, section 7.2).

use std::error::Error;
use std::time::Instant;

use softclock::events::Mechanism;

use crate::chart::{Axis, Chart, Mark, Series};
use crate::event_peer::{self, Costs};
use crate::event_sets::{EventSet, cold_counts, raise_limit};
use crate::report::{Context, Experiment, Report, Row};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "event-delivery/figure-6",
    about: "cost of get_next_event against its array and the number of cold connections",
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    raise_limit();
    let mut notes = notes();
    let mut rows = Vec::new();
    let mut charts = vec![chart()];
    let counts = cold_counts(context.smoke);
    let total = counts.len() * Mechanism::ALL.len();
    for (number, mechanism) in Mechanism::ALL.into_iter().enumerate() {
        let mut points = Vec::new();
        for (step, &cold) in counts.iter().enumerate() {
            let done = number * counts.len() + step;
            context.progress(done, total, mechanism.name());
            let mut set = match EventSet::new(mechanism, HOT, cold) {
                Ok(set) => set,
                Err(error) => {
                    notes.push(format!("{mechanism} with {cold} cold sockets: {error}"));
                    break;
                }
            };
            for array_max in arrays(cold) {
                let samples = sample(&mut set, array_max, rounds(context))?;
                let metric = format!("an event, array of {array_max}, {cold} cold");
                let row = Row::of_samples(mechanism.name(), metric, "ns", &samples);
                if array_max == FULL {
                    points.push((cold.max(1) as f64, row.value));
                }
                rows.push(row);
            }
        }
        charts[0].series.push(Series {
            name: mechanism.name().into(),
            mark: Mark::Line,
            points,
        });
    }
    context.progress(total, total, "");
    let (peer, more) = event_peer::costs(HOT, counts, rounds(context));
    notes.extend(more);
    let mut points = Vec::new();
    for Costs { cold, event_ns, .. } in peer {
        let row = Row::of_samples(
            "libevent",
            format!("an event, array of {FULL}, {cold} cold"),
            "ns",
            &event_ns,
        );
        points.push((cold.max(1) as f64, row.value));
        rows.push(row);
    }
    charts[0].series.push(Series {
        name: "libevent".into(),
        mark: Mark::Line,
        points,
    });
    Ok(Report {
        title: "what get_next_event costs for each event it delivers",
        notes,
        rows,
        charts,
    })
}

/// Nanoseconds an event, of several rounds in each of which all hot sockets have one.
fn sample(set: &mut EventSet, array_max: usize, rounds: usize) -> std::io::Result<Vec<f64>> {
    let mut samples = Vec::with_capacity(rounds);
    for round in 0..rounds + WARM_UP {
        set.heat()?;
        let start = Instant::now();
        let found = set.take_all(array_max)?;
        let ns = start.elapsed().as_nanos() as f64 / found as f64;
        set.cool()?;
        if round >= WARM_UP {
            samples.push(ns);
        }
    }
    Ok(samples)
}

/// The array's size matters alike with any number of cold ones.
fn arrays(cold: usize) -> Vec<usize> {
    if cold == 0 {
        vec![1, 4, 16, FULL]
    } else {
        vec![FULL]
    }
}

fn rounds(context: &Context) -> usize {
    if context.smoke { 3 } else { 200 }
}

fn chart() -> Chart {
    Chart {
        title: "get_next_event: nanoseconds an event against cold connections".into(),
        x: Axis::decades("cold connections", 1.0, 20_000.0),
        y: Axis::decades("ns an event", 10.0, 100_000.0),
        series: Vec::new(),
    }
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "{HOT} hot sockets become readable, then all their events are taken, so many at a time as the array has room for"
        ),
        "the paper's Figure 6: some 10 us an event with an array of 1, less than 2 us with one of 64 and more, whatever the number of connections (read off)"
            .into(),
        "libevent calls back instead of filling an array; its figure is that of a turn of its loop".into(),
    ]
}

const HOT: usize = 64;
const FULL: usize = 64;
const WARM_UP: usize = 3;
