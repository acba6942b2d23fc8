//! `lrp/figure-3`: throughput against offered load (*LRP*, Figure 3).
//!
//! A flood of datagrams of 14 bytes reaches one receiver, which works for 0, 1 or 10 us on each and discards it. From
//! some load on, an eager server delivers less the more it is offered.

use std::error::Error;
use std::io;
use std::time::Duration;

use super::super::cells::{self, Cell};
use crate::lab::lrp::{Rates, Service, Stage, Variant, notes};
use crate::measure::turns::Found;
use crate::output::chart::{Chart, Mark, Series};
use crate::output::metric::Metric;
use crate::output::report::{Context, Experiment, Report, Takes, median};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "lrp/figure-3",
    about: "packets delivered against packets offered, up to four times saturation: BSD, Early-Demux, SOFT-LRP, NI-LRP and the kernel",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "throughput against offered load";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let cells = plan.works_us.iter().flat_map(|&us| {
        Variant::ALL.into_iter().map(move |variant| Cell {
            variant: variant.name().to_owned(),
            setting: format!("work {us} us"),
            content: (us, variant),
        })
    });
    cells::report(
        context,
        (TITLE, &notes(&OWN_NOTES)),
        (cells.collect(), plan.rounds),
        &METRICS,
        |&(us, variant)| measure(us, variant, plan).map(|sweep| vec![sweep]),
        |found| plan.works_us.iter().map(|&us| chart(us, found)).collect(),
    )
}

/// One round of a cell.
struct Sweep {
    points: Vec<Rates>,
    /// At four times the most that was delivered, or the most that the flood can send.
    overload: Rates,
    /// The highest offered rate of which almost nothing is lost.
    loss_free: f64,
}

/// Measures a variant with this work a packet.
fn measure(us: u64, variant: Variant, plan: &Plan) -> io::Result<Sweep> {
    let work = Duration::from_micros(us);
    let stage = Stage::new(variant, &[Service::sink(PORT, work)])?;
    let rates = |rate: f64| stage.rates(rate as u64, plan.settle, plan.slice);
    let mut points = Vec::new();
    for &rate in plan.offered {
        points.push(rates(rate)?);
    }
    let loss_free = loss_free(&points, plan.halvings, rates)?;
    let overload = rates(4.0 * most(&points))?;
    Ok(Sweep {
        points,
        overload,
        loss_free,
    })
}

fn most(points: &[Rates]) -> f64 {
    let delivered = points.iter().map(|point| point.delivered);
    // A receiver that gets nothing at all would be offered nothing.
    delivered.fold(1000.0, f64::max)
}

/// Searches between the highest point without losses and the first one with losses.
fn loss_free(
    points: &[Rates],
    halvings: u32,
    rates: impl Fn(f64) -> io::Result<Rates>,
) -> io::Result<f64> {
    let first = points.iter().position(|point| !is_loss_free(point));
    let mut low = match first {
        Some(0) => 0.0,
        Some(first) => points[first - 1].offered,
        None => return Ok(points.last().map_or(0.0, |point| point.offered)),
    };
    let mut high = first.map_or(low, |first| points[first].offered);
    for _ in 0..halvings {
        let point = rates(low.midpoint(high))?;
        match is_loss_free(&point) {
            true => low = low.max(point.offered),
            false => high = high.min(point.offered),
        }
    }
    Ok(low)
}

/// Packets on their way at the ends of a slice are up to a full queue, so a small share may be missing.
fn is_loss_free(rates: &Rates) -> bool {
    rates.delivered >= rates.offered * 0.995
}

