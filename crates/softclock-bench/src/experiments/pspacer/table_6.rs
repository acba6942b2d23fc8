//! `pspacer/table-6`: burstiness of paced traffic (*PSPacer/HT*, section IV-C, Table VI and Figure 8).
//!
//! The paper paces TCP at 5 Gbit/s. This experiment paces UDP and TCP at 100 Mbit/s, alone and beside computing
//! threads.

use std::io;
use std::time::Duration;

use softclock_core::{Histogram, Rate};

use crate::lab::bridge::{
    Burst, Frames, Htb, Load, Neighbours, Offload, Pace, Setup, Shaper, Study, Traffic, mbit,
};
use crate::output::best_peer::{Better, Comparison};
use crate::output::chart::{Axis, Chart, Mark, Series};
use crate::output::report::{Experiment, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pspacer/table-6",
    about: "Table VI and Figure 8: burstiness and gaps of pace, HTB, TBF, TCP's pacing and iperf3's at 100 Mbit/s",
    takes: Takes::RoundsAndSubjects,
    run: |context| STUDY.run(context),
};

const STUDY: Study<[Shot; 2]> = Study {
    title: "burstiness of paced traffic",
    notes: &NOTES,
    setups,
    rounds: 3,
    slice: Duration::from_millis(2500),
    smoke_setups: 4,
    measure: |_, traffic, slice| shots(&traffic, slice),
    show: |found| {
        let curves: Vec<Curve> = (found.iter())
            .flat_map(|(setup, shots)| [0, 1].map(|index| Curve::of(setup, index, shots)))
            .collect();
        let charts = [0, 1].map(|index| chart(&curves, index));
        (rows(&curves), charts.into())
    },
};

fn setups() -> Vec<Setup> {
    let rate = mbit(RATE_MBIT);
    let pace = Shaper::Pace(Pace::of_rate(rate));
    let patient = Shaper::Pace(Pace {
        class: CATCH_UP,
        ..Pace::of_rate(rate)
    });
    let htb = Shaper::Htb(Htb::of_rate(rate));
    let at_ceil = Shaper::Htb(Htb {
        burst: Burst::AtCeil(PEAK),
        ..Htb::of_rate(rate)
    });
    let tbf_with_peak = Shaper::Tbf(rate, Some(PEAK));
    let udp = Load::Udp(mbit(RATE_MBIT * 6 / 5));
    let own = |name, load| Setup::new(name, Shaper::Forward, load);
    vec![
        Setup::new("softclock pace, UDP", pace, udp),
        Setup::new("HTB, ceil 115 Mbit/s, UDP", at_ceil, udp),
        Setup::new(
            "TBF, peakrate 115 Mbit/s, TCP with TSO",
            tbf_with_peak,
            Load::Tcp,
        )
        .offload(Offload::Link),
        own("TCP's own pacing, with TSO", Load::TcpMaxPacing(rate)).offload(Offload::Link),
        Setup::new("HTB, UDP", htb, udp),
        Setup::new("TBF, UDP", Shaper::Tbf(rate, None), udp),
        Setup::new("TBF, peakrate 115 Mbit/s, UDP", tbf_with_peak, udp),
        Setup::new("softclock pace, TCP with TSO", pace, Load::Tcp).offload(Offload::Link),
        Setup::new("HTB, TCP with TSO", htb, Load::Tcp).offload(Offload::Link),
        Setup::new("softclock pace, behind 100 ms, UDP", patient, udp),
        Setup::new(
            "softclock pace, behind 100 ms, TCP with TSO",
            patient,
            Load::Tcp,
        )
        .offload(Offload::Link),
        own("TCP's own pacing", Load::TcpMaxPacing(rate)),
        own("iperf3's pacing, UDP", Load::Udp(rate)),
        own("iperf3's pacing, TCP", Load::TcpPaced(rate)),
        own("fq's pacing, TCP with TSO", Load::TcpFq(rate)).offload(Offload::Link),
    ]
}

