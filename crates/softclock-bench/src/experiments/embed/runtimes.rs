//! `embed/runtimes`: the processor time of TCP echo, and of hyper's "hello", on softclock and on other async runtimes.

use std::error::Error;
use std::io;
use std::time::Duration;

use super::{FULL, SMOKE};
use crate::load::closed_loop::{Load, Target};
use crate::load::echo::Messages;
use crate::measure::processors::Processors;
use crate::measure::slice::Slice;
use crate::measure::turns::Turns;
use crate::output::best_peer::{Better, Comparison};
use crate::output::metric::{self, Metric};
use crate::output::report::{Context, Experiment, Report, Takes};
use crate::peers::runtimes::{Kind, Service};
use crate::servers::Server;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "embed/runtimes",
    about: "processor time of TCP echo and of hyper's hello on softclock, tokio, smol, monoio, compio and glommio, and of a bare loop",
    takes: Takes::RoundsAndSubjects,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let processors = Processors::detect();
    let load = Load::detect();
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    notes.push(format!("of hello, {}", load.note()));
    let mut subjects = Vec::new();
    for kind in Kind::ALL {
        // Start each once, so that a missing permission shows before the measurement.
        match kind.start(Service::Echo) {
            Ok(_) => subjects.push(kind),
            Err(error) if kind == Kind::Softclock => return Err(error.into()),
            Err(error) => notes.push(format!("{} is left out: {error}", kind.name())),
        }
    }
    let name = |kind: &Kind| kind.name().to_owned();
    let turns = Turns::new(context, plan.rounds, subjects, name)?;
    let found = turns.measure(|&kind| {
        let cases = CASES.iter();
        let samples = cases.map(|case| case.measure(kind, load, &processors, plan.slice));
        samples.collect::<io::Result<Vec<_>>>()
    })?;
    let mut rows = Vec::new();
    for (place, case) in CASES.iter().enumerate() {
        let variants = found.iter().map(|(kind, rounds)| {
            let samples = rounds.iter().filter_map(|samples| samples[place].as_ref());
            (kind.name().to_owned(), samples.collect())
        });
        rows.extend(metric::rows(&METRICS, case.name, variants));
    }
    rows.extend(BESIDE_PEERS.rows(&rows));
    Ok(Report {
        title: "TCP echo and hyper's hello on async runtimes of one thread",
        notes,
        rows,
        charts: Vec::new(),
    })
}

struct Case {
    name: &'static str,
    service: Service,
    connections: usize,
    bytes: usize,
}

const fn echo(name: &'static str, connections: usize, bytes: usize) -> Case {
    Case {
        name,
        service: Service::Echo,
        connections,
        bytes,
    }
}

const fn hello(name: &'static str, connections: usize) -> Case {
    Case {
        name,
        service: Service::Hello,
        connections,
        bytes: 0,
    }
}

const CASES: [Case; 6] = [
    echo("echo of 64 bytes, 1 connection", 1, 64),
    echo("echo of 64 bytes, 64 connections", 64, 64),
    echo("echo of 4 KB, 1 connection", 1, 4096),
    echo("echo of 4 KB, 64 connections", 64, 4096),
    hello("hyper's hello, 1 connection", 1),
    hello("hyper's hello, 64 connections", 64),
];

struct Sample {
    operations: f64,
    /// The processor time of the server.
    ran: Duration,
    elapsed: Duration,
}

impl Case {
    /// Returns `None` if the runtime lacks the service.
    fn measure(
        &self,
        kind: Kind,
        load: Load,
        processors: &Processors,
        slice: Duration,
    ) -> io::Result<Option<Sample>> {
        if !kind.has(self.service) {
            return Ok(None);
        }
        let server = processors.on(processors.server, || kind.start(self.service))?;
        let sample = match self.service {
            Service::Echo => self.echo(&server, processors, slice)?,
            Service::Hello => self.hello(&server, load, processors, slice)?,
        };
        Ok(Some(sample))
    }

    fn echo(
        &self,
        server: &Server,
        processors: &Processors,
        slice: Duration,
    ) -> io::Result<Sample> {
        let messages = Messages {
            address: server.address(),
            connections: self.connections,
            bytes: self.bytes,
        };
        let exchange = || messages.exchange(slice, || server.run_time());
        let echoed = processors.on(processors.clients, exchange)?;
        let [before, after] = echoed.read;
        Ok(Sample {
            operations: echoed.messages as f64,
            ran: after.saturating_sub(before),
            elapsed: echoed.elapsed,
        })
    }

    fn hello(
        &self,
        server: &Server,
        load: Load,
        processors: &Processors,
        slice: Duration,
    ) -> io::Result<Sample> {
        let target = Target {
            address: server.address(),
            path: "/",
            connections: self.connections,
            keep_alive: true,
        };
        let slice = Slice::measure(server, &target, load, processors, slice)?;
        Ok(Sample {
            operations: slice.requests,
            ran: slice.cpu,
            elapsed: slice.outcome.elapsed,
        })
    }
}

const METRICS: [Metric<Sample>; 3] = [
    ("processor time an operation", "us", |sample| {
        Some(sample.ran.as_secs_f64() * 1e6 / sample.operations)
    }),
    (EFFICIENCY, "1/s", |sample| {
        Some(sample.operations / sample.ran.as_secs_f64())
    }),
    ("operations a second", "1/s", |sample| {
        Some(sample.operations / sample.elapsed.as_secs_f64())
    }),
];

const EFFICIENCY: &str = "operations a processor second";

const BESIDE_PEERS: Comparison = Comparison {
    is_ours: Kind::is_ours,
    is_peer: Kind::is_peer,
    better: |metric| metric.starts_with(EFFICIENCY).then_some(Better::More),
};

const NOTES: [&str; 5] = [
    "one thread and one processor for the server, another for the clients; TCP over the loopback, TCP_NODELAY on both sides; each connection has one message outstanding",
    "processor time is that of the server's threads (schedstat), for hello that of its process (steps of 10 ms); it includes the kernel's: on the loopback the sender's call does the receive work of the other side",
    "a loop of epoll with one read and one write a message, without a runtime, shows the part of the kernel's calls",
    "defaults of softclock, smol, monoio (IoUringDriver), compio (io_uring) and glommio; tokio's runtime of the current thread, which its documentation names for one thread; buffers of 8 KB a connection",
    "hello is hyper's server of HTTP/1.1 with timers on; hyper runs on tokio by hyper-util, on softclock by its feature hyper; adapters of hyper for the others, such as smol-hyper, are not measured",
];
