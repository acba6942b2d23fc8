//! `tcp/serve`: `softclock serve` on its own stack, the same server on the kernel, and nginx, over the same veth.
//!
//! The measure is requests for a second in which the server's processor is busy, which counts all work for the server:
//! its process, the receive work of its link, and the kick by which AF_XDP sends.

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use softclock::fs::raise_descriptor_limit;
use softclock_net::stack::Architecture;

use super::super::servers::static_files::{EFFICIENCY, LATENCY, THROUGHPUT, better};
use crate::lab::tcp::{
    Carrier, File, IdleClients, Load, Memory, PAPERS, Placement, SMALL, Sample, Stage, Subject,
    check, versions, write_files,
};
use crate::load::closed_loop;
use crate::measure::turns::{Found, Turns};
use crate::output::best_peer::Comparison;
use crate::output::metric::Metric;
use crate::output::report::{Context, Experiment, Report, Row, Takes};
use crate::servers::nginx::Files;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "tcp/serve",
    about: "softclock serve on its own stack and on the kernel, and nginx: requests a processor second, with idle connections",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "a web server on its own stack and on the kernel";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    if let Err(reason) = check() {
        return Ok(Report::not_measured(TITLE, &reason));
    }
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let root = tempfile::tempdir()?;
    write_files(root.path(), plan.files)?;
    let mut notes = notes();
    let groups = groups(plan, root.path(), &mut notes);
    let turns = Turns::new(context, plan.rounds, groups, Group::name)?;
    let found = turns.measure(|group| group.measure(root.path(), plan))?;
    let complaints = found
        .iter()
        .filter_map(|(group, samples)| group.complaint(samples));
    notes.extend(complaints);
    let mut rows = cell_rows(&found, plan);
    rows.extend(BESIDE_PEERS.rows(&rows));
    rows.extend(beside_none_idle(&rows, plan));
    rows.extend(memory_rows(&found));
    Ok(Report {
        title: TITLE,
        notes,
        rows,
        charts: Vec::new(),
    })
}

/// A server with a number of idle connections, which is started anew in each round.
struct Group {
    subject: Subject,
    idle: usize,
}

struct GroupSample {
    /// One for each cell of the plan.
    cells: Vec<Sample>,
    /// Without idle connections, and with them.
    memory: [Memory; 2],
    /// The share of idle connections that were open at the end.
    share_open: f64,
}

impl Group {
    fn name(&self) -> String {
        format!("{}, {} idle", self.subject.name(), self.idle)
    }

    fn measure(&self, root: &Path, plan: &Plan) -> io::Result<GroupSample> {
        let stage = Stage::new(self.subject, root, self.idle + plan.most_at_a_time())?;
        // For the files and the memory that a server keeps.
        let warm = Load {
            slice: plan.slice / 8,
            ..plan.cells()[0]
        };
        stage.load(&warm)?;
        let before = stage.memory()?;
        let idle = IdleClients::connect(&stage, self.idle)?;
        let after = stage.memory()?;
        let cells = plan.cells();
        let cells = cells.iter().map(|load| stage.load(load));
        Ok(GroupSample {
            cells: cells.collect::<io::Result<_>>()?,
            memory: [before, after],
            share_open: idle.share_open(&stage)?,
        })
    }

    /// The sentence about failed requests and lost connections, if there were any.
    fn complaint(&self, samples: &[GroupSample]) -> Option<String> {
        let cells = samples.iter().flat_map(|sample| &sample.cells);
        let errors: u64 = cells.map(|sample| sample.outcome.errors).sum();
        let open = samples.iter().map(|sample| sample.share_open);
        let open = open.fold(1.0, f64::min);
        let is_idle_lost = self.idle > 0 && open < 1.0;
        (errors > 0 || is_idle_lost).then(|| {
            format!(
                "{}, {} idle: {errors} requests failed or timed out, and of the idle connections {:.0} % were open at the \
                 end",
                self.subject.name(),
                self.idle,
                open * 100.0
            )
        })
    }
}

