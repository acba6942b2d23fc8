//! `embed/quic`: QUIC over a bottleneck with a short queue, by quinn with its own sockets and with paced ones, and by
//! quic-go and s2n-quic: packets lost, goodput, and processor time.

mod rows;

use std::error::Error;
use std::io;
use std::time::Duration;

use softclock_core::Rate;

use crate::command;
use crate::lab::bridge::{self, mbit};
use crate::lab::quic::{Bottleneck, Setup, Transfer};
use crate::measure::turns::Turns;
use crate::output::report::{Context, Experiment, Report, Takes};
use crate::peers::quic::{Paced, Program, Request, Sender, Socket};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "embed/quic",
    about: "QUIC over bottlenecks of 10 to 200 Mbit/s, 10 to 400 ms and 2 to 50 packets: loss, goodput and processor time of quinn, paced or not, quic-go and s2n-quic",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "QUIC over a bottleneck with a short queue";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let prepared = bridge::check().and_then(|()| {
        command::softclock()
            .and_then(|_| Setup::new())
            .map_err(|error| error.to_string())
    });
    let mut setup = match prepared {
        Ok(setup) => setup,
        Err(reason) => return Ok(Report::not_measured(TITLE, &reason)),
    };
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    // Compiling takes longer than a smoke run may.
    match context.smoke {
        true => notes.push("quic-go and s2n-quic are left out of smoke runs".to_owned()),
        false => add_programs(&mut setup, &mut notes),
    }
    let turns = Turns::new(context, plan.rounds, plan.cells(&setup), |cell| {
        format!("{}; {}", cell.sender.name(), cell.path.name())
    })?;
    let found = turns.measure(|cell| cell.measure(&setup, plan))?;
    rows::add_notes(&found, &mut notes);
    Ok(Report {
        title: TITLE,
        notes,
        rows: rows::rows(&found),
        charts: rows::charts(&found),
    })
}

/// Compiles the peers in programs of their own.
fn add_programs(setup: &mut Setup, notes: &mut Vec<String>) {
    for sender in [Sender::QuicGo, Sender::S2nQuic] {
        match Program::compile(sender) {
            Ok(program) => {
                notes.push(format!("{} {}", sender.name(), program.version));
                setup.programs.push((sender, program));
            }
            Err(reason) => notes.push(reason),
        }
    }
}

/// A bottleneck, and the senders that are measured at it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Path {
    mbit: u64,
    round_trip_ms: u64,
    queue: u64,
    /// The stated rate, as a share of the bottleneck's.
    stated: f64,
    /// The burst of paced sockets with a stated rate.
    burst: u32,
    /// That of those which learn it.
    learnt_burst: u32,
    /// The receiver's window.
    window: u32,
    purpose: Purpose,
}

/// The quantity that a path is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// Loss and goodput, by all senders.
    Loss,
    /// Processor time, by those of quinn.
    Cost,
}

impl Path {
    const fn lossy(mbit: u64, round_trip_ms: u64, queue: u64) -> Self {
        Self {
            mbit,
            round_trip_ms,
            queue,
            stated: 0.9,
            burst: 2,
            // Four leave together from 100 Mbit/s on, and half of a queue of ten has room for them.
            learnt_burst: if queue < 5 || (queue < 10 && mbit >= 100) {
                2
            } else {
                4
            },
            window: 64 << 20,
            purpose: Purpose::Loss,
        }
    }

    const fn ample(mbit: u64) -> Self {
        Self {
            mbit,
            round_trip_ms: 10,
            // More than the window.
            queue: 10_000,
            stated: 1.0,
            burst: if mbit < 1000 { 4 } else { 10 },
            learnt_burst: if mbit < 1000 { 4 } else { 10 },
            window: 4 << 20,
            purpose: Purpose::Cost,
        }
    }

    fn name(&self) -> String {
        let Self {
            mbit,
            round_trip_ms,
            queue,
            ..
        } = self;
        format!("{mbit} Mbit/s, {round_trip_ms} ms, queue {queue}")
    }

    fn round_trip(&self) -> Duration {
        Duration::from_millis(self.round_trip_ms)
    }
}

struct Cell {
    path: Path,
    sender: Sender,
}

