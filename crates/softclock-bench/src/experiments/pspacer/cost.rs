//! `pspacer/cost`: processor time of a paced frame beside HTB's, and the precision that it buys.
//!
//! Each variant has one class at its defaults. A capture follows the measurement of processor time, in the same
//! traffic, so that both figures belong to one state of the shaper.

use std::io;
use std::thread;
use std::time::Duration;

use crate::lab::bridge::{Htb, Load, Pace, Results, Setup, Shaper, Study, Traffic, Usage, mbit};
use crate::output::metric::{self, Metric};
use crate::output::report::{Experiment, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pspacer/cost",
    about: "processor time and precision of a paced frame at 100 and 200 Mbit/s: pace by its options, beside HTB",
    takes: Takes::RoundsAndSubjects,
    run: |context| STUDY.run(context),
};

const STUDY: Study<Sample> = Study {
    title: "processor time of a paced frame",
    notes: &NOTES,
    setups,
    rounds: 5,
    slice: Duration::from_millis(1600),
    smoke_setups: 3,
    measure: |setup, traffic, slice| sample(setup, traffic, slice),
    show: |found| (rows(found), Vec::new()),
};

fn setups() -> Vec<Setup> {
    RATES_MBIT.iter().flat_map(|&rate| of_rate(rate)).collect()
}

fn of_rate(rate_mbit: u64) -> Vec<Setup> {
    let rate = mbit(rate_mbit);
    let unpaced = Pace {
        class: "proto sctp",
        ..Pace::of_rate(rate)
    };
    let mut shapers = vec![
        (HTB, Shaper::Htb(Htb::of_rate(rate)), SHAPED),
        (PASSED, Shaper::Pace(unpaced), UNSHAPED),
        (FORWARDED, Shaper::Forward, UNSHAPED),
    ];
    shapers.extend(PACES.map(|(name, options)| {
        let pace = Pace {
            options,
            ..Pace::of_rate(rate)
        };
        (name, Shaper::Pace(pace), SHAPED)
    }));
    let setup = |(name, shaper, offered_percent): (&str, Shaper, u64)| {
        let load = Load::Flows {
            rate,
            offered: mbit(rate_mbit * offered_percent / 100),
            ports: 1,
        };
        Setup::new(named(name, rate_mbit), shaper, load)
    };
    shapers.into_iter().map(setup).collect()
}

fn named(name: &str, rate_mbit: u64) -> String {
    format!("{name}; {rate_mbit} Mbit/s")
}

/// Processor time, precision and lateness of one slice.
struct Sample {
    machine_us: f64,
    process_us: f64,
    others: f64,
    rate_error: f64,
    variation: f64,
    burstiness: f64,
    /// p50, p99 and p99.9 of the soft events of `pace`.
    late_us: Option<[f64; 3]>,
}

fn sample(setup: &Setup, traffic: Traffic, slice: Duration) -> io::Result<Sample> {
    let flow = traffic.measure(slice)?;
    let target = match setup.load {
        Load::Flows { rate, .. } => rate,
        _ => unreachable!("all loads are flows"),
    };
    let frames = traffic.capture(slice / 2)?;
    let late_us = traffic.end()?.and_then(|summary| summary.lateness_us);
    // Directly after the load, because the other work on the machine varies.
    let before = Usage::now(None)?;
    thread::sleep(slice / 2);
    let others = Usage::now(None)?.since(&before).machine;
    let burstiness = frames.burstiness(target);
    Ok(Sample {
        machine_us: (flow.busy.machine - others) * 1e6 / flow.frames,
        process_us: flow.busy.process * 1e6 / flow.frames,
        others,
        rate_error: (flow.bps / target.bps() as f64 - 1.0) * 100.0,
        variation: burstiness.gaps().variation().unwrap_or(0.0),
        burstiness: (burstiness.queue()).map_or(0.0, |queue| queue.mean_packets()),
        late_us,
    })
}

