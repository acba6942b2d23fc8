//! `pspacer/table-1`: the benefit of segmentation offload (*PSPacer/HT*, section II-A, Table I), and the part of it
//! that remains behind a pacing bridge.

use std::io;
use std::time::Duration;

use softclock_core::Rate;

use crate::lab::bridge::{Flow, Load, Offload, Pace, Results, Setup, Shaper, Study, Traffic};
use crate::output::metric::{self, Metric};
use crate::output::report::{Experiment, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pspacer/table-1",
    about: "Table I: processor time and goodput of TCP with and without TSO and GSO, forwarded and through pace",
    takes: Takes::RoundsAndSubjects,
    run: |context| STUDY.run(context),
};

const STUDY: Study<Sample> = Study {
    title: "segmentation offload: processor time and goodput",
    notes: &NOTES,
    setups,
    rounds: 5,
    slice: Duration::from_millis(1500),
    smoke_setups: 2,
    measure: |_, traffic, slice| sample(traffic, slice),
    show: |found| (rows(found), Vec::new()),
};

fn setups() -> Vec<Setup> {
    let forward = |name, offload| Setup::new(name, Shaper::Forward, Load::Tcp).offload(offload);
    let pace = |name, class, offload| {
        let pace = Pace {
            class,
            ..Pace::of_rate(Rate::from_bps(10_000_000_000).expect("more than zero"))
        };
        Setup::new(name, Shaper::Pace(pace), Load::Tcp).offload(offload)
    };
    vec![
        forward(TSO, Offload::Link),
        pace(
            "softclock pace, TSO, passed whole",
            "burst 64kb",
            Offload::Link,
        ),
        forward(GSO, Offload::Stack),
        forward(NEITHER, Offload::None),
        pace("softclock pace, TSO, cut", "", Offload::Link),
        pace("softclock pace, neither", "", Offload::None),
    ]
}

/// Goodput in Gbit/s, and busy processors: above those of other work, and of other work alone.
struct Sample {
    goodput: f64,
    processors: f64,
    others: f64,
}

fn sample(traffic: Traffic, slice: Duration) -> io::Result<Sample> {
    let flow: Flow = traffic.measure(slice)?;
    // Directly after the load, because the other work on the machine varies.
    let others = traffic.end_and_others(slice / 2)?;
    Ok(Sample {
        goodput: flow.data_bps() / 1e9,
        processors: flow.busy.machine - others,
        others,
    })
}

fn rows(found: &Results<Sample>) -> Vec<Row> {
    let variants = found.iter();
    let variants = variants.map(|(setup, samples)| (setup.name.clone(), samples.iter().collect()));
    let mut rows = metric::rows(&METRICS, "", variants);
    for row in &mut rows {
        row.paper = paper(&row.variant, &row.metric);
    }
    rows
}

const METRICS: [Metric<Sample>; 4] = [
    (GOODPUT, "Gbit/s", |sample| Some(sample.goodput)),
    (PROCESSORS, "processors", |sample| Some(sample.processors)),
    ("processors a Gbit/s, above idle", "processors", |sample| {
        Some(sample.processors / sample.goodput)
    }),
    ("processors busy with other work", "processors", |sample| {
        Some(sample.others)
    }),
];

const GOODPUT: &str = "goodput";
const PROCESSORS: &str = "processors above idle";

fn paper(name: &str, metric: &str) -> Option<f64> {
    let (goodput, share) = match name {
        TSO => (9.631_86, Some(0.0856)),
        GSO => (9.650_54, Some(0.1321)),
        NEITHER => (8.0, None),
        _ => return None,
    };
    match metric {
        GOODPUT => Some(goodput),
        PROCESSORS => share.map(|share| share * 8.0),
        _ => None,
    }
}

const TSO: &str = "forwarded, TSO and GSO";
const GSO: &str = "forwarded, GSO";
const NEITHER: &str = "forwarded, neither";

const NOTES: [&str; 4] = [
    "neither: TCP of today joins segments whatever the link can take, so it is bound to one (gso_max_segs 1)",
    "one connection of iperf3 as fast as it goes (cubic); veth has no line rate, so it is the processors that bound it",
    "processors above idle: of the machine while it runs, less those busy right after it; where other work keeps all \
     processors busy it tells nothing",
    "pace has one class of 10 Gbit/s; passed whole: with a burst of 64 kB, so that joined segments are not cut",
];
