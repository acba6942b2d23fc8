//! `tcp/loss`: goodput over long paths with losses, of this project's stack and of the kernel's CUBIC.
//!
//! `softclock wan` emulates the path, with the same seeds for both senders. The receiver is the kernel for both.

use std::error::Error;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::command;
use crate::lab::bridge::{self, FRAME_BYTES, Shaper, mbit};
use crate::lab::tcp::{FarServer, FarStack};
use crate::measure::turns::{Found, Turns};
use crate::output::report::{Context, Experiment, Report, Row, Takes};
use crate::servers::readable_by_all;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "tcp/loss",
    about: "goodput of softclock's own TCP and of the kernel's CUBIC at 100 Mbit/s, 10 to 200 ms, with losses and reordering",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "goodput over long paths with losses";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let root = tempfile::tempdir()?;
    let servers = match servers(root.path()) {
        Ok(servers) => servers,
        Err(reason) => return Ok(Report::not_measured(TITLE, &reason)),
    };
    let mut turns = Turns::new(context, plan.rounds, plan.cells, |cell| cell.name())?;
    for round in 0..turns.rounds() {
        turns.round(|cell| cell.measure_both(&servers, round, plan))?;
    }
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    notes.extend(bridge::notes());
    notes.push(format!(
        "congestion control of the kernel's sender, by its route (congctl), as ss shows it: {}",
        servers[1].congestion
    ));
    Ok(Report {
        title: TITLE,
        notes,
        rows: rows(&turns.end()),
        charts: Vec::new(),
    })
}

/// Starts both servers, or returns why this machine cannot.
fn servers(root: &Path) -> Result<[FarServer; 2], String> {
    bridge::check()?;
    let prepare = || {
        command::softclock()?;
        readable_by_all(root)?;
        // Longer than any transfer.
        File::create(root.join(FILE.trim_start_matches('/')))?.set_len(FILE_BYTES)?;
        let [own, kernel] = STACKS.map(|stack| FarServer::start(stack, root));
        Ok([own?, kernel?])
    };
    prepare().map_err(|error: io::Error| error.to_string())
}

/// A path.
struct Cell {
    round_trip: Duration,
    loss: &'static str,
    reorder: &'static str,
}

impl Cell {
    const fn lossy(ms: u64, loss: &'static str) -> Self {
        Self {
            round_trip: Duration::from_millis(ms),
            loss,
            reorder: "0%",
        }
    }

    const fn reordering(ms: u64) -> Self {
        Self {
            round_trip: Duration::from_millis(ms),
            loss: "0%",
            reorder: "0.1%",
        }
    }

    fn name(&self) -> String {
        let ms = self.round_trip.as_millis();
        match self.reorder {
            "0%" => format!("{ms} ms, {} lost", self.loss),
            share => format!("{ms} ms, {share} overtake others by {} ms", ms / 2),
        }
    }

    /// The packets of the bandwidth-delay product.
    fn queue(&self) -> u64 {
        let bits = mbit(RATE_MBIT).bps() as f64 * self.round_trip.as_secs_f64();
        (bits / 8.0 / f64::from(FRAME_BYTES)).ceil() as u64
    }

    /// The time of a transfer: long enough that slow start is the smaller part of it on an unbroken path.
    fn time(&self, plan: &Plan) -> Duration {
        plan.least + self.round_trip * plan.round_trips
    }