const METRICS: [Metric<Sample>; 8] = [
    ("machine, time a frame above idle", "us", |sample| {
        Some(sample.machine_us)
    }),
    ("process of pace, time a frame", "us", |sample| {
        // The kernel counts in ticks: 0 means less than one.
        Some(sample.process_us).filter(|&us| us > 0.0)
    }),
    ("gaps, coefficient of variation", "", |sample| {
        Some(sample.variation)
    }),
    ("burstiness, mean", "frames", |sample| {
        Some(sample.burstiness)
    }),
    ("lateness of departures, p50", "us", |sample| {
        Some(sample.late_us?[0])
    }),
    ("lateness of departures, p99", "us", |sample| {
        Some(sample.late_us?[1])
    }),
    ("rate above its target", "%", |sample| {
        Some(sample.rate_error)
    }),
    ("processors busy with other work", "", |sample| {
        Some(sample.others)
    }),
];

fn rows(found: &Results<Sample>) -> Vec<Row> {
    let variants = found.iter();
    let variants = variants.map(|(setup, samples)| (setup.name.clone(), samples.iter().collect()));
    let mut rows = metric::rows(&METRICS, "", variants);
    let mut add = |variant: &str, metric: &str, unit, values: Vec<f64>| {
        if !values.is_empty() {
            rows.push(Row::of_samples(variant, metric, unit, &values));
        }
    };
    // Ratios and differences use values of the same round, because the machine's speed changes with time.
    let against = |variant: &str, base: &str, of: fn(f64, f64) -> f64| -> Vec<f64> {
        let samples = |name: &str| {
            let result = found.iter().find(|(setup, _)| setup.name == name);
            result.map_or(&[][..], |(_, samples)| &samples[..])
        };
        let pairs = samples(variant).iter().zip(samples(base));
        pairs
            .map(|(sample, base)| of(sample.machine_us, base.machine_us))
            .collect()
    };
    for &rate in &RATES_MBIT {
        let [htb, passed, forwarded] = [HTB, PASSED, FORWARDED].map(|name| named(name, rate));
        for (name, _) in PACES {
            let name = named(name, rate);
            let mut values = against(&name, &htb, |ours, htb| ours / htb);
            // Other work may hide all of the cost.
            values.retain(|ratio| ratio.is_finite() && *ratio > 0.0);
            add(&name, "machine, above idle, relative to HTB", "x", values);
            let values = against(&name, &passed, |ours, base| ours - base);
            add(&name, ABOVE_UNSHAPED, "us", values);
        }
        let values = against(&htb, &forwarded, |htb, base| htb - base);
        add(&htb, ABOVE_UNSHAPED, "us", values);
    }
    rows
}

const ABOVE_UNSHAPED: &str =
    "machine, time a frame: pace above passing unpaced, HTB above forwarding";

/// The variants of `pace`, with their options.
const PACES: [(&str, &str); 5] = [
    ("softclock pace", ""),
    (
        "softclock pace, woken by arrivals, spin cap 25 %",
        "--signalling interrupt --spin-cap 25",
    ),
    ("softclock pace, spin cap 5 %", "--spin-cap 5"),
    ("softclock pace, tolerance 50 us", "--tolerance 50us"),
    ("softclock pace, tolerance 250 us", "--tolerance 250us"),
];

const HTB: &str = "HTB";
/// `pace` with frames that match none of its classes.
const PASSED: &str = "softclock pace, passed unpaced";
/// The kernel's bridge, without shaping.
const FORWARDED: &str = "forwarded";

/// The load offered to shapers, and that without shaping, in percent of the rate.
const SHAPED: u64 = 130;
const UNSHAPED: u64 = 100;

const RATES_MBIT: [u64; 2] = [100, 200];

const NOTES: [&str; 3] = [
    "UDP of one flow, offered 1.3 times the rate each millisecond, in a class with the defaults of pace and of tc; what passes \
     unpaced or is forwarded is offered at the rate, so that as many frames arrive: what is above it holds the sending and \
     dropping of 30 % more frames, too",
    "machine: all processors while it runs, less those busy right after it in the same round; it holds sender, shaper and \
     receiver; HTB works in no process; processor time is taken without the capture, which follows",
    "lateness is that of the soft events of pace; gaps and burstiness are the receiver's, by the kernel's time stamps",
];
