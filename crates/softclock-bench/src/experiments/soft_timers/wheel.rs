//! `soft-timers/wheel`: the timing wheel alone, beside other timer structures.
//!
//! *Soft Timers* (section 3) keeps its events in a timing wheel, because scheduling an event and finding the earliest
//! must cost close to nothing. Most network timers are cancelled, and their delays span several orders of magnitude:
//! the trace has this pattern, and each operation is also measured alone.

mod coprocess;
mod peers;
mod player;
mod trace;

use std::error::Error;
use std::io;

use crate::output::best_peer::{Better, Comparison};
use crate::output::report::{Context, Experiment, Report, Row, Takes};
use crate::peers::program::Workshop;
use coprocess::{Coprocess, Program};
use peers::{Bitwheel, HashWheel, Heap, Nexus, Peer, Softclock, SoftclockRuntime, Tree};
use player::{Operation, Play, Player};
use trace::{Kind, Step, Trace};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/wheel",
    about: "the timing wheel beside other timer structures, 10 to a million pending",
    takes: Takes::Nothing,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let sizes = if context.smoke { SMOKE } else { FULL };
    let mut rows = Vec::new();
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    let workshop = Workshop::new()?;
    let programs = Program::all(&workshop, &mut notes);
    for size in sizes {
        for kind in [Kind::Network, Kind::Firing] {
            trace_rows(context, kind, size, &programs, &mut rows, &mut notes)?;
        }
        operation_rows(context, size, &programs, &mut rows)?;
    }
    context.progress(1, 1, "");
    rows.extend(BESIDE_PEERS.rows(&rows));
    Ok(Report {
        title: "timer structures: ns an operation, by number of pending timers",
        notes,
        rows,
        charts: Vec::new(),
    })
}

/// The number of timers, and the length of the measurement.
struct Size {
    pending: usize,
    /// Rounds of the trace, each with one sample per structure.
    rounds: usize,
    /// Steps of the trace in a round.
    steps: usize,
    /// Rounds of each single operation.
    operation_rounds: usize,
    calls: usize,
}

/// Returns every structure, each with `pending` timers in the initial state.
fn players(
    size: &Size,
    programs: &[Program],
    kind: Kind,
    initial_ns: &[u64],
) -> io::Result<Vec<Box<dyn Play>>> {
    let mut players: Vec<Box<dyn Play>> = vec![
        Box::new(Player::<Softclock>::new(initial_ns)),
        Box::new(Player::<SoftclockRuntime>::new(initial_ns)),
        Box::new(Player::<Nexus<3>>::new(initial_ns)),
        bitwheel(size.pending, initial_ns),
        Box::new(Player::<HashWheel>::new(initial_ns)),
        Box::new(Player::<Tree>::new(initial_ns)),
        Box::new(Player::<Heap>::new(initial_ns)),
    ];
    for program in programs {
        players.push(Box::new(Coprocess::start(program, kind, initial_ns)?));
    }
    Ok(players)
}

/// Returns a `bitwheel`. It reserves a fixed number of places in each of its 320 slots, which is a compile-time
/// parameter.
fn bitwheel(pending: usize, initial_ns: &[u64]) -> Box<dyn Play> {
    match pending {
        0..=1_000 => Box::new(Player::<Bitwheel<64>>::new(initial_ns)),
        1_001..=100_000 => Box::new(Player::<Bitwheel<1024>>::new(initial_ns)),
        _ => Box::new(Player::<Bitwheel<8192>>::new(initial_ns)),
    }
}

fn trace_rows(
    context: &Context,
    kind: Kind,
    size: &Size,
    programs: &[Program],
    rows: &mut Vec<Row>,
    notes: &mut Vec<String>,
) -> io::Result<()> {
    let name = match kind {
        Kind::Network => "trace",
        Kind::Firing => "fire + schedule",
    };
    let mut trace = Trace::new(kind, size.pending, SEED);
    let mut players = players(size, programs, kind, &trace.initial_ns)?;
    let mut samples = vec![Vec::with_capacity(size.rounds); players.len()];
    let mut play = || -> io::Result<Vec<f64>> {
        let steps: Vec<Step> = trace.by_ref().take(size.steps).collect();
        players
            .iter_mut()
            .map(|player| player.play(&steps))
            .collect()
    };
    // Warm up: the structures grow their tables, and the first steps load them into the caches.
    for _ in 0..(size.rounds / 8).max(1) {
        play()?;
    }
    let what = format!("{name}, {} pending", size.pending);
    for round in 0..size.rounds {
        let each_ns = context.round(round, size.rounds, &what, &mut play)?;
        for (samples, ns) in samples.iter_mut().zip(each_ns) {
            samples.push(ns);
        }
    }
    for (player, samples) in players.iter().zip(&samples) {
        rows.push(Row::of_samples(player.name(), &*what, "ns", samples));
        let found = player.inexactness();
        notes.extend(found.note(player.name(), name, size.pending));
    }
    Ok(())
}