/// Captures twice: alone, and beside computing threads.
fn shots(traffic: &Traffic, slice: Duration) -> io::Result<[Shot; 2]> {
    let alone = traffic.capture(slice)?;
    let neighbours = Neighbours::start();
    let beside = traffic.capture(slice)?;
    drop(neighbours);
    Ok([&alone, &beside].map(Shot::of))
}

/// The figures of one capture.
struct Shot {
    rate_error: f64,
    most: f64,
    mean: f64,
    trains: f64,
    variation: f64,
    peak: f64,
    gaps: Histogram,
    lost: u64,
}

impl Shot {
    fn of(frames: &Frames) -> Self {
        let burstiness = frames.burstiness(mbit(RATE_MBIT));
        let queue = burstiness.queue();
        let target = mbit(RATE_MBIT).bps() as f64;
        Self {
            rate_error: (frames.bps().unwrap_or(0.0) / target - 1.0) * 100.0,
            most: queue.map_or(0.0, |queue| queue.max.packets as f64),
            mean: queue.map_or(0.0, |queue| queue.mean_packets()),
            trains: burstiness.trains().lengths().quantile_ns(0.999) as f64,
            variation: burstiness.gaps().variation().unwrap_or(0.0),
            peak: (burstiness.windows().first())
                .and_then(|window| window.p999_over_mean())
                .unwrap_or(0.0),
            gaps: burstiness.gaps().histogram().clone(),
            lost: frames.lost,
        }
    }
}

/// A variant under one condition, over all rounds.
struct Curve<'a> {
    name: &'a str,
    index: usize,
    shots: Vec<&'a Shot>,
}

impl<'a> Curve<'a> {
    fn of(setup: &'a Setup, index: usize, rounds: &'a [[Shot; 2]]) -> Self {
        Self {
            name: &setup.name,
            index,
            shots: rounds.iter().map(|shots| &shots[index]).collect(),
        }
    }

    fn row(&self, metric: &str, unit: &'static str, of: fn(&Shot) -> f64) -> Row {
        let samples: Vec<f64> = self.shots.iter().map(|shot| of(shot)).collect();
        let metric = format!("{metric}; {}", CONDITIONS[self.index]);
        Row::of_samples(self.name, metric, unit, &samples)
    }

    /// Returns the paper's mean and maximum burstiness.
    fn paper(&self) -> Option<(f64, f64)> {
        let paper = PAPER.iter().find(|(name, ..)| *name == self.name);
        let (_, mean, most) = paper.filter(|_| self.index == 0)?;
        Some((*mean, *most))
    }
}

