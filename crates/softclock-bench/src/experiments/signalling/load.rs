//! `signalling/load`: processor time and latency of a web server at shares of its capacity, by policy of signalling.

use std::error::Error;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use softclock::signalling::Policy;

use super::policies;
use crate::lab::signalling::policy_name;
use crate::lab::tcp::{File, Load, Offered, PAPERS, Stage, Subject, check, write_files};
use crate::load::closed_loop;
use crate::measure::turns::{Found, Turns};
use crate::output::metric::{self, Metric};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "signalling/load",
    about: "processor time and latency of softclock serve at 0 to 100 % of its capacity, by policy of signalling",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "a web server at shares of its capacity";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    if let Err(reason) = check() {
        return Ok(Report::not_measured(TITLE, &reason));
    }
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let root = tempfile::tempdir()?;
    write_files(root.path(), &[plan.file])?;
    let policies = match context.smoke {
        true => policies::few(),
        false => policies::all(),
    };
    let mut turns = Turns::new(context, plan.rounds, policies, |&policy| {
        policy_name(policy)
    })?;
    for round in 0..turns.rounds() as u64 {
        // With interrupts, so that all policies are offered the same.
        let capacity = capacity(root.path(), plan)?;
        turns.round(|&policy| measure(policy, root.path(), capacity, round, plan))?;
    }
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    notes.push(closed_loop::Load::detect().note().to_owned());
    Ok(Report {
        title: TITLE,
        notes,
        rows: rows(&turns.end(), plan),
        charts: Vec::new(),
    })
}

/// A round of one policy.
struct Round {
    /// The share of a processor that the server's process takes without requests.
    idle: f64,
    /// One for each share of the plan.
    offered: Vec<Offered>,
    /// Requests a second that the clients get from a server that is always busy, and the processor time of each.
    most: (f64, f64),
}

/// The requests a second of a closed loop, with interrupts.
fn capacity(root: &Path, plan: &Plan) -> io::Result<f64> {
    let stage = Stage::new(
        Subject::Signalled(Policy::Interrupt),
        root,
        plan.connections,
    )?;
    stage.load(&plan.load(plan.slice / 4))?;
    Ok(stage.load(&plan.load(plan.slice))?.requests_per_second())
}

fn measure(
    policy: Policy,
    root: &Path,
    capacity: f64,
    round: u64,
    plan: &Plan,
) -> io::Result<Round> {
    let stage = Stage::new(Subject::Signalled(policy), root, plan.connections)?;
    // Warms the file cache and the server's allocations.
    stage.load(&plan.load(plan.slice / 8))?;
    thread::sleep(plan.settle);
    let (before, begun) = (stage.server.run_time()?, Instant::now());
    thread::sleep(plan.slice);
    let ran = stage.server.run_time()?.saturating_sub(before);
    let idle = ran.as_secs_f64() / begun.elapsed().as_secs_f64();
    let offer = |&share: &f64| {
        // Longer for few requests, as busy time is counted in steps of 10 ms.
        let slice = if share < 0.2 {
            2 * plan.slice
        } else {
            plan.slice
        };
        stage.offer(&plan.load(slice), share * capacity, round + 1)
    };
    let offered = plan.shares.iter().map(offer).collect::<io::Result<_>>()?;
    let most = stage.load(&plan.load(plan.slice))?;
    let busy = most.requests_per_busy_second().unwrap_or(f64::INFINITY);
    Ok(Round {
        idle,
        offered,
        most: (most.requests_per_second(), 1.0 / busy),
    })
}

fn rows(found: &Found<Policy, Round>, plan: &Plan) -> Vec<Row> {
    let of_rounds = || {
        let variants = found.iter();
        variants.map(|(policy, rounds)| (policy_name(*policy), rounds.iter().collect()))
    };
    let mut rows = metric::rows(&WITHOUT_REQUESTS, "", of_rounds());
    for (place, share) in plan.shares.iter().enumerate() {
        let setting = format!("{:.0} % of the capacity", 100.0 * share);
        let of_share = found.iter().map(|(policy, rounds)| {
            let offered = rounds.iter().map(|round| &round.offered[place]);
            (policy_name(*policy), offered.collect())
        });
        rows.extend(metric::rows(&AT_SHARES, &setting, of_share));
    }
    rows.extend(metric::rows(&AT_CAPACITY, "100 %", of_rounds()));
    rows
}

const WITHOUT_REQUESTS: [Metric<Round>; 1] =
    [("share of a processor without requests", "%", |round| {
        Some(100.0 * round.idle)
    })];

const AT_SHARES: [Metric<Offered>; 4] = [
    ("processor time a request", "us", |offered| {
        Some(offered.busy_per_request() * 1e6)
    }),
    ("busy part of the server's processor", "%", |offered| {
        Some(100.0 * offered.busy.as_secs_f64() / offered.answered.elapsed.as_secs_f64())
    }),
    ("latency, p50", "us", |offered| {
        Some(offered.answered.latency.value_at_quantile(0.5) as f64 / 1e3)
    }),
    ("latency, p99", "us", |offered| {
        Some(offered.answered.latency.value_at_quantile(0.99) as f64 / 1e3)
    }),
];

const AT_CAPACITY: [Metric<Round>; 2] = [
    ("requests a second", "1/s", |round| Some(round.most.0)),
    ("processor time a request", "us", |round| {
        Some(round.most.1 * 1e6)
    }),
];

struct Plan {
    file: File,
    connections: usize,
    /// Of the capacity.
    shares: &'static [f64],
    settle: Duration,
    slice: Duration,
    rounds: usize,
}

impl Plan {
    fn load(&self, slice: Duration) -> Load {
        Load {
            file: self.file,
            connections: self.connections,
            keep_alive: true,
            slice,
        }
    }
}

const FULL: Plan = Plan {
    file: PAPERS,
    connections: 64,
    shares: &[0.01, 0.1, 0.2, 0.5, 0.8],
    settle: Duration::from_millis(300),
    slice: Duration::from_secs(1),
    rounds: 3,
};

const SMOKE: Plan = Plan {
    file: PAPERS,
    connections: 4,
    shares: &[0.1],
    settle: Duration::ZERO,
    slice: Duration::from_millis(80),
    rounds: 1,
};

const NOTES: [&str; 6] = [
    "a virtual link has no device interrupt: the wake-up of the server's thread stands for it",
    "server on processor 1 on its own stack by AF_XDP with SOFT-LRP, clients on processor 0; the receive work of the server's \
     link takes place in a kernel thread on the server's processor, of the same priority, and counts as the server's",
    "6 KB, 64 persistent connections; requests at random times (a Poisson process), from a client that never sleeps; \
     latency counts from the time at which a request was due",
    "100 %: a closed loop on the 64 connections; the capacity is that of interrupts in the same round",
    "processor time: in which the server's processor was not idle (/proc/stat, in steps of 10 ms); without requests: that of \
     the server's threads (schedstat)",
    "the latency bound of soft-poll and automatic is 100 us unless the name has another",
];
