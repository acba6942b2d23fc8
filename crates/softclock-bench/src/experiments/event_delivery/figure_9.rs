//! `event-delivery/figure-9`: a proxy's response time against the rate of requests (*Event Delivery*, section 7.3).

use std::error::Error;
use std::time::Duration;

use crate::lab::proxy_stage::{self, Crowd, Stage};
use crate::load::HotResult;
use crate::output::best_peer::{Better, Comparison};
use crate::output::chart::{Axis, Chart, Mark, Series};
use crate::output::report::{Context, Experiment, Report, Row, median};
use crate::servers::{BESIDE_PEERS, ProxyKind};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "event-delivery/figure-9",
    about: "response time of the proxy, nginx and HAProxy against the rate of requests, with cold connections",
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let stage = Stage::build()?;
    let mut notes = stage.notes(&NOTES);
    let looking = [ProxyKind::SoftclockPolling, ProxyKind::HaProxyBusy];
    let kinds = [&ProxyKind::ALL[..], &looking].concat();
    let crowds = stage.crowds(&kinds, plan.cold, &mut notes)?;
    let saturation = proxy_stage::saturation(&crowds, HOT, plan.slice / 2)?;
    let curves = crowds.into_iter().map(|(kind, crowd)| Curve {
        kind,
        crowd,
        points: plan.loads.iter().map(|_| Vec::new()).collect(),
    });
    let mut curves: Vec<Curve> = curves.collect();
    notes.push(format!(
        "saturation is {saturation:.0} requests a second: what the proxy by epoll answers in a closed loop of {HOT}"
    ));
    let total = plan.rounds * plan.loads.len() * curves.len();
    let mut done = 0;
    for round in 0..plan.rounds {
        for (point, load) in plan.loads.iter().enumerate() {
            for turn in 0..curves.len() {
                // Rotate the order, so that no variant always runs first.
                let index = (round + turn) % curves.len();
                let Curve {
                    kind,
                    crowd,
                    points,
                } = &mut curves[index];
                let result = context.round(done, total, kind.name(), || {
                    crowd.hot(saturation * load, plan.slice, MOST_OUTSTANDING, 0)
                });
                let result = result.map_err(|error| format!("{}: {error}", kind.name()))?;
                points[point].push(result);
                done += 1;
            }
        }
    }
    context.progress(total, total, "");
    Ok(Report {
        title: "response time of proxies with cold connections",
        notes,
        rows: rows(&curves, plan),
        charts: vec![
            chart(&curves, plan, saturation, MEDIAN, 0.5),
            chart(&curves, plan, saturation, P99, 0.99),
        ],
    })
}

/// A proxy, and its clients' results at each load in each round.
struct Curve<'a> {
    kind: ProxyKind,
    crowd: Crowd<'a>,
    points: Vec<Vec<HotResult>>,
}

fn rows(curves: &[Curve<'_>], plan: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |metric: &str, unit, of: &dyn Fn(&HotResult) -> Option<f64>| {
        for (point, load) in plan.loads.iter().enumerate() {
            for curve in curves {
                let values: Option<Vec<f64>> = curve.points[point].iter().map(of).collect();
                if let Some(values) = values {
                    let metric = format!("{metric}; {:.0} % of saturation", load * 100.0);
                    rows.push(Row::of_samples(curve.kind.name(), metric, unit, &values));
                }
            }
        }
    };
    for (metric, share) in [(MEDIAN, 0.5), (P99, 0.99)] {
        add(metric, "us", &|result| latency_us(result, share));
    }
    add("requests lost", "%", &|result| Some(result.lost() * 100.0));
    let beside = Comparison {
        better: |metric| metric.starts_with("response time").then_some(Better::Less),
        ..BESIDE_PEERS
    };
    rows.extend(beside.rows(&rows));
    rows
}

/// Returns a quantile of the response time, or `None` if no request was answered.
fn latency_us(result: &HotResult, share: f64) -> Option<f64> {
    (result.completed() > 0).then(|| result.latency_us(share) as f64)
}

fn chart(curves: &[Curve<'_>], plan: &Plan, saturation: f64, title: &str, share: f64) -> Chart {
    let point = |(load, results): (&f64, &Vec<HotResult>)| {
        let values: Vec<f64> = (results.iter())
            .filter_map(|result| latency_us(result, share))
            .collect();
        let place = load * saturation;
        (!values.is_empty()).then(|| (place, median(&values) / 1e3))
    };
    let series = curves.iter().map(|curve| Series {
        name: curve.kind.name().into(),
        mark: Mark::Line,
        points: plan
            .loads
            .iter()
            .zip(&curve.points)
            .filter_map(point)
            .collect(),
    });
    Chart {
        title: format!("{title}, against the rate of requests"),
        x: Axis::linear("requests a second", 0.0, saturation),
        y: Axis::decades("ms", 0.01, 1000.0),
        series: series.collect(),
    }
}

struct Plan {
    slice: Duration,
    rounds: usize,
    cold: usize,
    /// Request rates as shares of the saturation.
    loads: &'static [f64],
}

const FULL: Plan = Plan {
    slice: Duration::from_secs(1),
    rounds: 3,
    cold: 750,
    loads: &[0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0],
};

const SMOKE: Plan = Plan {
    slice: Duration::from_millis(100),
    rounds: 1,
    cold: 50,
    loads: &[0.1, 0.4],
};

const MEDIAN: &str = "response time, median";
const P99: &str = "response time, p99";

/// Requests outstanding in the closed loop that finds the saturation.
const HOT: usize = 32;

/// The most outstanding requests. Each takes two descriptors beside the cold connections, and `select` can wait for
/// descriptors below 1024 only.
const MOST_OUTSTANDING: usize = 100;

const NOTES: [&str; 5] = [
    "750 cold connections; requests at an even rate, whatever the proxy does, from a client of its own beside the upstream; \
     the response time counts from the time at which the request was to be sent",
    "at most 100 requests are outstanding, since select waits for descriptors below 1024 only; what would be one more is \
     not sent and counts as lost, as does one with another status than 200",
    "HAProxy, busy-polling: its manual's option for latency; softclock, epoll, polling: `--signalling poll`. Both look \
     without waiting, and take all of their processor",
    "the client takes more of its processor than the closed loop's: near saturation it is what limits all",
    "the paper's Figure 9: with the new API the response time is much lower and the proxy saturates later, at 1348 requests \
     a second where the improved select does at 1291",
];
