//! `tcp/cost`: the instructions of a request and the memory of an idle connection, of `softclock serve` on its own
//! stack and on the kernel.

use std::error::Error;
use std::io;
use std::path::Path;

use softclock_net::stack::Architecture;

use crate::lab::tcp::{
    self, Carrier, Counted, IdleClients, Placement, SMALL, Stage, Subject, check_callgrind,
    in_memory, write_files,
};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "tcp/cost",
    about: "instructions of a request, and memory of an idle connection, on softclock's own stack and on the kernel",
    takes: Takes::Nothing,
    run,
};

const TITLE: &str = "cost of a request and of an idle connection";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    let total = 2 + plan.idle.len();
    let mut rows = context.round(0, total, "a stack in memory", || in_memory_rows(plan))?;
    match tcp::check() {
        Ok(()) => {
            let root = tempfile::tempdir()?;
            write_files(root.path(), &[SMALL])?;
            for (place, &(subject, idle)) in plan.idle.iter().enumerate() {
                let name = subject.name();
                let measure = || idle_rows(subject, idle, root.path(), plan);
                rows.extend(context.round(1 + place, total, &name, measure)?);
            }
            rows.extend(instruction_rows(context, plan, &mut notes)?);
        }
        Err(reason) => notes.push(format!("servers are not measured: {reason}")),
    }
    context.progress(total, total, "");
    Ok(Report {
        title: TITLE,
        notes,
        rows,
        charts: Vec::new(),
    })
}

/// The rows of a stack alone.
fn in_memory_rows(plan: &Plan) -> io::Result<Vec<Row>> {
    let bytes = in_memory::idle_connections(plan.peers)? as f64;
    let variant = "softclock's stack alone";
    let idle = plan.peers;
    Ok(vec![
        Row::of_samples(
            variant,
            format!("bytes more for an idle connection; {idle} idle"),
            "B",
            &[bytes / idle as f64],
        ),
        Row::of_samples(
            variant,
            format!("more resident memory; {idle} idle"),
            "MB",
            &[bytes / 1e6],
        ),
    ])
}

/// The rows of a server with idle connections.
fn idle_rows(subject: Subject, idle: usize, root: &Path, plan: &Plan) -> io::Result<Vec<Row>> {
    let mut samples: [Vec<f64>; 3] = Default::default();
    for _ in 0..plan.rounds {
        let stage = Stage::new(subject, root, idle)?;
        let before = stage.memory()?;
        let clients = IdleClients::connect(&stage, idle)?;
        let after = stage.memory()?;
        if clients.share_open(&stage)? < 1.0 {
            return Err(io::Error::other(format!(
                "{}: idle clients were cut off",
                subject.name()
            )));
        }
        samples[0].push(after.growth_since(&before) / idle as f64);
        samples[1].push(after.resident_since(&before) / 1e6);
        samples[2].push(after.resident as f64 / 1e6);
    }
    let metrics = [
        ("bytes more for an idle connection", "B"),
        ("more resident memory", "MB"),
        ("resident memory in all", "MB"),
    ];
    let rows = metrics
        .iter()
        .zip(&samples)
        .map(|((metric, unit), samples)| {
            Row::of_samples(
                subject.name(),
                format!("{metric}; {idle} idle"),
                unit,
                samples,
            )
        });
    Ok(rows.collect())
}

/// The rows of instructions. `notes` gets the reason if there are none.
fn instruction_rows(
    context: &Context,
    plan: &Plan,
    notes: &mut Vec<String>,
) -> io::Result<Vec<Row>> {
    if let Err(reason) = check_callgrind() {
        notes.push(format!("instructions are not measured: {reason}"));
        return Ok(Vec::new());
    }
    let total = 2 + plan.idle.len();
    let mut rows = Vec::new();
    for &counted in plan.counted {
        context.progress(total - 1, total, counted.name());
        let count = |_| counted.instructions(plan.requests[0], plan.requests[1]);
        let counts: io::Result<Vec<f64>> = (0..plan.counts).map(count).collect();
        let metric = "instructions a request of the program itself";
        rows.push(Row::of_samples(counted.name(), metric, "", &counts?));
    }
    if let [own, kernel] = &rows[..] {
        let metric = "instructions beyond those of the server on the kernel";
        let more = [own.value - kernel.value];
        let row = Row::of_samples(&*own.variant, format!("more: {metric}"), "", &more);
        rows.push(row);
    }
    Ok(rows)
}

struct Plan {
    /// Simulated peers of a stack in memory.
    peers: usize,
    /// Servers with their numbers of idle connections.
    idle: &'static [(Subject, usize)],
    /// Repetitions of each of these.
    rounds: usize,
    counted: &'static [Counted],
    /// Few requests and many.
    requests: [u32; 2],
    /// Repetitions of counting.
    counts: usize,
}

const FULL: Plan = Plan {
    peers: 1_000_000,
    idle: &[
        (Subject::Stack(Architecture::SoftLrp, Carrier::Xdp), 10_000),
        (Subject::Stack(Architecture::SoftLrp, Carrier::Xdp), 100_000),
        (Subject::Kernel(Placement::Rps), 10_000),
    ],
    rounds: 3,
    counted: &[Counted::Own, Counted::Kernel],
    requests: [200, 1200],
    counts: 3,
};

const SMOKE: Plan = Plan {
    peers: 2000,
    idle: &[(Subject::Stack(Architecture::SoftLrp, Carrier::Xdp), 100)],
    rounds: 1,
    counted: &[Counted::Own],
    requests: [1, 5],
    counts: 1,
};

const NOTES: [&str; 5] = [
    "instructions: of the program only, by callgrind, for requests of the bundled style sheet one after another on one \
     connection (the difference between 1200 requests and 200); on the kernel, TCP and the sockets' calls are not among them; \
     on the own stack all of TCP is, and only the device is the kernel's",
    "the own stack is on a TAP device there, since valgrind does not know all calls of AF_XDP; the page is the bundled one, since \
     it does not know openat2, by which files are opened",
    "idle connections have completed their handshakes and send nothing; the stack alone has simulated peers in memory, accepts \
     them, and waits for their requests",
    "bytes more for an idle connection: growth of the resident memory, and for the server on the kernel that of the kernel's \
     objects (Slab of /proc/meminfo), where the kernel keeps its connections",
    "the process on the kernel may have 20 000 descriptors, and so not 100 000 connections; the own stack's have no descriptors",
];
