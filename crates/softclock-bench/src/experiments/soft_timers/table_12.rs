//! `soft-timers/table-12`: a web server by interrupts and by soft polls of several aggregation quotas (*Soft Timers*, 5.8,
//! Table XII).

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use softclock::signalling::{LatencyBound, Policy, Quota};

use super::super::signalling::comparisons::comparisons;
use crate::lab::tcp::{
    File, Load, PAPERS, Placement, Sample, Stage, Subject, check, versions, write_files,
};
use crate::load::closed_loop;
use crate::output::best_peer::{Better, Comparison};
use crate::output::report::{Context, Experiment, Report, Row};
use crate::servers::nginx::Files;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/table-12",
    about: "Table XII: requests of 6 KB by interrupts and by soft polls, one connection a request and persistent, beside nginx",
    run,
};

const TITLE: &str = "network polling: throughput on requests of 6 KB";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    if let Err(reason) = check() {
        return Ok(Report::not_measured(TITLE, &reason));
    }
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let root = tempfile::tempdir()?;
    write_files(root.path(), &[FILE])?;
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    notes.push(closed_loop::Load::detect().note().to_owned());
    notes.push(versions());
    let mut subjects: Vec<(Subject, Vec<[Sample; 2]>)> = Vec::new();
    for subject in subjects_of(context.smoke) {
        match subject.check() {
            Ok(()) => subjects.push((subject, Vec::new())),
            Err(reason) => notes.push(format!("{}: not measured: {reason}", subject.name())),
        }
    }
    if let Some(only) = &context.only {
        subjects.retain(|(subject, _)| subject.name().contains(only));
        if subjects.is_empty() {
            return Err(format!("no server of the experiment has {only:?} in its name").into());
        }
    }
    let rounds = context.rounds.unwrap_or(plan.rounds).max(1);
    let (total, count) = (rounds * subjects.len(), subjects.len());
    for round in 0..rounds {
        for turn in 0..count {
            // Rotate the order, so that no server always runs first.
            let (subject, samples) = &mut subjects[(round + turn) % count];
            let what = subject.name();
            let measure = || measure(*subject, root.path(), plan);
            let measured = context.round(round * count + turn, total, &what, measure);
            samples.push(measured.map_err(|error| format!("{what}: {error}"))?);
        }
    }
    context.progress(total, total, "");
    let mut rows = rows(&subjects);
    let ratios = comparisons(&rows, better);
    let beside_nginx = BESIDE_NGINX.rows(&rows);
    rows.extend(ratios);
    rows.extend(beside_nginx);
    Ok(Report {
        title: TITLE,
        notes,
        rows,
        charts: Vec::new(),
    })
}

fn subjects_of(is_smoke: bool) -> Vec<Subject> {
    let bound = LatencyBound::default();
    let quota = |packets| Quota::packets(packets).expect("within the range");
    let soft_poll = |quota| Subject::Signalled(Policy::SoftPoll { quota, bound });
    let mut subjects = vec![Subject::Signalled(Policy::Interrupt)];
    let quotas: &[u32] = if is_smoke { &[5] } else { &QUOTAS };
    subjects.extend(quotas.iter().map(|&packets| soft_poll(quota(packets))));
    if !is_smoke {
        subjects.push(soft_poll(Quota::AUTOMATIC));
        subjects.push(Subject::Signalled(Policy::default()));
        subjects.push(Subject::Nginx(Files::SendfileCached, Placement::Rps));
        subjects.push(Subject::Nginx(Files::ReadCached, Placement::ThreadedNapi));
    }
    subjects.push(Subject::Nginx(Files::ReadCached, Placement::Rps));
    subjects
}

/// One connection a request, and persistent connections.
fn measure(subject: Subject, root: &Path, plan: &Plan) -> io::Result<[Sample; 2]> {
    let stage = Stage::new(subject, root, plan.connections)?;
    let load = |keep_alive, slice| {
        stage.load(&Load {
            file: FILE,
            connections: plan.connections,
            keep_alive,
            slice,
        })
    };
    // Warms the file cache and the server's allocations.
    load(true, plan.slice / 8)?;
    Ok([load(false, plan.slice)?, load(true, plan.slice)?])
}

