//! What a handler's memory accesses cost a server in cache misses, by simulation: where it interrupts the server anywhere,
//! and where it is called at trigger states (*Soft Timers*, section 5.1).
//!
//! The server runs under valgrind, which tells each instruction and each access to memory. All caches are simulated
//! side by side on this one sequence, with the handler's accesses put in at different places: so nothing but the place
//! differs, and there is no noise. A trigger state shows in the sequence as a store to a known address.
//!
//! - `cache`: sets of lines, the least recently used of which goes.
//! - `replay`: the sequence, with the handler's accesses put in.

mod cache;
mod replay;

use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use softclock_linux::child::end_with_parent;

pub use cache::{Misses, SIZES};
pub use replay::{Place, Simulated};

use crate::load::closed_loop::{Load, Target, response_bytes};
use crate::measure::processors::Processors;
use replay::{Access, Replay};

/// How much is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Parts of the sequence that are counted, after one that is not.
    pub parts: usize,
    /// Instructions in a part.
    pub part: u64,
    /// It ends after this time, whatever has been counted.
    pub patience: Duration,
}

/// What was found.
#[derive(Debug)]
pub struct Outcome {
    /// For each place, in the given order.
    pub simulated: Vec<Simulated>,
    /// Of the program, not the kernel.
    pub instructions_per_request: f64,
}

/// Whether valgrind is there.
pub fn is_possible() -> bool {
    let version = Command::new(VALGRIND).arg("--version").output();
    version.is_ok()
}

/// Runs the server under a few clients, and simulates it with a handler at each of `places`, which is called when so
/// many instructions have passed since it was called before.
///
/// # Errors
/// A valgrind or a server that does not work, and [`io::ErrorKind::TimedOut`] when patience was too short.
pub fn simulate(plan: &Plan, places: &[Place], every: u64) -> io::Result<Outcome> {
    let processors = Processors::detect();
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut server = Server(processors.on(processors.server, || start(address))?);
    let trace = server.0.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mark = AtomicU64::new(UNKNOWN);
    let enough = AtomicBool::new(false);
    let replay = Replay::new(places, every, plan.part, plan.parts);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(trace, replay, &mark, &enough));
        let requests = server.mark().and_then(|address_of_mark| {
            mark.store(address_of_mark, Relaxed);
            ask(address, plan, &enough)
        });
        // Its standard error ends with it, and so does the reader.
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

/// Asks until there is enough, or for too long; gives the number of requests.
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

/// A process that does not outlive its owner.
struct Server(Child);

impl Server {
    /// It says where its mark is when it listens.
    fn mark(&mut self) -> io::Result<u64> {
        let stdout = self.0.stdout.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let failed = || io::Error::other("the server does not start under valgrind");
        line.trim().parse().map_err(|_| failed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Replays what valgrind tells from when the mark is known until there is enough, then reads on, so that the server is
/// not held up.
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

/// No store is to address 0.
const UNKNOWN: u64 = 0;

/// A simulated server is busy with few.
const CONNECTIONS: usize = 16;
