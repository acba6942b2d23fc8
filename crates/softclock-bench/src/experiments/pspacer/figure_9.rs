//! `pspacer/figure-9`: the lateness of timer events that release frames (*PSPacer/HT*, section IV-F).
//!
//! The paper records the timer's events in the kernel. From outside, an event is visible as a departure, whose lateness
//! is measured against a byte clock that is the same for all variants. `softclock pace` also reports the lateness of
//! its events itself.

use std::io;
use std::time::Duration;

use softclock_core::{Histogram, Rate};

use crate::lab::bridge::{
    Burst, Htb, Load, Neighbours, Pace, Results, Setup, Shaper, Study, Traffic, mbit,
};
use crate::output::best_peer::{Better, Comparison};
use crate::output::chart::{Axis, Chart, Series};
use crate::output::report::{Experiment, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pspacer/figure-9",
    about: "Figure 9: lateness of timer events, of pace, HTB and TBF at 100 Mbit/s",
    takes: Takes::RoundsAndSubjects,
    run: |context| STUDY.run(context),
};

const STUDY: Study<Shot> = Study {
    title: "lateness of the events that let frames go",
    notes: &NOTES,
    setups,
    rounds: 5,
    slice: Duration::from_millis(2500),
    smoke_setups: 2,
    measure: |_, traffic, slice| shot(traffic, slice),
    show: |found| (rows(found), [0, 1].map(|index| chart(found, index)).into()),
};

fn setups() -> Vec<Setup> {
    let udp = Load::Udp(mbit(120));
    let pace = |options| {
        Shaper::Pace(Pace {
            options,
            class: "peak 115mbit behind 100ms",
            ..Pace::of_rate(RATE)
        })
    };
    let at_ceil = Htb {
        burst: Burst::AtCeil(PEAK),
        ..Htb::of_rate(RATE)
    };
    vec![
        Setup::new("softclock pace", pace(""), udp),
        Setup::new("HTB, ceil 115 Mbit/s", Shaper::Htb(at_ceil), udp),
        Setup::new("HTB", Shaper::Htb(Htb::of_rate(RATE)), udp),
        Setup::new("softclock pace, spin cap 5 %", pace("--spin-cap 5"), udp),
        Setup::new(
            "softclock pace at ordinary priority",
            pace("--priority 0"),
            udp,
        ),
        Setup::new("TBF", Shaper::Tbf(RATE, None), udp),
        Setup::new(
            "TBF, peakrate 115 Mbit/s",
            Shaper::Tbf(RATE, Some(PEAK)),
            udp,
        ),
    ]
}

struct Shot {
    /// Lateness of departures: with the shaper alone, and beside computing threads.
    lateness: [Histogram; 2],
    /// The lateness that pace reports of its events, over both conditions: p50, p99 and p99.9.
    events_us: Option<[f64; 3]>,
}

fn shot(traffic: Traffic, slice: Duration) -> io::Result<Shot> {
    let alone = traffic.capture(slice)?;
    let neighbours = Neighbours::start();
    let beside = traffic.capture(slice)?;
    drop(neighbours);
    Ok(Shot {
        lateness: [alone.lateness(RATE), beside.lateness(RATE)],
        events_us: traffic.end()?.and_then(|summary| summary.lateness_us),
    })
}

fn rows(found: &Results<Shot>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (place, name) in QUANTILES {
        for (index, condition) in CONDITIONS.iter().enumerate() {
            for (setup, shots) in found {
                let us = |shot: &Shot| shot.lateness[index].quantile_ns(place) as f64 / 1e3;
                let samples: Vec<f64> = shots.iter().map(us).collect();
                let metric = format!("lateness of departures, {name}; {condition}");
                rows.push(Row::of_samples(&setup.name, metric, "us", &samples));
            }
        }
    }
    rows.extend(event_rows(found));
    rows.extend(BESIDE_PEERS.rows(&rows));
    rows
}

const BESIDE_PEERS: Comparison = Comparison {
    is_ours: |variant| variant == "softclock pace",
    is_peer: |variant| !variant.starts_with("softclock"),
    better: |metric| {
        metric
            .starts_with("lateness of departures")
            .then_some(Better::Less)
    },
};

fn event_rows(found: &Results<Shot>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (place, (_, name)) in QUANTILES.iter().enumerate() {
        for (setup, shots) in found {
            let us = |shot: &Shot| Some(shot.events_us?[place]);
            let samples: Vec<f64> = shots.iter().filter_map(us).collect();
            if !samples.is_empty() {
                let metric = format!("lateness of pace's soft events, {name}; both");
                rows.push(Row::of_samples(&setup.name, metric, "us", &samples));
            }
        }
    }
    rows
}

fn chart(found: &Results<Shot>, index: usize) -> Chart {
    let series = found.iter().map(|(setup, shots)| {
        let mut all = Histogram::new();
        for shot in shots {
            // One curve over all rounds; the rows show the spread between rounds.
            all.merge(&shot.lateness[index]);
        }
        Series::cdf_us(&setup.name, &all)
    });
    Chart {
        title: format!("lateness of departures, {}", CONDITIONS[index]),
        x: Axis::decades("lateness, us", 0.1, 10_000.0),
        y: Axis::linear("share of the frames", 0.0, 1.0),
        series: series.collect(),
    }
}

const RATE: Rate = mbit(100);

/// The rate at which shapers that have such an option make up for lateness.
const PEAK: Rate = mbit(115);

const QUANTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")];

const CONDITIONS: [&str; 2] = ["alone", "beside computation"];

const NOTES: [&str; 4] = [
    "HTB has tc's default burst (1600 bytes), and with ceil one of 1 ms (12.5 kB) and a cburst of one packet, as tc-htb(8) has \
     for evening out; TBF has one of 1 ms, and with peakrate a minburst of one packet, as in tc-tbf(8)",
    "120 Mbit/s of UDP are shaped to 100 Mbit/s, and pace catches up at 115 Mbit/s for 100 ms of lateness; beside \
     computation: as many threads as processors spin at ordinary \
     priority",
    "a departure is late by a clock of bytes at the target's rate (or the mean where that is higher), which the earliest \
     frame sets anew each 10 ms: what holds up all frames for longer does not count, and a load that pauses does",
    "the paper's Figure 9: events of the kernel's timers are late by up to its tick, 1 or 10 ms",
];
