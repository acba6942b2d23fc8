//! `servers/static`: `softclock serve` beside nginx and Caddy, one worker each, with small and large files under `wrk`.
//!
//! The main measure is the processor time of the server's processes, because the throughput also depends on the
//! processor time that the clients take.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use softclock::fs::raise_descriptor_limit;

use crate::load::closed_loop::{Load, Target};
use crate::measure::processors::Processors;
use crate::measure::slice::Slice;
use crate::output::best_peer::{Better, Comparison};
use crate::output::report::{Context, Experiment, Report, Row, Takes};
use crate::servers::{Kind, Server, readable_by_all};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "servers/static",
    about: "softclock serve beside nginx and Caddy: processor time, throughput and latency of static files",
    takes: Takes::Nothing,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    // Child processes inherit the limit.
    raise_descriptor_limit();
    let directory = tempfile::tempdir()?;
    write_files(directory.path())?;
    let bench = Bench {
        processors: Processors::detect(),
        load: Load::detect(),
        slice: plan.slice,
    };
    let servers = bench.start(directory.path())?;
    let cases = plan.cases();
    let mut samples: Vec<Vec<Vec<Slice>>> = cases
        .iter()
        .map(|_| servers.iter().map(|_| Vec::new()).collect())
        .collect();
    let total = plan.rounds * cases.len() * servers.len();
    let mut done = 0;
    for round in 0..plan.rounds {
        for (case, samples) in cases.iter().zip(&mut samples) {
            for turn in 0..servers.len() {
                // Rotate the order, so that no server always runs first.
                let index = (round + turn) % servers.len();
                let (kind, server) = &servers[index];
                let what = format!("{}: {}", kind.name(), case.name());
                let sample = context.round(done, total, &what, || bench.measure(server, case));
                let sample = sample.map_err(|error| format!("{}: {error}", kind.name()))?;
                samples[index].push(sample);
                done += 1;
            }
        }
    }
    context.progress(1, 1, "");
    let kinds: Vec<Kind> = servers.iter().map(|(kind, _)| *kind).collect();
    let rows = cases
        .iter()
        .zip(&samples)
        .flat_map(|(case, samples)| case_rows(case, &kinds, samples));
    let mut rows: Vec<Row> = rows.collect();
    rows.extend(BESIDE_PEERS.rows(&rows));
    Ok(Report {
        title: "static files: softclock serve beside nginx and Caddy",
        rows,
        notes: notes(&bench, &kinds, &samples),
        charts: Vec::new(),
    })
}

/// A file, and the way in which the clients request it.
struct Case {
    file: &'static File,
    keep_alive: bool,
    connections: usize,
}

struct File {
    name: &'static str,
    path: &'static str,
    bytes: usize,
}

impl Case {
    fn name(&self) -> String {
        let kept = if self.keep_alive {
            "keep-alive"
        } else {
            "one connection a request"
        };
        format!("{}, {kept}, {} at a time", self.file.name, self.connections)
    }
}

struct Bench {
    processors: Processors,
    load: Load,
    slice: Duration,
}

impl Bench {
    /// Starts all installed servers. They keep running, idle while others are measured.
    fn start(&self, root: &Path) -> Result<Vec<(Kind, Server)>, Box<dyn Error>> {
        // Servers that are not installed are only noted.
        let installed = Kind::ALL
            .into_iter()
            .filter(|kind| kind.version().is_some());
        let start = |kind: Kind| {
            let started = self
                .processors
                .on(self.processors.server, || kind.start(root));
            match started {
                Ok(server) => Ok((kind, server)),
                Err(error) => Err(format!("{}: {error}", kind.name()).into()),
            }
        };
        installed.map(start).collect()
    }

    fn measure(&self, server: &Server, case: &Case) -> io::Result<Slice> {
        let target = Target {
            address: server.address(),
            path: case.file.path,
            connections: case.connections,
            keep_alive: case.keep_alive,
        };
        Slice::measure(server, &target, self.load, &self.processors, self.slice)
    }
}

fn write_files(directory: &Path) -> io::Result<()> {
    readable_by_all(directory)?;
    for file in [&SMALL, &PAPERS, &LARGE] {
        let path = directory.join(file.path.trim_start_matches('/'));
        fs::write(path, vec![b'x'; file.bytes])?;
    }
    Ok(())
}

