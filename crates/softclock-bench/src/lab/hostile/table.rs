//! The rows and notes of an experiment with attacks.

use std::error::Error;

use super::subject::{Program, Subject};
use super::trial::{self, Case, Ground, Sample, Stage};
use crate::command;
use crate::output::best_peer::{Better, Comparison};
use crate::output::report::{Context, Report, Row};

/// Runs the cases and reports them.
///
/// # Errors
/// Those of the trials.
pub fn report(
    context: &Context,
    title: &'static str,
    mut cases: Vec<Case>,
    notes: &[&str],
) -> Result<Report, Box<dyn Error>> {
    if let Err(reason) = command::softclock() {
        return Ok(Report::not_measured(title, &reason.to_string()));
    }
    for case in &mut cases {
        keep_installed(&mut case.subjects, context);
    }
    let stage = Stage::build()?;
    let samples = trial::run(context, &stage, &cases)?;
    let rows = cases
        .iter()
        .zip(&samples)
        .flat_map(|(case, samples)| rows(case, samples));
    let mut rows: Vec<Row> = rows.collect();
    rows.extend(BESIDE_PEERS.rows(&rows));
    Ok(Report {
        title,
        rows,
        notes: all_notes(&cases, &stage, notes),
        charts: Vec::new(),
    })
}

/// Compares the service that other clients get under an attack.
const BESIDE_PEERS: Comparison = Comparison {
    is_ours: |variant| variant.starts_with("softclock"),
    is_peer: |variant| !variant.starts_with("softclock"),
    better: |metric| {
        let is_compared = metric.starts_with("p99 under it, ") || metric.starts_with(FAILED);
        is_compared.then_some(Better::Less)
    },
};

const FAILED: &str = "share of requests that failed under it";

/// Removes programs that are not installed and, in a smoke run, all but the first row of each program.
pub fn keep_installed(subjects: &mut Vec<Subject>, context: &Context) {
    subjects.retain(|subject| subject.program.version().is_some());
    if context.smoke {
        subjects.dedup_by_key(|subject| subject.program);
    }
}

/// A row's metric, unit and value.
type Column = (&'static str, &'static str, fn(&Sample) -> f64);

const COLUMNS: [Column; 10] = [
    ("p99 without it, kept connections", "ms", |sample| {
        sample.without.kept.p99_ms
    }),
    ("p50 under it, kept connections", "ms", |sample| {
        sample.under.kept.p50_ms
    }),
    ("p99 under it, kept connections", "ms", |sample| {
        sample.under.kept.p99_ms
    }),
    (
        "p99 under it beside without, kept connections",
        "x",
        |sample| sample.under.kept.p99_ms / sample.without.kept.p99_ms,
    ),
    ("p99 without it, new connections", "ms", |sample| {
        sample.without.new.p99_ms
    }),
    ("p99 under it, new connections", "ms", |sample| {
        sample.under.new.p99_ms
    }),
    (
        "p99 under it beside without, new connections",
        "x",
        |sample| sample.under.new.p99_ms / sample.without.new.p99_ms,
    ),
    (FAILED, "%", |sample| sample.failed * 100.0),
    ("normal again within", "s", |sample| {
        sample.recovery.as_secs_f64()
    }),
    ("server busy under it", "%", |sample| sample.busy * 100.0),
];

fn rows(case: &Case, samples: &[Vec<Sample>]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |metric: &str, unit, of: &dyn Fn(&Sample) -> f64| {
        let metric = format!("{metric}; {}", case.name);
        for (subject, samples) in case.subjects.iter().zip(samples) {
            let values: Vec<f64> = samples.iter().map(of).collect();
            rows.push(Row::of_samples(subject.name, &*metric, unit, &values));
        }
    };
    for (metric, unit, of) in COLUMNS {
        add(metric, unit, &of);
    }
    if let Ground::Proxy(_) = case.ground {
        let metric = "more than none: requests open at the upstream a second after its end";
        add(metric, "", &|sample| sample.open_upstream as f64);
    }
    let rate = |number: u64, sample: &Sample| number as f64 / sample.attack.as_secs_f64();
    let units = format!("sent by the attack: {}", case.units);
    add(&units, "1/s", &|sample| rate(sample.units, sample));
    add("sent by the attack: data", "MB/s", &|sample| {
        rate(sample.bytes, sample) / 1e6
    });
    add(
        "sent by the attack: connections that the server ended",
        "1/s",
        &|sample| rate(sample.ended, sample),
    );
    rows
}

fn all_notes(cases: &[Case], stage: &Stage, own: &[&str]) -> Vec<String> {
    let mut notes: Vec<String> = own.iter().map(ToString::to_string).collect();
    let mut named: Vec<Subject> = Vec::new();
    for subject in cases.iter().flat_map(|case| &case.subjects) {
        if named.iter().all(|other| other.name != subject.name) {
            named.push(*subject);
        }
    }
    notes.extend(named.iter().filter_map(settings_note));
    let used = |program: &Program| named.iter().any(|subject| subject.program == *program);
    // Name the programs of the rows, and those that are missing.
    let mentioned = |program: &Program| used(program) || program.version().is_none();
    notes.extend((Program::ALL.into_iter().filter(mentioned)).map(Program::note));
    notes.extend(NOTES.map(str::to_owned));
    let is_files = |case: &Case| !matches!(case.ground, Ground::Proxy(_));
    notes.push(
        if cases.iter().any(is_files) {
            FILES
        } else {
            PROXIES
        }
        .to_owned(),
    );
    if !stage.processors.are_two() {
        notes.push("server and clients share a processor, as there is only one".to_owned());
    }
    notes
}

/// Returns a note with the settings behind a row's name.
fn settings_note(subject: &Subject) -> Option<String> {
    let words: Vec<&str> = subject.settings.split_whitespace().collect();
    (!words.is_empty()).then(|| format!("\"{}\" has: {}", subject.name, words.join(" ")))
}

const NOTES: [&str; 3] = [
    "the server has one processor; the attackers (SCHED_IDLE), the victim and the upstream share the other; one \
     worker or thread each; each pair of phases, of 2 s each, has a server of its own, and the servers take turns",
    "the victim sends 300 requests a second on 4 kept connections and 100 on a new one each (a tenth of that for metrics), \
     in an open loop; a request that fails, or has another status than 200, counts as its patience, 2 s",
    "normal is a step of half a second without failures and with a p99 of at most 3 times that without the attack, or 5 ms; \
     the time counts to the step's end, and ends at 10 s; an attacker whose connection is ended makes another after 100 ms",
];

const FILES: &str = "all servers run under a limit of 1024 open files; nginx has sendfile and tcp_nopush on and 768 \
     worker_connections, as Debian sets it up, reuseport and multi_accept; the rest are defaults";

const PROXIES: &str = "softclock has --max-requests, nginx max_conns and 1024 kept connections, HAProxy maxconn of its \
     server, the same for all; HAProxy has timeout http-request 10s, as its manual asks for; the rest are defaults";
