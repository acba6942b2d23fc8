//! `signalling/livelock`: throughput against offered load (*LRP*, Figure 3), by policy of signalling.
//!
//! A flood of datagrams of 14 bytes reaches one receiver, which works for 10 us on each and discards it. From some load
//! on, a receiver that each frame interrupts delivers less the more it is offered (receive livelock).

use std::error::Error;
use std::io;
use std::time::Duration;

use softclock::signalling::Policy;

use super::super::cells::{self, Cell};
use super::super::lrp::figure_3;
use super::comparisons::comparisons;
use super::policies;
use crate::lab::lrp::{Level, Rates};
use crate::lab::signalling::{Sink, policy_name};
use crate::output::best_peer::Better;
use crate::output::metric::Metric;
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "signalling/livelock",
    about: "datagrams delivered against datagrams offered, up to the most that a flood can send, by policy of signalling",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "throughput against offered load, by policy";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let policies = match context.smoke {
        true => policies::few(),
        false => policies::all(),
    };
    let cells = LEVELS.iter().flat_map(|&(level, setting)| {
        policies.iter().map(move |&policy| Cell {
            variant: policy_name(policy),
            setting: setting.to_owned(),
            content: (policy, level),
        })
    });
    let mut report = cells::report(
        context,
        (TITLE, &NOTES),
        (cells.collect(), plan.rounds),
        &METRICS,
        |&(policy, level)| measure(policy, level, plan).map(|sweep| vec![sweep]),
        |found| {
            let chart = |(level, setting): &(Level, &str)| {
                let of_level = found.iter().filter(|(cell, _)| cell.content.1 == *level);
                let sweeps = of_level.map(|(cell, sweeps)| {
                    let points = sweeps.iter().map(|sweep| &sweep.0[..]).collect();
                    (cell.variant.clone(), points)
                });
                figure_3::chart_of(
                    format!("delivered against offered; {setting}"),
                    sweeps.collect(),
                )
            };
            LEVELS.iter().map(chart).collect()
        },
    )?;
    let ratios = comparisons(&report.rows, |metric| {
        let is_rate = metric.starts_with("most delivered")
            || metric.starts_with("delivered at the highest load; ");
        is_rate.then_some(Better::More)
    });
    report.rows.extend(ratios);
    Ok(report)
}

/// The rates at each offered load of a plan, in one round.
struct Sweep(Vec<Rates>);

fn measure(policy: Policy, level: Level, plan: &Plan) -> io::Result<Sweep> {
    let sink = Sink::start(policy, WORK, level)?;
    let rates = plan.offered.iter();
    let rates = rates.map(|&rate| sink.rates(rate, plan.settle, plan.slice));
    rates.collect::<io::Result<_>>().map(Sweep)
}

impl Sweep {
    fn most(&self) -> f64 {
        let delivered = self.0.iter().map(|rates| rates.delivered);
        delivered.fold(1.0, f64::max)
    }

    fn last(&self) -> Rates {
        self.0.last().copied().unwrap_or_default()
    }
}

const METRICS: [Metric<Sweep>; 5] = [
    ("most delivered", "k/s", |sweep| Some(sweep.most() / 1e3)),
    ("offered at the highest load", "k/s", |sweep| {
        Some(sweep.last().offered / 1e3)
    }),
    ("delivered at the highest load", "k/s", |sweep| {
        Some(sweep.last().delivered / 1e3)
    }),
    (
        "delivered at the highest load, as share of the most",
        "%",
        |sweep| Some(100.0 * sweep.last().delivered / sweep.most()),
    ),
    (
        "lost in the ring of the link at the highest load, as share of offered",
        "%",
        |sweep| Some(100.0 * sweep.last().ring / sweep.last().offered.max(1.0)),
    ),
];

/// The levels of the kernel thread that moves frames from the link to the stack, and their names.
const LEVELS: [(Level, &str); 2] = [
    (Level::Nice(0), "link's work at the receiver's priority"),
    (Level::RealTime(20), "link's work before the receiver"),
];

struct Plan {
    /// Offered rates, in ascending order.
    offered: &'static [u64],
    settle: Duration,
    slice: Duration,
    rounds: usize,
}

const FULL: Plan = Plan {
    offered: &[
        20_000, 40_000, 60_000, 80_000, 100_000, 150_000, 200_000, 300_000, 500_000, 1_000_000,
    ],
    settle: Duration::from_millis(80),
    slice: Duration::from_millis(220),
    rounds: 3,
};

const SMOKE: Plan = Plan {
    offered: &[20_000, 100_000],
    settle: Duration::from_millis(20),
    // A policy that waits for milliseconds delivers something in it, also on a busy machine.
    slice: Duration::from_millis(200),
    rounds: 1,
};

const WORK: Duration = Duration::from_micros(10);

const NOTES: [&str; 5] = [
    "a virtual link has no device interrupt: the wake-up of the receiver's thread stands for it; a receiver that is never out of \
     work does not wait, so that policies are level where it is saturated",
    "flood on processor 0, all receive work on processor 1: that of the link by a kernel thread (threaded NAPI), and the \
     receiver's, which is a runtime with its own stack by AF_XDP with SOFT-LRP; the policy says when the receiver looks at the \
     rings of AF_XDP, and no policy stops the kernel thread",
    "link's work before the receiver: the kernel thread is SCHED_FIFO, as an interrupt; the kernel leaves 5 % of the time to \
     ordinary threads",
    "the receiver works for 10 us on each datagram; frames arrive in bursts each 200 us; offered: frames that reach the \
     receiver's end of veth or are lost there because its ring of 256 is full",
    "the latency bound of soft-poll and automatic is 100 us unless the name has another",
];