const METRICS: [Metric<Sweep>; 11] = [
    ("most delivered", "k/s", |sweep| {
        Some(most(&sweep.points) / 1e3)
    }),
    ("offered that is delivered above 99.5 %", "k/s", |sweep| {
        Some(sweep.loss_free / 1e3)
    }),
    ("offered in overload", "k/s", |sweep| {
        Some(sweep.overload.offered / 1e3)
    }),
    (
        "offered in overload, as share of the most delivered",
        "%",
        |sweep| Some(100.0 * sweep.overload.offered / most(&sweep.points)),
    ),
    (
        "delivered in overload, as share of the most",
        "%",
        |sweep| Some(100.0 * sweep.overload.delivered / most(&sweep.points)),
    ),
    ("offered at the highest load", "k/s", |sweep| {
        Some(sweep.points.last()?.offered / 1e3)
    }),
    (
        "delivered at the highest load, as share of the most",
        "%",
        |sweep| Some(100.0 * sweep.points.last()?.delivered / most(&sweep.points)),
    ),
    ("share of overload lost in veth's ring", "%", |sweep| {
        Some(of_overload(sweep, |rates| rates.ring))
    }),
    ("share of overload lost in AF_XDP's ring", "%", |sweep| {
        Some(of_overload(sweep, |rates| rates.device))
    }),
    ("share of overload discarded early", "%", |sweep| {
        Some(of_overload(sweep, |rates| rates.early + rates.shared))
    }),
    ("share of overload dropped after all work", "%", |sweep| {
        Some(of_overload(sweep, |rates| rates.late))
    }),
];

fn of_overload(sweep: &Sweep, of: fn(&Rates) -> f64) -> f64 {
    100.0 * of(&sweep.overload) / sweep.overload.offered.max(1.0)
}

fn chart(us: u64, found: &Found<Cell<(u64, Variant)>, Sweep>) -> Chart {
    let of_work = found.iter().filter(|(cell, _)| cell.content.0 == us);
    let sweeps = of_work.map(|(cell, sweeps)| {
        let points = sweeps.iter().map(|sweep| &sweep.points[..]).collect();
        (cell.variant.clone(), points)
    });
    chart_of(
        format!("delivered against offered, work of {us} us a packet"),
        sweeps.collect(),
    )
}

/// Returns the chart of delivered against offered rates: for each variant the medians of its rounds, each of which has
/// the same points.
pub(in crate::experiments) fn chart_of(
    title: String,
    variants: Vec<(String, Vec<&[Rates]>)>,
) -> Chart {
    let of_variant = |(name, sweeps): (String, Vec<&[Rates]>)| {
        let points = (0..sweeps[0].len()).map(|place| {
            let median_of = |of: fn(&Rates) -> f64| {
                let samples = sweeps.iter().map(|sweep| of(&sweep[place]) / 1e3);
                median(&samples.collect::<Vec<f64>>()).round()
            };
            (
                median_of(|rates| rates.offered),
                median_of(|rates| rates.delivered),
            )
        });
        Series {
            name,
            mark: Mark::Line,
            points: points.collect(),
        }
    };
    let series: Vec<Series> = variants.into_iter().map(of_variant).collect();
    let labels = [
        "offered, thousands a second",
        "delivered, thousands a second",
    ];
    Chart::from_zero(title, labels, series)
}

struct Plan {
    works_us: &'static [u64],
    /// Offered rates, in ascending order.
    offered: &'static [f64],
    halvings: u32,
    settle: Duration,
    slice: Duration,
    rounds: usize,
}

const FULL: Plan = Plan {
    works_us: &[0, 1, 10],
    offered: &[
        10e3, 20e3, 40e3, 60e3, 80e3, 100e3, 150e3, 200e3, 250e3, 300e3, 400e3, 500e3, 650e3,
        800e3, 1000e3,
    ],
    halvings: 4,
    settle: Duration::from_millis(100),
    slice: Duration::from_millis(300),
    rounds: 3,
};

const SMOKE: Plan = Plan {
    works_us: &[10],
    offered: &[20e3, 200e3],
    halvings: 0,
    settle: Duration::from_millis(20),
    slice: Duration::from_millis(60),
    rounds: 1,
};

const PORT: u16 = 9;

const OWN_NOTES: [&str; 3] = [
    "overload: four times the most that the variant has delivered at any load, or what the flood can send if that is less; the \
     paper's best rates are 7380 packets/s with BSD, 9760 with SOFT-LRP, and loss-free 6380 and 9210; at twice that, BSD is near \
     livelock, and Early-Demux delivers 40 to 65 % of SOFT-LRP",
    "highest load: all that the flood can send, which is more than four times saturation for work of 10 us, and less for 0 and 1; \
     lost early: before any protocol work, or in the shared queue",
    "frames arrive in bursts each 200 us, since a wake-up across virtual processors takes 20 us of the receiver's",
];
