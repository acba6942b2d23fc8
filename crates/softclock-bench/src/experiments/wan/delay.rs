//! `wan/delay`: the accuracy of the delays of `softclock wan`.
//!
//! tcpdump records each datagram where it enters the bridge and where it arrives. The difference less the configured
//! delay is the emulator's error. netem and the kernel's bridge alone stand beside it.

use std::io;
use std::time::Duration;

use crate::lab::bridge::{Load, Neighbours, Passage, Results, Setup, Shaper, Study, Traffic, mbit};
use crate::output::best_peer::{Better, Comparison};
use crate::output::chart::{Axis, Chart, Series};
use crate::output::report::{Experiment, Row, Takes, quantile};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "wan/delay",
    about: "by how much delays of softclock wan are exceeded, 0 to 50 ms at 100 Mbit/s, beside netem and plain forwarding",
    takes: Takes::RoundsAndSubjects,
    run: |context| STUDY.run(context),
};

const STUDY: Study<[Shot; 2]> = Study {
    title: "accuracy of emulated delays",
    notes: &NOTES,
    setups,
    rounds: 4,
    slice: Duration::from_millis(2500),
    smoke_setups: 2,
    measure: |setup, traffic, slice| shots(&traffic, setup.shaper, slice),
    show: |found| (rows(found), [0, 1].map(|index| chart(found, index)).into()),
};

fn setups() -> Vec<Setup> {
    let load = Load::Udp(mbit(100));
    let wan = |ms| {
        let shaper = Shaper::Wan(Duration::from_millis(ms));
        Setup::new(format!("softclock wan, {ms} ms"), shaper, load)
    };
    let mut setups = vec![Setup::new("forwarded", Shaper::Forward, load)];
    setups.extend(DELAYS_MS.map(wan));
    setups.extend(DELAYS_MS.iter().filter(|&&ms| ms > 0).map(|&ms| {
        let shaper = Shaper::Netem(Duration::from_millis(ms));
        Setup::new(format!("netem, {ms} ms"), shaper, load)
    }));
    setups
}

/// The results of a capture at both ends.
struct Shot {
    /// Microseconds above the delay, in ascending order.
    late_us: Vec<f64>,
    lost: usize,
    uncaptured: u64,
}

/// Captures twice: alone, and beside computing threads.
fn shots(traffic: &Traffic, shaper: Shaper, slice: Duration) -> io::Result<[Shot; 2]> {
    let delay = match shaper {
        Shaper::Wan(delay) | Shaper::Netem(delay) => delay,
        _ => Duration::ZERO,
    };
    let shot = |passage: &Passage| Shot {
        late_us: passage.late_us(delay),
        lost: passage.lost,
        uncaptured: passage.uncaptured,
    };
    let alone = traffic.passage(slice)?;
    let neighbours = Neighbours::start();
    let beside = traffic.passage(slice)?;
    drop(neighbours);
    Ok([shot(&alone), shot(&beside)])
}

fn rows(results: &Results<[Shot; 2]>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |metric: &str, unit, of: &dyn Fn(&Shot) -> f64| {
        for (index, condition) in CONDITIONS.iter().enumerate() {
            for (setup, shots) in results {
                let samples: Vec<f64> = shots.iter().map(|shot| of(&shot[index])).collect();
                let metric = format!("{metric}; {condition}");
                rows.push(Row::of_samples(&setup.name, metric, unit, &samples));
            }
        }
    };
    for (place, name) in QUANTILES {
        let metric = format!("{ABOVE}, {name}");
        add(&metric, "us", &|shot| quantile(&shot.late_us, place));
    }
    add("share of datagrams that are lost", "%", &|shot| {
        shot.lost as f64 * 100.0 / (shot.late_us.len() + shot.lost) as f64
    });
    add("frames lost by the receiver's capture", "", &|shot| {
        shot.uncaptured as f64
    });
    rows.extend(
        BESIDE_PEERS
            .iter()
            .flat_map(|peers| peers.rows(&rows))
            .collect::<Vec<_>>(),
    );
    rows
}

/// Pairs each delay with netem at the same delay.
const BESIDE_PEERS: [Comparison; 3] = [
    Comparison {
        is_ours: |variant| variant == "softclock wan, 1 ms",
        is_peer: |variant| variant == "netem, 1 ms",
        better: is_less,
    },
    Comparison {
        is_ours: |variant| variant == "softclock wan, 10 ms",
        is_peer: |variant| variant == "netem, 10 ms",
        better: is_less,
    },
    Comparison {
        is_ours: |variant| variant == "softclock wan, 50 ms",
        is_peer: |variant| variant == "netem, 50 ms",
        better: is_less,
    },
];

fn is_less(metric: &str) -> Option<Better> {
    metric.starts_with(ABOVE).then_some(Better::Less)
}

const ABOVE: &str = "time on the way above the delay";

fn chart(results: &Results<[Shot; 2]>, index: usize) -> Chart {
    let x = Axis::decades("time on the way above the delay, us", 0.1, 10_000.0);
    let series = results.iter().map(|(setup, shots)| {
        let late = shots.iter().flat_map(|shot| &shot[index].late_us);
        let mut late: Vec<f64> = late.copied().collect();
        // Each shot is sorted, but their concatenation is not.
        late.sort_by(f64::total_cmp);
        Series::cdf(&setup.name, &x, &late)
    });
    let series = series.collect();
    Chart {
        title: format!("time on the way above the delay, {}", CONDITIONS[index]),
        x,
        y: Axis::linear("share of the datagrams", 0.0, 1.0),
        series,
    }
}

const DELAYS_MS: [u64; 4] = [0, 1, 10, 50];

const QUANTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")];

const CONDITIONS: [&str; 2] = ["alone", "beside computation"];

const NOTES: [&str; 6] = [
    "netem: the kernel's emulator at both exits of a bridge of the kernel's, with room for all frames on the way (limit \
     10000)",
    "100 Mbit/s of UDP in frames of 1500 bytes by iperf3, which sends what is due each millisecond in one burst; its numbers \
     pair what both captures have; beside computation: as many threads as processors spin at ordinary priority",
    "time stamps are the kernel's: when a frame is put into the receive queue of in0, where softclock wan counts the delay from, \
     too, and of the receiver's eth0, to which veth brings it within the bridge's transmission; the delay holds each way",
    "above the delay, so, are: how late the bridge's event was, the copies out of and into the kernel, and the frames of the \
     same burst before it; of forwarding it is the bridge of the kernel's alone",
    "two tcpdump take processor time beside it, as they do in forwarding; a frame that the receiver's loses counts as a lost datagram",
    "the target for softclock wan is 10 us at p50 and 100 us at p99",
];
