//! `softclock demo`: measures how much an event every 20 us costs a busy web server, for each mechanism that can fire
//! it.
//!
//! Three threads: the server (`server`), with a task that switches the events of each [`Variant`] on and off in turn,
//! slice by slice, so that noise averages out; clients that keep the server busy (`clients`); and the main thread,
//! which adds up the slices (`tally`) and draws (`picture`, `screen`).

mod clients;
mod picture;
pub(crate) mod screen;
mod server;
mod steal;
mod tally;
mod variant;

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use softclock::Runtime;
use softclock::signal::{Signal, Signals};

use crate::logging;
use crate::stdout;
use crate::values::whole;
use screen::Screen;
use server::Slice;
use steal::Ticks;
use tally::Tally;

/// The options of `softclock demo`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct DemoOptions {
    /// Seconds to run (1 to 3600)
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole(1..=3600u16))]
    seconds: u16,

    /// Print lines instead of drawing [default if standard output is not a terminal]
    #[arg(long)]
    plain: bool,
}

const NOTES: &str = "\
A web server and the clients that keep it busy run in this process, over the loopback interface. In turn the server \
has no events, and an event every 20 us as a soft timer, as a timerfd that its loop reads, and as a signal of a POSIX \
timer. An event that is due again before it has fired counts once. A change is the median over all rounds, relative to \
the server without events; the spread is the distance between the quartiles. The figures are meaningful only if \
nothing else uses the processors: if other load does, or the spread is larger than the change, the demo draws no \
conclusion. Ctrl-C ends it.
";

/// The reason why the demo ended.
enum End {
    Completed,
    /// A signal ended it; the exit code is 128 plus its number, as in shells.
    Interrupted(u8),
}

/// Runs the demo and returns its exit code.
pub(crate) fn run(options: &DemoOptions) -> ExitCode {
    match show(options) {
        Ok(End::Completed) => ExitCode::SUCCESS,
        Ok(End::Interrupted(signal)) => ExitCode::from(128 + signal),
        Err(error) => {
            logging::complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn show(options: &DemoOptions) -> io::Result<End> {
    // Block the signals before the first thread starts: threads inherit the mask, and this thread waits for them.
    let signals = Signals::block(&[Signal::Interrupt, Signal::Terminate])?;
    let seconds = Duration::from_secs(options.seconds.into());
    let stop = AtomicBool::new(false);
    let (slices, results) = mpsc::channel();
    let plain = options.plain;
    let ticks = Ticks::now();
    thread::scope(|scope| {
        let load = scope.spawn(|| load(seconds, &stop, slices));
        let end = watch(plain, seconds, signals, &results, || load.is_finished());
        stop.store(true, Relaxed);
        load.join().expect("the load does not panic")?;
        let (tally, end) = end?;
        if let End::Completed = end {
            let steal = Ticks::now().since(ticks);
            stdout::print(&picture::summary(&tally, steal))?;
        }
        Ok(end)
    })
}

/// Runs the server and its clients, each on a separate processor if there are two.
fn load(seconds: Duration, stop: &AtomicBool, slices: Sender<Slice>) -> io::Result<()> {
    let [server_cpu, clients_cpu] = processors();
    let (listening, address) = mpsc::channel();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            pin(server_cpu);
            let result = server::run(seconds, stop, listening, slices);
            // Stop the clients even if the server failed before it listened.
            stop.store(true, Relaxed);
            result
        });
        pin(clients_cpu);
        let clients = match address.recv() {
            Ok(address) => clients::run(address, stop),
            // The server has failed and reports the error below.
            Err(_) => Ok(()),
        };
        stop.store(true, Relaxed);
        server
            .join()
            .expect("the server does not panic")
            .and(clients)
    })
}

/// Draws until the load ends or a signal arrives.
fn watch(
    plain: bool,
    seconds: Duration,
    signals: Signals,
    results: &Receiver<Slice>,
    ended: impl Fn() -> bool,
) -> io::Result<(Tally, End)> {
    let mut screen = Screen::new(plain);
    let mut tally = Tally::default();
    let begun = Instant::now();
    // Drawing needs no exact timers, so leave the processor time of spinning to the server.
    Runtime::builder().spin_cap(0.0).build()?.block_on(async {
        loop {
            let done = ended();
            tally.add_all(results.try_iter());
            let shown = begun.elapsed().min(seconds);
            let drawn = screen.show(&tally, shown, seconds, done);
            let is_read = stdout::is_read(drawn)?;
            if done || !is_read {
                return Ok((tally, End::Completed));
            }
            if let Ok(signal) = softclock::timeout(FRAME, signals.next()).await {
                return Ok((tally, End::Interrupted(number(signal?))));
            }
        }
    })
}

const fn number(signal: Signal) -> u8 {
    match signal {
        Signal::Interrupt => 2,
        _ => 15,
    }
}

/// Processors for the server and for the clients. The server gets the last one, since device interrupts usually go to
/// the first.
fn processors() -> [Option<usize>; 2] {
    let all = sched_getaffinity(None).unwrap_or_default();
    let mut usable = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu));
    let first = usable.next();
    [usable.next_back().or(first), first]
}

/// Pins this thread to `processor`. If a sandbox forbids it, the scheduler decides.
fn pin(processor: Option<usize>) {
    if let Some(processor) = processor {
        let mut set = CpuSet::new();
        set.set(processor);
        let _ = sched_setaffinity(None, &set);
    }
}

/// Interval between drawings.
const FRAME: Duration = Duration::from_millis(100);
