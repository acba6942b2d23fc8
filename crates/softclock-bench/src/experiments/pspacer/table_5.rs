//! `pspacer/table-5`: the accuracy of rates against their targets (*PSPacer/HT*, section IV-B, Figure 7 and Table V).

use std::error::Error;
use std::time::{Duration, Instant};

use crate::lab::bridge::{self, Burst, Htb, Load, Pace, Setup, Shaper, mbit};
use crate::output::best_peer::{Better, Comparison};
use crate::output::chart::{Axis, Chart, Mark, Series};
use crate::output::report::{Context, Experiment, Report, Row, Takes, median};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pspacer/table-5",
    about: "Figure 7 and Table V: rates against targets from 100 Mbit/s up, of pace, HTB, TBF, TCP and iperf3",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "rates that are kept";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    bridge::report(TITLE, &NOTES, |notes| {
        let plan = if context.smoke { &SMOKE } else { &FULL };
        let mut curves = ALL.map(Curve::new).to_vec();
        let begun = Instant::now();
        for &target in &(plan.targets)() {
            // A slow machine measures fewer targets rather than for hours.
            if begun.elapsed() > LONGEST {
                notes.push(format!(
                    "targets from {target} Mbit/s on: left out for lack of time"
                ));
                break;
            }
            let going: Vec<&mut Curve> =
                curves.iter_mut().filter(|curve| curve.goes_on()).collect();
            if going.is_empty() {
                break;
            }
            let mut missing = Vec::new();
            measure(context, plan, going, target, &mut missing)?;
            // A variant that is missing at one target is missing at all: note it once.
            if target == FIRST {
                notes.extend(missing);
            }
        }
        let mut rows: Vec<Row> = curves.iter().flat_map(Curve::rows).collect();
        rows.extend(BESIDE_PEERS.rows(&rows));
        Ok((rows, vec![chart(&curves)]))
    })
}

const BESIDE_PEERS: Comparison = Comparison {
    is_ours: |variant| variant == Kind::Pace.name(),
    is_peer: |variant| variant != Kind::Pace.name(),
    better: |metric| (metric == LIMIT).then_some(Better::More),
};

const LIMIT: &str = "highest target kept within 5 %";

/// Measures all curves at a target. Setups that cannot be measured are noted in `missing`.
fn measure(
    context: &Context,
    plan: &Plan,
    mut curves: Vec<&mut Curve>,
    target: u64,
    missing: &mut Vec<String>,
) -> Result<(), Box<dyn Error>> {
    let setups: Vec<Setup> = curves
        .iter()
        .map(|curve| curve.kind.setup(target))
        .collect();
    let bps = |_: &Setup, traffic: bridge::Traffic| Ok(traffic.measure(plan.slice)?.bps);
    let rounds = if target <= FINE { plan.rounds } else { 1 };
    let found = bridge::rounds(context, &setups, rounds, missing, bps)?;
    for curve in &mut curves {
        let mut results = found.iter();
        let result = results.find(|(setup, _)| setup.name == curve.kind.name());
        let bps = result.map(|(_, bps)| median(bps) / 1e6);
        curve.points.push((target as f64, bps.unwrap_or(0.0)));
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pace,
    Htb,
    HtbMillisecond,
    Tbf,
    TcpMaxPacing,
    TcpFq,
    IperfUdp,
    IperfTcp,
}

const ALL: [Kind; 8] = [
    Kind::Pace,
    Kind::Htb,
    Kind::HtbMillisecond,
    Kind::Tbf,
    Kind::TcpMaxPacing,
    Kind::TcpFq,
    Kind::IperfUdp,
    Kind::IperfTcp,
];

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Pace => "softclock pace",
            Self::Htb => "HTB",
            Self::HtbMillisecond => "HTB, burst of 1 ms",
            Self::Tbf => "TBF",
            Self::TcpMaxPacing => "TCP's own pacing",
            Self::TcpFq => "fq's pacing, TCP",
            Self::IperfUdp => "iperf3's pacing, UDP",
            Self::IperfTcp => "iperf3's pacing, TCP",
        }
    }

    fn setup(self, target_mbit: u64) -> Setup {
        let rate = mbit(target_mbit);
        let more = Load::Udp(mbit(target_mbit * 6 / 5));
        let (shaper, load) = match self {
            Self::Pace => (Shaper::Pace(Pace::of_rate(rate)), more),
            Self::Htb => (Shaper::Htb(Htb::of_rate(rate)), more),
            Self::HtbMillisecond => {
                let htb = Htb {
                    burst: Burst::Millisecond,
                    ..Htb::of_rate(rate)
                };
                (Shaper::Htb(htb), more)
            }
            Self::Tbf => (Shaper::Tbf(rate, None), more),
            Self::TcpMaxPacing => (Shaper::Forward, Load::TcpMaxPacing(rate)),
            Self::TcpFq => (Shaper::Forward, Load::TcpFq(rate)),
            Self::IperfUdp => (Shaper::Forward, Load::Udp(rate)),
            Self::IperfTcp => (Shaper::Forward, Load::TcpPaced(rate)),
        };
        Setup::new(self.name(), shaper, load)
    }

    /// Returns the paper's largest error in percent.
    const fn paper(self) -> Option<f64> {
        match self {
            Self::Pace => Some(0.0),
            Self::Htb => Some(9.5),
            _ => None,
        }
    }
}