/// Name and unit of a metric, its value of a capture, and the paper's value for a variant.
type Metric = (
    &'static str,
    &'static str,
    fn(&Shot) -> f64,
    fn(&Curve<'_>) -> Option<f64>,
);

fn rows(curves: &[Curve<'_>]) -> Vec<Row> {
    let nothing: fn(&Curve<'_>) -> Option<f64> = |_| None;
    let metrics: [Metric; 7] = [
        (
            "rate above its target",
            "%",
            |shot| shot.rate_error,
            nothing,
        ),
        (
            "trains (gaps below 10 us), p99.9",
            "frames",
            |shot| shot.trains,
            nothing,
        ),
        (
            "gaps, coefficient of variation",
            "",
            |shot| shot.variation,
            nothing,
        ),
        (
            "windows of 1 ms, p99.9 over mean",
            "x",
            |shot| shot.peak,
            nothing,
        ),
        (
            "burstiness, mean",
            "frames",
            |shot| shot.mean,
            |curve| Some(curve.paper()?.0),
        ),
        (
            "burstiness, most",
            "frames",
            |shot| shot.most,
            |curve| Some(curve.paper()?.1),
        ),
        (
            "frames lost by the capture",
            "",
            |shot| shot.lost as f64,
            nothing,
        ),
    ];
    let mut rows = Vec::new();
    for (metric, unit, of, paper) in metrics {
        // Both conditions of a metric stand next to each other.
        for index in [0, 1] {
            for curve in curves.iter().filter(|curve| curve.index == index) {
                let row = curve.row(metric, unit, of);
                rows.push(Row {
                    paper: paper(curve),
                    ..row
                });
            }
        }
    }
    rows.extend(
        [UDP, TCP]
            .iter()
            .flat_map(|peers| peers.rows(&rows))
            .collect::<Vec<_>>(),
    );
    rows
}

/// Compares variants under UDP, whose datagrams arrive one by one.
const UDP: Comparison = Comparison {
    is_ours: |variant| variant == "softclock pace, UDP",
    is_peer: |variant| is_peer(variant) && variant.ends_with("UDP"),
    better: is_less,
};

/// Compares variants under TCP, whose segments arrive joined unless their sender prevents it.
const TCP: Comparison = Comparison {
    is_ours: |variant| variant == "softclock pace, TCP with TSO",
    is_peer: |variant| is_peer(variant) && !variant.ends_with("UDP"),
    better: is_less,
};

fn is_peer(variant: &str) -> bool {
    !variant.starts_with("softclock")
}

/// Selects the metrics in which less is better: those that would be 0 or 1 for a perfect pacer.
fn is_less(metric: &str) -> Option<Better> {
    let compared = [
        "gaps,",
        "windows of 1 ms",
        "burstiness, mean",
        "burstiness, most",
    ];
    let is_compared = compared.iter().any(|what| metric.starts_with(what));
    is_compared.then_some(Better::Less)
}

fn chart(curves: &[Curve<'_>], index: usize) -> Chart {
    let series = curves.iter().filter(|curve| curve.index == index);
    let series = series.map(|curve| {
        let mut gaps = Histogram::new();
        for shot in &curve.shots {
            gaps.merge(&shot.gaps);
        }
        // Shares, so that variants with different numbers of frames compare.
        let all = gaps.count().max(1) as f64;
        let points = gaps.buckets();
        let points = points.map(|(ns, count)| (ns.max(1) as f64 / 1e3, count as f64 / all));
        Series {
            name: curve.name.to_owned(),
            mark: Mark::Line,
            points: points.collect(),
        }
    });
    Chart {
        title: format!("gaps between frames, {} (Figure 8)", CONDITIONS[index]),
        x: Axis::decades("gap, us", 0.1, 100_000.0),
        y: Axis::decades("share of the gaps in a sixteenth of an octave", 1e-5, 1.0),
        series: series.collect(),
    }
}

const RATE_MBIT: u64 = 100;
const CATCH_UP: &str = "peak 115mbit behind 100ms";
/// The rate at which the kernel's disciplines may catch up, equal to that in [`CATCH_UP`].
const PEAK: Rate = mbit(115);

const CONDITIONS: [&str; 2] = ["alone", "beside computation"];

/// Mean and maximum burstiness of PSPacer/HT and HTB, without TSO and with it.
const PAPER: [(&str, f64, f64); 4] = [
    ("softclock pace, UDP", 2.06, 7.0),
    ("HTB, UDP", 2.00, 7.0),
    ("softclock pace, TCP with TSO", 3.27, 9.0),
    ("HTB, TCP with TSO", 3.12, 8.0),
];

const NOTES: [&str; 6] = [
    "all are to send 100 Mbit/s; shapers are offered 120 Mbit/s of UDP, or as much TCP as gets through; pace has its \
     defaults (at most 8 frames together, lateness beyond that is not made up for), or catches up at 115 Mbit/s for 100 ms of \
     lateness; HTB has tc's default burst (1600 bytes), TBF one of 1 ms (12.5 kB)",
    "HTB with ceil has a burst of 1 ms and a cburst of one packet, as tc-htb(8) has for evening out; TBF with peakrate has a \
     minburst of one packet, as in tc-tbf(8), and so cuts joined segments, which HTB and TBF without it pass whole or in part",
    "TCP's own pacing is SO_MAX_PACING_RATE (iperf3 --fq-rate) without fq, fq's the same with it; iperf3's pacing is its \
     --bitrate",
    "beside computation: as many threads as processors spin at ordinary priority; pace has its default, SCHED_FIFO",
    "times are the kernel's at the receiver; segments that arrive joined count as arriving at once; the virtual bottleneck \
     has the target's rate, or the capture's mean where that is higher",
    "the paper's are for TCP at 5 Gbit/s in frames of 9 KB over 10 Gbit/s, without and with TSO",
];
