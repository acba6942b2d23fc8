//! Simulation of the cache misses that a handler's memory accesses cause in a server: if the handler interrupts the
//! server anywhere, and if it is called at trigger states (*Soft Timers*, section 5.1).
//!
//! The server runs under valgrind, which reports each instruction and memory access. Several sets of caches are
//! simulated side by side on this one sequence, with the handler's accesses inserted at different places: only the
//! place differs, and there is no noise. A trigger state appears in the sequence as a store to a known address.
//!
//! - `cache`: sets of lines with least-recently-used replacement.
//! - `replay`: the sequence, with the handler's accesses inserted.

mod cache;
mod replay;

use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use softclock_linux::child::end_with_parent;
use softclock_testing::KilledOnDrop;

pub use cache::{Misses, SIZES};
pub use replay::{Place, Simulated};

use crate::load::closed_loop::{Load, Target, response_bytes};
use crate::measure::processors::Processors;
use replay::{Access, Replay};

/// The size of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Parts of the sequence that count, after a first one that warms the caches.
    pub parts: usize,
    /// Instructions in a part.
    pub part: u64,
    /// The time after which the simulation ends in any case.
    pub patience: Duration,
}

/// The results of a simulation.
#[derive(Debug)]
pub struct Outcome {
    /// The results of each place, in the given order.
    pub simulated: Vec<Simulated>,
    /// Instructions of the program per request, without the kernel's.
    pub instructions_per_request: f64,
}

/// Returns whether valgrind is installed.
pub fn is_possible() -> bool {
    let version = Command::new(VALGRIND).arg("--version").output();
    version.is_ok()
}

/// Runs the server under a few clients, and simulates for each of `places` a handler that is called every `every`
/// instructions.
///
/// # Errors
/// valgrind or the server fails, and [`io::ErrorKind::TimedOut`] if the plan's patience is too short.
pub fn simulate(plan: &Plan, places: &[Place], every: u64) -> io::Result<Outcome> {
    let processors = Processors::detect();
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let server = processors.on(processors.server, || start(address))?;
    let mut server = KilledOnDrop::new(server);
    let trace = server.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mark = AtomicU64::new(UNKNOWN);
    let enough = AtomicBool::new(false);
    let replay = Replay::new(places, every, plan.part, plan.parts);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(trace, replay, &mark, &enough));
        // The reader ignores all accesses until the mark is known.
        let requests = read_mark(&mut server).and_then(|address_of_mark| {
            mark.store(address_of_mark, Relaxed);
            ask(address, plan, &enough)
        });
        // This closes the server's standard error, at which the reader ends.
        drop(server);
        let replay = reader.join().expect("the reader does not panic");
        let requests = requests?;
        if replay.parts() < plan.parts || requests < 1.0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Outcome {
            instructions_per_request: replay.instructions() as f64 / requests,
            simulated: replay.finish(),
        })
    })
}

fn start(address: SocketAddr) -> io::Result<Child> {
    let mut command = Command::new(VALGRIND);
    end_with_parent(&mut command)
        .args(["--tool=lackey", "--basic-counts=no", "--trace-mem=yes"])
        .arg(std::env::current_exe()?)
        .args(["serve", "--mark"])
        .arg(address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Sends requests until the replay is complete or the time is over; returns their number.
fn ask(address: SocketAddr, plan: &Plan, enough: &AtomicBool) -> io::Result<f64> {
    let target = Target {
        address,
        path: "/",
        connections: CONNECTIONS,
        keep_alive: true,
    };
    let response = response_bytes(&target)?;
    let start = Instant::now();
    let over = || enough.load(Relaxed) || start.elapsed() > plan.patience;
    let outcome = Load::Own.run(&target, over)?;
    Ok(outcome.bytes as f64 / response as f64)
}

/// Reads the address of the mark, which the server prints when it listens.
fn read_mark(server: &mut Child) -> io::Result<u64> {
    let stdout = server.stdout.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let failed = || io::Error::other("the server does not start under valgrind");
    line.trim().parse().map_err(|_| failed())
}

/// Replays valgrind's output from the moment at which the mark is known until the replay is complete; then only drains
/// it, so that the server does not block.
fn read(trace: ChildStderr, mut replay: Replay, mark: &AtomicU64, enough: &AtomicBool) -> Replay {
    let mut trace = BufReader::with_capacity(1 << 20, trace);
    let mut line = Vec::new();
    while !replay.is_complete() {
        line.clear();
        if !matches!(trace.read_until(b'\n', &mut line), Ok(1..)) {
            return replay;
        }
        let mark = mark.load(Relaxed);
        if mark != UNKNOWN
            && let Some(access) = Access::parse(&line, mark)
        {
            replay.access(access);
        }
    }
    enough.store(true, Relaxed);
    let mut rest = vec![0; 1 << 16];
    while matches!(trace.read(&mut rest), Ok(1..)) {}
    replay
}

const VALGRIND: &str = "valgrind";

/// Marks an unknown address: no store goes to address 0.
const UNKNOWN: u64 = 0;

/// Connections; few suffice to keep a simulated server busy.
const CONNECTIONS: usize = 16;
