//! `event-delivery/figure-8`: a proxy's throughput against the number of cold connections (*Event Delivery*, section
//! 7.3).
//!
//! The measure is requests per second of the proxy's processor time, because the plain throughput also depends on the
//! processor time that the upstream and the clients take.

use std::error::Error;
use std::io;
use std::time::Duration;

use crate::lab::proxy_stage::{Crowd, Stage};
use crate::measure::slice::Slice;
use crate::output::best_peer::{Better, Comparison};
use crate::output::chart::{Axis, Chart, Mark, Series};
use crate::output::report::{Context, Experiment, Report, Row, Takes, median};
use crate::servers::{BESIDE_PEERS, ProxyKind};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "event-delivery/figure-8",
    about: "throughput of the proxy, nginx and HAProxy against the number of cold connections",
    takes: Takes::Nothing,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let stage = Stage::build()?;
    let mut notes = stage.notes(&NOTES);
    notes.push(stage.load_note());
    let variants = stage
        .proxies(&ProxyKind::ALL, &mut notes)?
        .into_iter()
        .map(Variant::Proxy);
    let mut curves: Vec<Curve> = variants
        .chain([Variant::Server])
        .map(|variant| Curve::new(variant, plan))
        .collect();
    let total = plan.rounds * curves.len();
    let mut done = 0;
    for round in 0..plan.rounds {
        for turn in 0..curves.len() {
            // Rotate the order, so that no variant always runs first.
            let index = (round + turn) % curves.len();
            let curve = &mut curves[index];
            let name = curve.variant.name();
            let measure = |crowd: &Crowd<'_>| {
                context.round(done, total, name, || crowd.measure(HOT, plan.slice))
            };
            let swept = curve.sweep(&stage, plan, measure);
            done += 1;
            swept.map_err(|error| format!("{name}: {error}"))?;
        }
    }
    context.progress(total, total, "");
    Ok(Report {
        title: "throughput of proxies with cold connections",
        notes,
        rows: rows(&curves, plan),
        charts: vec![chart(&curves)],
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Proxy(ProxyKind),
    /// The server itself, without a proxy.
    Server,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Proxy(kind) => kind.name(),
            Self::Server => "softclock serve, without a proxy",
        }
    }

    fn start(self, stage: &Stage) -> io::Result<Crowd<'_>> {
        match self {
            Self::Proxy(kind) => stage.start(kind),
            Self::Server => stage.serve(),
        }
    }

    fn can_have(self, cold: usize) -> bool {
        match self {
            Self::Proxy(kind) => cold <= MOST_BEFORE_PROXIES && kind.can_wait_for(cold + 2 * HOT),
            Self::Server => true,
        }
    }
}

/// The results of a variant for each number of cold connections.
struct Curve {
    variant: Variant,
    /// Each number of cold connections, with a slice for each round.
    points: Vec<(usize, Vec<Slice>)>,
}

impl Curve {
    fn new(variant: Variant, plan: &Plan) -> Self {
        let counts = plan.cold.iter().copied();
        let counts = counts.filter(|&cold| variant.can_have(cold));
        Self {
            variant,
            points: counts.map(|cold| (cold, Vec::new())).collect(),
        }
    }

