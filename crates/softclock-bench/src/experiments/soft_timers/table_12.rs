//! `soft-timers/table-12`: a web server by interrupts and by soft polls of several aggregation quotas (*Soft Timers*,
//! 5.8, Table XII).

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
use crate::measure::turns::{Found, Turns};
use crate::output::best_peer::{Better, Comparison};
use crate::output::metric::{self, Metric};
use crate::output::report::{Context, Experiment, Report, Row, Takes};
use crate::servers::nginx::Files;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/table-12",
    about: "Table XII: requests of 6 KB by interrupts and by soft polls, one connection a request and persistent, beside nginx",
    takes: Takes::RoundsAndSubjects,
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
    let mut subjects = Vec::new();
    for subject in subjects_of(context.smoke) {
        match subject.check() {
            Ok(()) => subjects.push(subject),
            Err(reason) => notes.push(format!("{}: not measured: {reason}", subject.name())),
        }
    }
    let turns = Turns::new(context, plan.rounds, subjects, |subject| subject.name())?;
    let found = turns.measure(|&subject| measure(subject, root.path(), plan))?;
    let mut rows = rows(&found);
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

fn rows(found: &Found<Subject, [Sample; 2]>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (place, kind) in [HTTP, PERSISTENT].into_iter().enumerate() {
        let variants = found.iter().map(|(subject, samples)| {
            let samples = samples.iter().map(|sample| &sample[place]);
            (subject.name(), samples.collect())
        });
        let mut of_kind = metric::rows(&METRICS, kind, variants);
        for row in &mut of_kind {
            let mut subjects = found.iter().map(|(subject, _)| *subject);
            let subject = subjects.find(|subject| subject.name() == row.variant);
            if row.metric.starts_with(THROUGHPUT) {
                row.paper = subject.and_then(|subject| paper(subject, place));
            }
        }
        rows.extend(of_kind);
    }
    rows
}

const METRICS: [Metric<Sample>; 3] = [
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