    /// Returns the goodput of both servers, which take turns in being first.
    fn measure_both(
        &self,
        servers: &[FarServer; 2],
        round: usize,
        plan: &Plan,
    ) -> Result<[f64; 2], String> {
        let mut goodput = [0.0; 2];
        for turn in 0..2 {
            let index = (round + turn) % 2;
            let measured = self.measure(&servers[index], round, plan);
            let name = STACKS[index].name();
            goodput[index] = measured.map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(goodput)
    }

    /// Returns the goodput in Mbit/s.
    fn measure(&self, server: &FarServer, round: usize, plan: &Plan) -> io::Result<f64> {
        let path = bridge::Path {
            rate: mbit(RATE_MBIT),
            delay: self.round_trip / 2,
            queues: [self.queue(); 2],
            loss: self.loss,
            reorder: self.reorder,
            seed: FIRST_SEED + round as u64,
        };
        let bps = server.goodput(Shaper::Path(path), self.round_trip, FILE, self.time(plan))?;
        Ok(bps / 1e6)
    }
}

fn rows(found: &Found<&Cell, [f64; 2]>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    for (cell, samples) in found {
        let name = cell.name();
        let row = |index: usize| {
            let metric = format!("goodput; {name}");
            let of_stack: Vec<f64> = samples.iter().map(|both| both[index]).collect();
            Row::of_samples(STACKS[index].name(), metric, "Mbit/s", &of_stack)
        };
        let [own, kernel] = [row(0), row(1)];
        let pairs = samples.iter().filter(|[_, kernel]| *kernel > 0.0);
        let of_pairs: Vec<f64> = pairs.map(|[own, kernel]| own / kernel).collect();
        let mut relative = |what: &str, ratio: &[f64]| {
            if !ratio.is_empty() {
                let metric = format!("goodput relative to the kernel's, {what}; {name}");
                ratios.push(Row::of_samples(STACKS[0].name(), metric, "x", ratio));
            }
        };
        relative("pairs of one seed", &of_pairs);
        if kernel.value > 0.0 {
            relative("of the medians", &[own.value / kernel.value]);
        }
        rows.extend([own, kernel]);
    }
    rows.extend(ratios);
    rows
}

struct Plan {
    cells: &'static [Cell],
    /// The time of a transfer is this, and some round trips.
    least: Duration,
    round_trips: u32,
    rounds: usize,
}

const FULL: Plan = Plan {
    cells: &[
        Cell::lossy(10, "0%"),
        Cell::lossy(10, "0.01%"),
        Cell::lossy(10, "0.1%"),
        Cell::lossy(10, "1%"),
        Cell::lossy(66, "0%"),
        Cell::lossy(66, "0.01%"),
        Cell::lossy(66, "0.1%"),
        Cell::lossy(66, "1%"),
        Cell::lossy(200, "0%"),
        Cell::lossy(200, "0.01%"),
        Cell::lossy(200, "0.1%"),
        Cell::lossy(200, "1%"),
        Cell::reordering(10),
        Cell::reordering(66),
        Cell::reordering(200),
    ],
    least: Duration::from_millis(1300),
    round_trips: 10,
    rounds: 20,
};

const SMOKE: Plan = Plan {
    cells: &[
        Cell::lossy(10, "0%"),
        Cell::lossy(10, "1%"),
        Cell::reordering(10),
    ],
    least: Duration::from_millis(150),
    round_trips: 1,
    rounds: 1,
};

const STACKS: [FarStack; 2] = [FarStack::Own, FarStack::Kernel("cubic")];

const RATE_MBIT: u64 = 100;
const FIRST_SEED: u64 = 1;

const FILE: &str = "/file";
const FILE_BYTES: u64 = 1 << 30;

const NOTES: [&str; 6] = [
    "goodput: the bits that the receiver's program has read, over the time from its request on; a transfer is cut off after \
     1.3 s and ten round trips (1.4 s at 10 ms, 1.96 s at 66 ms, 3.3 s at 200 ms), so slow start is in it",
    "the path: softclock wan, a bottleneck of 100 Mbit/s in each direction (whole frames of 1500 bytes) with a queue of one \
     bandwidth-delay product (84, 550 and 1667 packets) and half of the round trip as the delay of each direction; losses and \
     reordering in the direction of the data only",
    "seeds 1 to 20, one for each round and the same for both senders; each decision is for one packet in the order of the \
     path, so that a pair of one seed loses the same packets until the senders differ; with 0.1 % and more, goodput depends \
     above all on how early slow start meets its first loss, so that medians over the seeds vary more than pairs do",
    "both senders are softclock serve on one thread, and send the same file of zeros; the own stack by AF_XDP, with its default \
     algorithms (CUBIC, HyStart++, PRR, RACK-TLP, paced); the kernel with cubic, without segmentation by the link, and without metrics of \
     earlier connections (tcp_no_metrics_save)",
    "the receiver is the kernel for both; the buffers of all ends grow to 16 MiB (tcp_rmem, tcp_wmem, --tcp-send-buffer), as \
     4 MiB, the default of both senders, are less than they need on the longest path; the request is one segment",
    "overtake: these packets skip the delay, and arrive before those that were sent up to so long before them",
];
