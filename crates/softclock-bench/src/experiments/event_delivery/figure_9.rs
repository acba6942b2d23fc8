//! `event-delivery/figure-9`: a proxy's response time against the rate of requests (*Event Delivery*, section 7.3).

use std::error::Error;
use std::time::Duration;

use crate::lab::proxy_stage::{self, Crowd, Stage};
use crate::load::HotResult;
use crate::measure::turns::{Found, Turns};
use crate::output::best_peer::{Better, Comparison};
use crate::output::chart::{Axis, Chart, Mark, Series};
use crate::output::report::{Context, Experiment, Report, Row, Takes, median};
use crate::servers::{BESIDE_PEERS, ProxyKind};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "event-delivery/figure-9",
    about: "response time of the proxy, nginx and HAProxy against the rate of requests, with cold connections",
    takes: Takes::RoundsAndSubjects,
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
    notes.push(format!(
        "saturation is {saturation:.0} requests a second: what the proxy by epoll answers in a closed loop of {HOT}"
    ));
    let cells = plan.loads.iter().flat_map(|&load| {
        crowds
            .iter()
            .map(move |&(kind, ref crowd)| Cell { kind, crowd, load })
    });
    let turns = Turns::new(context, plan.rounds, cells, Cell::name)?;
    let found = turns.measure(|cell| {
        let rate = saturation * cell.load;
        cell.crowd.hot(rate, WARM_UP, plan.slice, CONNECTIONS)
    })?;
    Ok(Report {
        title: "response time of proxies with cold connections",
        notes,
        rows: rows(&found),
        charts: vec![
            chart(&found, saturation, MEDIAN, 0.5),
            chart(&found, saturation, P99, 0.99),
        ],
    })
}

/// A proxy at a load, as a share of the saturation.
struct Cell<'a> {
    kind: ProxyKind,
    crowd: &'a Crowd<'a>,
    load: f64,
}

impl Cell<'_> {
    fn name(&self) -> String {
        format!("{}, {}", self.kind.name(), self.at())
    }

    fn at(&self) -> String {
        format!("{:.0} % of saturation", self.load * 100.0)
    }
}

fn rows(found: &Found<Cell<'_>, HotResult>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |metric: &str, unit, of: &dyn Fn(&HotResult) -> Option<f64>| {
        for (cell, results) in found {
            let values: Option<Vec<f64>> = results.iter().map(of).collect();
            if let Some(values) = values {
                let metric = format!("{metric}; {}", cell.at());
                rows.push(Row::of_samples(cell.kind.name(), metric, unit, &values));
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

fn chart(found: &Found<Cell<'_>, HotResult>, saturation: f64, title: &str, share: f64) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for (cell, results) in found {
        let values = results
            .iter()
            .filter_map(|result| latency_us(result, share));
        let values: Vec<f64> = values.collect();
        if values.is_empty() {
            continue;
        }
        let point = (cell.load * saturation, median(&values) / 1e3);
        let name = cell.kind.name();
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series {
                name: name.into(),
                mark: Mark::Line,
                points: vec![point],
            }),
        }
    }
    Chart {
        title: format!("{title}, against the rate of requests"),
        x: Axis::linear("requests a second", 0.0, saturation),
        y: Axis::decades("ms", 0.01, 1000.0),
        series,
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
    slice: Duration::from_secs(2),
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

/// The connections of the clients. Each takes two descriptors beside the cold ones, and `select` can wait for
/// descriptors below 1024 only.
const CONNECTIONS: usize = 100;

/// The time in which the proxies connect to the upstream.
const WARM_UP: Duration = Duration::from_millis(200);

const NOTES: [&str; 5] = [
    "750 cold connections; requests at an even rate, whatever the proxy does, from a client of its own beside the upstream, \
     those of the first 200 ms uncounted; the response time counts from the time at which the request was to be sent",
    "at most 100 requests are outstanding, since select waits for descriptors below 1024 only; what would be one more is \
     not sent and counts as lost, as does one with another status than 200",
    "HAProxy, busy-polling: its manual's option for latency; softclock, epoll, polling: `--signalling poll`. Both look \
     without waiting, and take all of their processor",
    "the client takes more of its processor than the closed loop's: near saturation it is what limits all, and at any rate \
     its pauses of some milliseconds are in the p99 and the requests lost of all proxies",
    "the paper's Figure 9: with the new API the response time is much lower and the proxy saturates later, at 1348 requests \
     a second where the improved select does at 1291",
];