fn rows(subjects: &[(Subject, Vec<[Sample; 2]>)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (place, kind) in [HTTP, PERSISTENT].into_iter().enumerate() {
        for (metric, unit, of) in METRICS {
            for (subject, samples) in subjects {
                let values = samples.iter().filter_map(|sample| of(&sample[place]));
                let values: Vec<f64> = values.collect();
                if values.is_empty() {
                    continue;
                }
                let metric = format!("{metric}; {kind}");
                let mut row = Row::of_samples(subject.name(), metric, unit, &values);
                if row.metric.starts_with(THROUGHPUT) {
                    row.paper = paper(*subject, place);
                }
                rows.push(row);
            }
        }
    }
    rows
}

type Metric = (&'static str, &'static str, fn(&Sample) -> Option<f64>);

const METRICS: [Metric; 3] = [
    (THROUGHPUT, "1/s", |sample| {
        Some(sample.requests_per_second())
    }),
    (EFFICIENCY, "1/s", Sample::requests_per_busy_second),
    ("latency, p99", "us", |sample| {
        Some(sample.outcome.p99?.as_secs_f64() * 1e6)
    }),
];

fn better(metric: &str) -> Option<Better> {
    let is_rate = metric.starts_with(THROUGHPUT) || metric.starts_with(EFFICIENCY);
    is_rate.then_some(Better::More)
}

const BESIDE_NGINX: Comparison = Comparison {
    is_ours: Subject::is_stack,
    is_peer: |variant| !Subject::is_stack(variant),
    better,
};

/// The paper's throughput of Flash: the rows of Table XII, of which the copy lacks a value.
fn paper(subject: Subject, place: usize) -> Option<f64> {
    const INTERRUPT: [f64; 2] = [1376.0, 4439.0];
    const SOFT_POLL: [[Option<f64>; 5]; 2] = [
        [Some(1620.0), Some(1690.0), Some(1702.0), Some(1719.0), None],
        [
            Some(4816.0),
            Some(5071.0),
            Some(5271.0),
            Some(5376.0),
            Some(5498.0),
        ],
    ];
    match subject {
        Subject::Signalled(Policy::Interrupt) => Some(INTERRUPT[place]),
        Subject::Signalled(Policy::SoftPoll { quota, .. }) => {
            let packets = quota.fixed()?;
            let column = QUOTAS.iter().position(|&of| of == packets)?;
            SOFT_POLL[place][column]
        }
        _ => None,
    }
}

/// The paper's aggregation quotas.
const QUOTAS: [u32; 5] = [1, 2, 5, 10, 15];

const THROUGHPUT: &str = "requests a second";
const EFFICIENCY: &str = "requests a busy second of the server's processor";
const HTTP: &str = "one connection a request";
const PERSISTENT: &str = "persistent connections";
const FILE: File = PAPERS;

struct Plan {
    connections: usize,
    slice: Duration,
    rounds: usize,
}

const FULL: Plan = Plan {
    connections: 64,
    slice: Duration::from_secs(1),
    rounds: 9,
};

const SMOKE: Plan = Plan {
    connections: 8,
    slice: Duration::from_millis(120),
    rounds: 1,
};

const NOTES: [&str; 6] = [
    "a virtual link has no device interrupt: the wake-up of the server's thread stands for it; a server that is never out of work \
     does not wait, so that policies are level where it is saturated, as it is here",
    "server on processor 1, clients on processor 0, veth between two namespaces, anew for each round; 64 requests at a time; the \
     receive work of the server's link takes place on the server's processor, and counts as the server's",
    "softclock: softclock serve on its own stack by AF_XDP with SOFT-LRP, one thread, its defaults but for --signalling; a look \
     costs no system call; the latency bound is 100 us",
    "nginx on the kernel: one worker, keepalive_requests without limit, access_log off, multi_accept, listen reuseport, tcp_nopush \
     with sendfile, open_file_cache valid for 1 s; RPS to its processor, or threaded NAPI with GRO; IRQ suspension \
     (irq-suspend-timeout) is not measured: veth has no interrupt that could be suspended",
    "the paper's numbers are those of its server Flash on a Pentium III of 500 MHz; with a quota of 15 and one connection a \
     request, the number is not in the copy that this project has",
    "a busy second: in which the server's processor was not idle (/proc/stat, in steps of 10 ms)",
];