impl Cell {
    fn measure(&self, setup: &Setup, plan: &Plan) -> io::Result<Transfer> {
        let Path { mbit: rate, .. } = self.path;
        let bottleneck = Bottleneck {
            rate: mbit(rate),
            round_trip: self.path.round_trip(),
            queue: self.path.queue,
        };
        let stated = Rate::from_bps((bottleneck.rate.bps() as f64 * self.path.stated) as u64);
        let paced = Paced {
            stated: stated.ok_or(io::ErrorKind::InvalidInput)?,
            burst: match self.sender {
                Sender::Quinn(_, Socket::Learnt) => self.path.learnt_burst,
                _ => self.path.burst,
            },
        };
        let request = Request {
            during: plan.least + self.path.round_trip() * plan.round_trips,
            window: self.path.window,
        };
        setup.transfer(self.sender, bottleneck, paced, request)
    }
}

struct Plan {
    rates_mbit: &'static [u64],
    round_trips_ms: &'static [u64],
    queues: &'static [u64],
    /// The rates at which processor time is measured without loss.
    ample_mbit: &'static [u64],
    rounds: usize,
    /// The time of a transfer is this, and some round trips.
    least: Duration,
    round_trips: u32,
}

impl Plan {
    /// Returns the cells: those of one path follow each other.
    fn cells(&self, setup: &Setup) -> Vec<Cell> {
        let mut paths = Vec::new();
        for &rate in self.rates_mbit {
            for &round_trip in self.round_trips_ms {
                let of_queue = |&queue| Path::lossy(rate, round_trip, queue);
                paths.extend(self.queues.iter().map(of_queue));
            }
        }
        paths.extend(self.ample_mbit.iter().map(|&rate| Path::ample(rate)));
        let peers = setup.programs.iter().map(|(sender, _)| *sender);
        let all: Vec<Sender> = Sender::QUINN.into_iter().chain(peers).collect();
        let cells = paths.into_iter().flat_map(|path| {
            let senders = match path.purpose {
                Purpose::Loss => &all[..],
                Purpose::Cost => &Sender::QUINN[..],
            };
            senders.iter().map(move |&sender| Cell { path, sender })
        });
        cells.collect()
    }
}

const FULL: Plan = Plan {
    rates_mbit: &[10, 50, 200],
    round_trips_ms: &[10, 40, 400],
    queues: &[2, 5, 10, 50],
    ample_mbit: &[100, 1000],
    rounds: 2,
    least: Duration::from_secs(3),
    round_trips: 10,
};

const SMOKE: Plan = Plan {
    rates_mbit: &[10],
    round_trips_ms: &[10],
    queues: &[5],
    ample_mbit: &[],
    rounds: 1,
    least: Duration::from_millis(200),
    round_trips: 10,
};

const NOTES: [&str; 8] = [
    "a transfer lasts 3 s and 10 round trips from the receiver's request on, so slow start is in it; the receiver is quinn \
     on tokio for all senders, acknowledges as by default, and shares a processor with the bottleneck; the sender has another",
    "the bottleneck is softclock wan, with half of the round trip as the delay of each direction, a queue of so many packets \
     with the one being sent, and room for all acknowledgments; rates count whole frames, of at most 1494 bytes",
    "packets lost: those that the full queue dropped, of all that came to it; goodput counts the bytes that the receiver's \
     program got, 94.6 % of those of full frames; the share of the bottleneck's rate counts whole frames",
    "all senders have CUBIC (quic-go the growth of Reno, which it does not let programs choose), packets of 1452 bytes of UDP without a search for larger ones, and segmentation \
     offload as by default (the kernel segments before the link); the receiver has a window of 64 MB, and of 4 MB where \
     processor time is measured, which the queue there has room for; quinn has socket buffers of 7 MB, the others their own",
    "a stated rate is 90 % of the bottleneck's, and all of it where processor time is measured; it counts IP packets; a learnt \
     rate needs the observed controller, which ends slow start at the capacity that it measures by trains of four datagrams, \
     and holds the window below that of the last loss for as long as CUBIC's function does",
    "paced: the socket of softclock-quinn with a queue of 64 datagrams; at a stated rate a burst of 2, at a learnt one the \
     default of 4, by which the path is measured, but 2 at queues of two packets, and of five at 200 Mbit/s, where four \
     would leave together; where processor time is measured, of 4, which take 480 us at 100 Mbit/s, and of 10 at 1 Gbit/s, \
     which take 120 us",
    "tokio's runtime and softclock's have one thread; paced sockets on tokio have the timer thread beside it, on the same \
     processor, and those on softclock are timed by its loop",
    "processor time: of the sender's threads, divided by the bytes of goodput; on veth it includes a part of the kernel's \
     work for the bridge's reception, a packet at a time",
];