fn case_rows(case: &Case, kinds: &[Kind], samples: &[Vec<Slice>]) -> Vec<Row> {
    let name = case.name();
    let mut rows = Vec::new();
    let mut add = |metric: &str, unit, of: &dyn Fn(&Slice) -> Option<f64>| {
        for (kind, samples) in kinds.iter().zip(samples) {
            let values: Option<Vec<f64>> = samples.iter().map(of).collect();
            if let Some(values) = values {
                let metric = format!("{metric}; {name}");
                rows.push(Row::of_samples(kind.name(), metric, unit, &values));
            }
        }
    };
    add("processor time a request", "us", &|sample| {
        Some(sample.cpu_us_per_request())
    });
    add(EFFICIENCY, "1/s", &|sample| {
        Some(sample.requests_per_cpu_second())
    });
    add(THROUGHPUT, "1/s", &|sample| {
        Some(sample.requests_per_second())
    });
    add(LATENCY, "ms", &Slice::p99_ms);
    rows
}

const BESIDE_PEERS: Comparison = Comparison {
    is_ours: |variant| variant == Kind::Softclock.name(),
    is_peer: |variant| variant != Kind::Softclock.name(),
    better,
};

/// What is better of a metric of servers.
pub(in crate::experiments) fn better(metric: &str) -> Option<Better> {
    match metric.split_once(';')?.0 {
        EFFICIENCY | THROUGHPUT => Some(Better::More),
        LATENCY => Some(Better::Less),
        _ => None,
    }
}

pub(in crate::experiments) const EFFICIENCY: &str = "requests a processor second";
pub(in crate::experiments) const THROUGHPUT: &str = "requests a second";
pub(in crate::experiments) const LATENCY: &str = "latency, p99";

fn notes(bench: &Bench, kinds: &[Kind], samples: &[Vec<Vec<Slice>>]) -> Vec<String> {
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    notes.push(bench.load.note().to_owned());
    if !bench.processors.are_two() {
        notes.push("servers and clients share a processor, as there is only one".to_owned());
    }
    let mut packages: Vec<(&str, Option<String>)> = Vec::new();
    for kind in Kind::ALL {
        if let Some(package) = kind.package()
            && packages.last().is_none_or(|(last, _)| *last != package)
        {
            packages.push((package, kind.version()));
        }
    }
    for (package, version) in packages {
        notes.push(match version {
            Some(version) => format!("{package} {version}"),
            None => {
                format!("{package} is not installed (Debian's package {package}): not measured")
            }
        });
    }
    for (index, kind) in kinds.iter().enumerate() {
        let errors = samples.iter().flat_map(|case| &case[index]);
        let errors: u64 = errors.map(|sample| sample.outcome.errors).sum();
        if errors > 0 {
            notes.push(format!(
                "{}: {errors} connections failed or timed out",
                kind.name()
            ));
        }
    }
    notes
}

struct Plan {
    slice: Duration,
    rounds: usize,
    files: &'static [&'static File],
    keep_alive: &'static [bool],
    connections: &'static [usize],
}

impl Plan {
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for file in self.files {
            for &keep_alive in self.keep_alive {
                cases.extend(self.connections.iter().map(|&connections| Case {
                    file,
                    keep_alive,
                    connections,
                }));
            }
        }
        cases
    }
}

const FULL: Plan = Plan {
    slice: Duration::from_secs(1),
    rounds: 5,
    files: &[&SMALL, &PAPERS, &LARGE],
    keep_alive: &[true, false],
    connections: &[64, 512],
};

const SMOKE: Plan = Plan {
    slice: Duration::from_millis(200),
    rounds: 1,
    files: &[&PAPERS],
    keep_alive: &[true, false],
    connections: &[16],
};

const SMALL: File = File {
    name: "1 KB",
    path: "/small.html",
    bytes: 1 << 10,
};

/// The paper's file size.
const PAPERS: File = File {
    name: "6 KB",
    path: "/papers.html",
    bytes: 6 << 10,
};

const LARGE: File = File {
    name: "1 MB",
    path: "/large.html",
    bytes: 1 << 20,
};

const NOTES: [&str; 6] = [
    "one worker each, on one processor, the clients on another; no access log; each server has its defaults but for what its \
     name says; nginx has multi_accept on, too, and no limit of requests a connection; Caddy has GOMAXPROCS=1",
    "nginx: tcp_nopush and sendfile are on in Debian's nginx.conf; sendfile off with open_file_cache is its best for files \
     that fit into its buffer with their head (output_buffers, 2 of 32 KB), with both on its best for large ones",
    "softclock keeps small files in memory and looks at them again after a second; nginx's nearest to that is \
     open_file_cache, here with open_file_cache_valid 1s, which keeps files open, not their content",
    "processor time is utime and stime of the server's processes over a slice of a second; work that the kernel does for \
     them in interrupts on the clients' processor is not in it",
    "a response that was under way at the end of a slice counts for the part that had come",
    "the servers take turns in short slices; medians of rounds, and ratios to the best peer's slice of the same round",
];