fn operation_rows(
    context: &Context,
    size: &Size,
    programs: &[Program],
    rows: &mut Vec<Row>,
) -> io::Result<()> {
    for operation in Operation::ALL {
        // Each operation starts from structures in the middle of the trace, not from fresh ones.
        let mut players = players_amid(size, programs)?;
        let mut samples = vec![Vec::with_capacity(size.operation_rounds); players.len()];
        let what = format!("{}, {} pending", operation.name(), size.pending);
        for round in 0..size.operation_rounds {
            let seed = SEED ^ (round as u64 + 1);
            let each_ns = context.round(round, size.operation_rounds, &what, || {
                let operate =
                    |player: &mut Box<dyn Play>| player.operation(operation, size.calls, seed);
                players
                    .iter_mut()
                    .map(operate)
                    .collect::<io::Result<Vec<f64>>>()
            })?;
            for (samples, ns) in samples.iter_mut().zip(each_ns) {
                samples.push(ns);
            }
        }
        for (player, samples) in players.iter().zip(&samples) {
            rows.push(Row::of_samples(player.name(), &*what, "ns", samples));
        }
    }
    Ok(())
}

fn players_amid(size: &Size, programs: &[Program]) -> io::Result<Vec<Box<dyn Play>>> {
    let mut trace = Trace::new(Kind::Network, size.pending, SEED);
    let mut players = players(size, programs, Kind::Network, &trace.initial_ns)?;
    let steps: Vec<Step> = trace.by_ref().take(size.steps).collect();
    for player in &mut players {
        player.play(&steps)?;
    }
    Ok(players)
}

const BESIDE_PEERS: Comparison = Comparison {
    is_ours: |variant| variant == Softclock::NAME,
    is_peer: |variant| ![Softclock::NAME, SoftclockRuntime::NAME].contains(&variant),
    better: |_| Some(Better::Less),
};

const SEED: u64 = 0x736f_6674_636c_6f63;

const NOTES: [&str; 11] = [
    "trace: one step is a check for due timers, the cancelling of one timer, if it has not fired, \
     and its scheduling anew; 90 % are cancelled before they fire, delays are log-uniform from \
     10 us to 30 s, the same steps for all, played in turn in rounds of milliseconds",
    "fire + schedule: each step fires a timer and schedules it anew, about one each microsecond, \
     with delays uniform up to 2 us times the number pending",
    "from 100 000 pending on, a step waits for memory: its timer is at a random place in tables of \
     several MB, which on a shared machine costs more or less from minute to minute; compare within \
     a run",
    "softclock is the wheel alone, which is what the peers are. As in its runtime, each timer is an event of 24 bytes, \
     whose place in the wheel takes 64 bytes, and each step is a trigger state, counted with its interval; what the \
     runtime's wakers cost is not part of it. Ratios to peers are of the wheel alone",
    "every other structure holds the timer's owner as payload (8 bytes); the table of handles that the \
     owners keep is part of what is timed, its cache misses included",
    "bitwheel and hierarchical_hash_wheel_timer count milliseconds: they are given microseconds \
     for milliseconds",
    "bitwheel reserves 64, 1024 or 8192 places a slot by size and sends what finds no place to a \
     tree it looks into every 32 ticks; it has no reschedule, nor have \
     hierarchical_hash_wheel_timer, BTreeMap and BinaryHeap: cancel and schedule stand for it",
    "nexus-timer: 64 slots a level, 8 times coarser from level to level, poll_and_rebalance",
    "libevent and rte_timer are C, each in a process that plays the same steps in its turn and times itself; their \
     timers lie in the owners' table, so that there is no handle. libevent's base has the trace's time for its clock \
     and an epoll_wait that returns at once, without a system call: what a turn of its loop costs without the kernel \
     is part of each step, and its idle check",
    "libevent's base is without locks and its environment (EVENT_BASE_FLAG_NOLOCK, EVENT_BASE_FLAG_IGNORE_ENV); its queues \
     of common timeouts are for timers of one length, which are not here; rte_timer has one core, no huge pages",
    "rte_timer reads the processor's counter itself: a check contains that, and the trace, whose time it cannot be \
     given, cancels what the others fire (10 % of the steps); fire + schedule runs in real time, at a pace that it can \
     keep",
];

const SMOKE: &[Size] = &[
    Size {
        pending: 10,
        rounds: 3,
        steps: 100,
        operation_rounds: 3,
        calls: 50,
    },
    Size {
        pending: 1_000,
        rounds: 3,
        steps: 300,
        operation_rounds: 3,
        calls: 100,
    },
];

const FULL: &[Size] = &[
    Size {
        pending: 10,
        rounds: 80,
        steps: 20_000,
        operation_rounds: 60,
        calls: 1_000,
    },
    Size {
        pending: 1_000,
        rounds: 80,
        steps: 20_000,
        operation_rounds: 60,
        calls: 1_000,
    },
    Size {
        pending: 100_000,
        rounds: 80,
        steps: 20_000,
        operation_rounds: 60,
        calls: 5_000,
    },
    // Fewer rounds: the slowest structures take microseconds per step here, and seconds to fill.
    Size {
        pending: 1_000_000,
        rounds: 40,
        steps: 20_000,
        operation_rounds: 40,
        calls: 10_000,
    },
];