    /// Measures one round with one process, to which ever more cold connections are made.
    fn sweep(
        &mut self,
        stage: &Stage,
        plan: &Plan,
        measure: impl Fn(&Crowd<'_>) -> io::Result<Slice>,
    ) -> io::Result<()> {
        let mut crowd = self.variant.start(stage)?;
        // Warm up: the proxy connects to its upstream and grows its buffers.
        crowd.measure(HOT, plan.slice / 4)?;
        for (cold, slices) in &mut self.points {
            crowd.grow_to(*cold)?;
            slices.push(measure(&crowd)?);
        }
        Ok(())
    }

    fn at(&self, cold: usize) -> Option<&[Slice]> {
        let mut points = self.points.iter();
        let (_, slices) = points.find(|(count, _)| *count == cold)?;
        Some(slices)
    }
}

fn rows(curves: &[Curve], plan: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |metric: &str, unit, of: &dyn Fn(&Curve, usize, usize) -> Option<f64>| {
        for &cold in plan.cold {
            for curve in curves {
                let rounds = 0..plan.rounds;
                let values: Option<Vec<f64>> = rounds.map(|round| of(curve, cold, round)).collect();
                if let Some(values) = values {
                    let metric = format!("{metric}; {cold} cold");
                    rows.push(Row::of_samples(curve.variant.name(), metric, unit, &values));
                }
            }
        }
    };
    let efficiency = |curve: &Curve, cold: usize, round: usize| {
        Some(curve.at(cold)?.get(round)?.requests_per_cpu_second())
    };
    add(EFFICIENCY, "1/s", &efficiency);
    add(
        "the same, relative to none cold",
        "x",
        &|curve, cold, round| Some(efficiency(curve, cold, round)? / efficiency(curve, 0, round)?),
    );
    add("requests a second", "1/s", &|curve, cold, round| {
        Some(curve.at(cold)?.get(round)?.requests_per_second())
    });
    let beside = Comparison {
        is_peer: |variant| {
            [ProxyKind::Nginx, ProxyKind::HaProxy]
                .map(ProxyKind::name)
                .contains(&variant)
        },
        better: |metric| metric.starts_with(EFFICIENCY).then_some(Better::More),
        ..BESIDE_PEERS
    };
    rows.extend(beside.rows(&rows));
    rows
}

const EFFICIENCY: &str = "requests a processor second";

fn chart(curves: &[Curve]) -> Chart {
    let efficiency = |slices: &[Slice]| {
        let values: Vec<f64> = slices.iter().map(Slice::requests_per_cpu_second).collect();
        median(&values)
    };
    let series = curves.iter().map(|curve| Series {
        name: curve.variant.name().into(),
        mark: Mark::Line,
        points: (curve.points.iter())
            .map(|(cold, slices)| (*cold as f64, efficiency(slices)))
            .collect(),
    });
    let series: Vec<Series> = series.collect();
    let points = || series.iter().flat_map(|series| &series.points);
    let most_cold = points().map(|&(cold, _)| cold).fold(0.0, f64::max);
    let most = points().map(|&(_, value)| value).fold(0.0, f64::max);
    Chart {
        title: "requests a second of the proxy's processor time, against cold connections".into(),
        x: Axis::linear("cold connections", 0.0, most_cold),
        y: Axis::linear("requests a processor second", 0.0, most * 1.05),
        series,
    }
}

struct Plan {
    slice: Duration,
    rounds: usize,
    cold: &'static [usize],
}

const FULL: Plan = Plan {
    slice: Duration::from_millis(800),
    rounds: 5,
    cold: &[0, 750, 2_000, 6_000, MOST_BEFORE_PROXIES, 18_000],
};

const SMOKE: Plan = Plan {
    slice: Duration::from_millis(100),
    rounds: 1,
    cold: &[0, 50],
};

/// The most cold connections in front of a proxy: proxies keep two descriptors free for each possible connection.
const MOST_BEFORE_PROXIES: usize = 9_000;

/// The number of outstanding requests, as in the paper.
const HOT: usize = 32;

const NOTES: [&str; 4] = [
    "32 hot clients in a closed loop, which saturates the proxy's processor if upstream and clients get theirs",
    "processor time is utime and stime of the proxy's processes over a slice of 0.8 s; in each round each variant is \
     started anew and gets more and more cold connections; medians of rounds, and ratios to the same round",
    "select waits for descriptors below 1024 only",
    "the paper's Figure 8: with the new API the throughput does not depend on cold connections (0 to 2000), with select it \
     falls; at 750 cold the proxy saturates at 1348 requests a second by the new API and at 1291 by the improved select",
];
