//! `softclock demo`: what an event each 20 us costs a busy web server, by the way it is made to fire.
//!
//! Three threads: a server (`server`) whose own task switches the events of each [`Variant`] on and off in turn,
//! slice by slice, so that noise evens out; clients that keep it busy (`clients`); and this one, which adds up
//! (`tally`) and draws (`picture`, `screen`).

mod clients;
mod picture;
pub(crate) mod screen;
mod server;
mod steal;
mod tally;
mod variant;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use softclock::Runtime;
use softclock::signal::{Signal, Signals};

use crate::values::whole;
use screen::Screen;
use server::Slice;
use steal::Ticks;
use tally::Tally;

/// The options of `softclock demo`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct DemoOptions {
    /// How long to show it
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole(1..=3600u16))]
    seconds: u16,

    /// Print lines in place of drawing [default: where standard output is no terminal]
    #[arg(long)]
    plain: bool,
}

const NOTES: &str = "\
A web server and the clients that keep it busy run in this process, over the loopback interface. In turn the server \
has no events, and an event each 20 us as a soft timer, as a timerfd that its loop reads, and as a signal of a POSIX \
timer. An event that is due again before it has fired counts once. A change is the median of all turns, to the server \
without events, and the middle half of the turns is as far apart as the spread. Figures mean something only if nothing \
else takes the processors: where other load does, or the spread is larger than the change, no conclusion is drawn. \
Ctrl-C ends it.
";

/// How it ended.
enum End {
    Completed,
    /// By a signal: the shell's number for that is 128 and the signal's.
    Interrupted(u8),
}

/// Shows it and exits.
pub(crate) fn run(options: &DemoOptions) -> ExitCode {
    match show(options) {
        Ok(End::Completed) => ExitCode::SUCCESS,
        Ok(End::Interrupted(signal)) => ExitCode::from(128 + signal),
        Err(error) => {
            eprintln!("softclock: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(options: &DemoOptions) -> io::Result<End> {
    // Before the first thread starts, so that all threads leave the signals to the one that asks for them.
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
            print!("{}", picture::summary(&tally, steal));
            io::stdout().flush()?;
        }
        Ok(end)
    })
}

/// Server and clients, each on a processor of its own if there are two.
fn load(seconds: Duration, stop: &AtomicBool, slices: Sender<Slice>) -> io::Result<()> {
    let [server_cpu, clients_cpu] = processors();
    let (listening, address) = mpsc::channel();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            pin(server_cpu);
            let result = server::run(seconds, stop, listening, slices);
            // Also when it fails before it gets that far.
            stop.store(true, Relaxed);
            result
        });
        pin(clients_cpu);
        let clients = match address.recv() {
            Ok(address) => clients::run(address, stop),
            // The server has ended, and says why.
            Err(_) => Ok(()),
        };
        stop.store(true, Relaxed);
        server
            .join()
            .expect("the server does not panic")
            .and(clients)
    })
}

/// Draws until the load ends or a signal comes.
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
    // Between two pictures there is nothing that must be exact.
    Runtime::builder().spin_cap(0.0).build()?.block_on(async {
        loop {
            let done = ended();
            tally.add_all(results.try_iter());
            let shown = begun.elapsed().min(seconds);
            screen.show(&tally, shown, seconds, done)?;
            if done {
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

/// For the server and for the clients. Device interrupts like the first one, and so the server has the last.
fn processors() -> [Option<usize>; 2] {
    let all = sched_getaffinity(None).unwrap_or_default();
    let mut usable = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu));
    let first = usable.next();
    [usable.next_back().or(first), first]
}

/// Where a sandbox forbids it, the scheduler decides.
fn pin(processor: Option<usize>) {
    if let Some(processor) = processor {
        let mut set = CpuSet::new();
        set.set(processor);
        let _ = sched_setaffinity(None, &set);
    }
}

/// Between two pictures.
const FRAME: Duration = Duration::from_millis(100);