/// A variant's rate at each target, in Mbit/s.
#[derive(Clone, Debug)]
struct Curve {
    kind: Kind,
    points: Vec<(f64, f64)>,
}

impl Curve {
    const fn new(kind: Kind) -> Self {
        Self {
            kind,
            points: Vec::new(),
        }
    }

    /// Returns whether one of the last two targets was kept. Above the capacity of the machine there is nothing to
    /// measure.
    fn goes_on(&self) -> bool {
        let last = self.points.iter().rev().take(2);
        self.points.len() < 2 || last.into_iter().any(is_kept)
    }

    fn rows(&self) -> Vec<Row> {
        let kept = self.points.iter().filter(|point| is_kept(point));
        let errors: Vec<f64> = kept
            .map(|(target, rate)| (rate / target - 1.0) * 100.0)
            .collect();
        let Some(&largest) = errors.iter().max_by(|a, b| a.abs().total_cmp(&b.abs())) else {
            return Vec::new();
        };
        let name = self.kind.name();
        let limit = self
            .points
            .iter()
            .filter(|point| is_kept(point))
            .map(|(target, _)| *target);
        let limit = limit.fold(0.0, f64::max);
        let largest = Row::of_samples(
            name,
            "largest error, above or below the target",
            "%",
            &[largest],
        );
        vec![
            Row::of_samples(name, "rate above its target", "%", &errors),
            Row {
                paper: self.kind.paper(),
                ..largest
            },
            Row::of_samples(name, LIMIT, "Mbit/s", &[limit]),
        ]
    }
}

fn is_kept((target, rate): &(f64, f64)) -> bool {
    (rate / target - 1.0).abs() < KEPT
}

fn chart(curves: &[Curve]) -> Chart {
    let series = curves.iter().map(|curve| Series {
        name: curve.kind.name().into(),
        mark: Mark::Line,
        points: (curve.points.iter())
            .map(|&(target, rate)| (target, rate - target))
            .collect(),
    });
    let series: Vec<Series> = series.collect();
    let points = || series.iter().flat_map(|series| &series.points);
    let last = points().map(|&(target, _)| target).fold(100.0, f64::max);
    Chart {
        title: "rate less target (Figure 7)".into(),
        x: Axis::linear("target, Mbit/s", 0.0, last),
        y: Axis::linear("rate less target, Mbit/s", -50.0, 50.0),
        series,
    }
}

struct Plan {
    slice: Duration,
    /// Rounds for targets up to [`FINE`]; higher targets have one.
    rounds: usize,
    /// The targets, in Mbit/s.
    targets: fn() -> Vec<u64>,
}

const FULL: Plan = Plan {
    slice: Duration::from_millis(600),
    rounds: 2,
    targets: || {
        let fine = (FIRST..=FINE).step_by(100);
        fine.chain((FINE..=LAST).step_by(200).skip(1)).collect()
    },
};

const SMOKE: Plan = Plan {
    slice: Duration::from_millis(100),
    rounds: 1,
    targets: || vec![FIRST],
};

const FIRST: u64 = 100;
/// The target in Mbit/s up to which steps are 100 Mbit/s; above it they are 200.
const FINE: u64 = 1_000;
const LAST: u64 = 10_000;

/// The time after which no further target is begun.
const LONGEST: Duration = Duration::from_secs(300);

/// The relative error up to which a target counts as kept.
const KEPT: f64 = 0.05;

const NOTES: [&str; 4] = [
    "HTB has tc's default burst (1600 bytes), which tc-htb(8) says bounds its rate, and then one of 1 ms, as TBF has; fq's \
     pacing is SO_MAX_PACING_RATE, too, with tc's fq on the sender's link",
    "shapers are offered a fifth more UDP than the target; TCP's own pacing is SO_MAX_PACING_RATE (iperf3 --fq-rate) without \
     fq, iperf3's is its --bitrate, both given the rate of data that makes the target's rate of frames; no TSO, no GSO",
    "a variant is raised by 100 Mbit/s, from 1 Gbit/s on by 200, until it misses two targets by 5 %, which here mostly is where \
     the load or the bridge has no more processor time; rates are by the receiver's counters, in two rounds of 0.6 s, above \
     1 Gbit/s in one",
    "Table V is of 100 Mbit/s to 10 Gbit/s; its other rows: PSPacer -5.7 %, HTB (mtu=64KB) +4.4 %",
];