/// The groups that this machine can measure. `notes` gets the reasons for the others.
fn groups(plan: &Plan, root: &Path, notes: &mut Vec<String>) -> Vec<Group> {
    let mut groups = Vec::new();
    let descriptors = raise_descriptor_limit();
    for &subject in plan.subjects {
        if let Err(reason) = subject.check().and_then(|()| answers(subject, root, plan)) {
            notes.push(format!("{}: not measured: {reason}", subject.name()));
            continue;
        }
        for &idle in plan.idle {
            if !subject.holds(idle + plan.most_at_a_time(), descriptors) {
                notes.push(format!(
                    "{}: {idle} idle connections are not measured: the process may have {descriptors} descriptors",
                    subject.name()
                ));
                continue;
            }
            groups.push(Group { subject, idle });
        }
    }
    groups
}

/// Checks that a server answers with a whole file.
fn answers(subject: Subject, root: &Path, plan: &Plan) -> Result<(), String> {
    let once = || {
        let stage = Stage::new(subject, root, plan.most_at_a_time())?;
        let load = Load {
            slice: Duration::from_millis(20),
            ..plan.cells()[0]
        };
        stage.load(&load)
    };
    match once() {
        Ok(sample) if sample.requests >= 1.0 => Ok(()),
        Ok(_) => Err("it does not answer".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

const METRICS: [Metric<Sample>; 5] = [
    (EFFICIENCY, "1/s", Sample::requests_per_busy_second),
    (THROUGHPUT, "1/s", |sample| {
        let rate = sample.requests_per_second();
        (rate > 0.0).then_some(rate)
    }),
    ("busy part of the server's processor", "%", |sample| {
        Some(100.0 * sample.busy_share())
    }),
    ("latency, p50", "us", |sample| {
        Some(sample.outcome.p50?.as_secs_f64() * 1e6)
    }),
    (LATENCY, "us", |sample| {
        Some(sample.outcome.p99?.as_secs_f64() * 1e6)
    }),
];

fn cell_rows(found: &Found<Group, GroupSample>, plan: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    for (place, load) in plan.cells().iter().enumerate() {
        for &idle in plan.idle {
            for (metric, unit, of) in METRICS {
                for (group, samples) in found.iter().filter(|(group, _)| group.idle == idle) {
                    let samples = samples.iter();
                    let values: Option<Vec<f64>> =
                        samples.map(|sample| of(&sample.cells[place])).collect();
                    if let Some(values) = values {
                        let metric = format!("{metric}; {}", setting(load, idle));
                        rows.push(Row::of_samples(group.subject.name(), metric, unit, &values));
                    }
                }
            }
        }
    }
    rows
}

fn setting(load: &Load, idle: usize) -> String {
    let Load {
        file, connections, ..
    } = load;
    format!("{}, {connections} at a time, {idle} idle", file.name)
}

/// The rates with idle connections, relative to those without.
fn beside_none_idle(rows: &[Row], plan: &Plan) -> Vec<Row> {
    let mut ratios = Vec::new();
    for load in plan.cells() {
        let of = |idle| format!("{EFFICIENCY}; {}", setting(&load, idle));
        let without = rows.iter().filter(|row| row.metric == of(0));
        for without in without {
            for &idle in plan.idle.iter().filter(|&&idle| idle > 0) {
                let same = |row: &&Row| row.metric == of(idle) && row.variant == without.variant;
                ratios.extend(rows.iter().find(same).map(|with| {
                    let pairs = with.samples.iter().zip(&without.samples);
                    let ratios: Vec<f64> = pairs.map(|(with, without)| with / without).collect();
                    let metric = format!("relative to none idle: {}", with.metric);
                    Row::of_samples(&*with.variant, metric, "x", &ratios)
                }));
            }
        }
    }
    ratios
}

fn memory_rows(found: &Found<Group, GroupSample>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (group, samples) in found {
        let name = group.subject.name();
        let resident = samples
            .iter()
            .map(|sample| sample.memory[1].resident as f64 / 1e6);
        let resident: Vec<f64> = resident.collect();
        let metric = format!("resident memory; {} idle", group.idle);
        rows.push(Row::of_samples(&*name, metric, "MB", &resident));
        if group.idle > 0 {
            let of_each = |sample: &GroupSample| {
                let [before, after] = &sample.memory;
                after.growth_since(before) / group.idle as f64
            };
            let memory: Vec<f64> = samples.iter().map(of_each).collect();
            let metric = format!("bytes more for an idle connection; {} idle", group.idle);
            rows.push(Row::of_samples(name, metric, "B", &memory));
        }
    }
    rows
}

const BESIDE_PEERS: Comparison = Comparison {
    is_ours: Subject::is_stack,
    is_peer: |variant| !Subject::is_stack(variant),
    better,
};

struct Plan {
    subjects: &'static [Subject],
    files: &'static [File],
    connections: &'static [usize],
    idle: &'static [usize],
    slice: Duration,
    rounds: usize,
}

impl Plan {
    fn most_at_a_time(&self) -> usize {
        self.connections.iter().max().copied().unwrap_or(0)
    }

    fn cells(&self) -> Vec<Load> {
        let of_file = |&file: &File| {
            self.connections.iter().map(move |&connections| Load {
                file,
                connections,
                keep_alive: true,
                slice: self.slice,
            })
        };
        self.files.iter().flat_map(of_file).collect()
    }
}

const FULL: Plan = Plan {
    subjects: &[
        Subject::Stack(Architecture::SoftLrp, Carrier::Xdp),
        Subject::Stack(Architecture::SoftLrp, Carrier::Packet),
        Subject::Stack(Architecture::NiLrp, Carrier::Xdp),
        Subject::Kernel(Placement::Rps),
        Subject::Kernel(Placement::ThreadedNapi),
        Subject::Nginx(Files::SendfileCached, Placement::Rps),
        Subject::Nginx(Files::SendfileCached, Placement::ThreadedNapi),
        Subject::Nginx(Files::ReadCached, Placement::Rps),
        Subject::Nginx(Files::ReadCached, Placement::ThreadedNapi),
    ],
    files: &[SMALL, PAPERS],
    connections: &[64, 512],
    idle: &[0, 10_000, 100_000],
    slice: Duration::from_secs(2),
    rounds: 3,
};

const SMOKE: Plan = Plan {
    subjects: &[
        Subject::Stack(Architecture::SoftLrp, Carrier::Xdp),
        Subject::Kernel(Placement::Rps),
        Subject::Nginx(Files::ReadCached, Placement::Rps),
    ],
    files: &[SMALL],
    connections: &[8],
    idle: &[0, 50],
    slice: Duration::from_millis(160),
    rounds: 1,
};

fn notes() -> Vec<String> {
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    notes.push(closed_loop::Load::detect().note().to_owned());
    notes.push(versions());
    notes
}

const NOTES: [&str; 7] = [
    "requests a processor second: for a second in which the server's processor is not idle (/proc/stat, without steal time), \
     whatever it does: the server's process, the receive work of its link, timers, and the kick by which AF_XDP sends",
    "server on processor 1, clients on processor 0, veth between two namespaces, anew for each round; what arrives at the \
     clients is processed on their processor (RPS), so that the server pays for handing a frame over and not for the \
     clients' TCP",
    "receive work of the server's link: own stack by AF_XDP: a native XDP program in the kernel thread of threaded NAPI on the \
     server's processor, of the server's priority; by AF_PACKET and in the kernel: RPS to the server's processor, or the same \
     kind of thread (threaded NAPI with GRO)",
    "all servers have segmentation offload: responses of 6 KB cross veth as one frame; the stack by AF_XDP, which has none, \
     sends such frames by an AF_PACKET socket beside it",
    "nginx: one worker (with 100 000 idle connections as many as their descriptors need, all on the server's processor), \
     keepalive_requests without limit, access_log off, multi_accept, listen reuseport, tcp_nopush with \
     sendfile, open_file_cache valid for 1 s; softclock: one thread, its defaults",
    "idle connections have completed their handshakes and send nothing; they are made by frames from many addresses, so that \
     they cost the clients nothing",
    "bytes more for an idle connection: growth of the server's resident memory, and for servers on the kernel that of the \
     kernel's objects (Slab of /proc/meminfo), where the kernel keeps its connections",
];
