//! `lrp/table-1-tcp`: throughput of TCP without overload (*LRP*, Table 1): 24 MB with buffers of 32 KB, and with
//! today's defaults.

use std::error::Error;
use std::io;

use crate::lab::lrp;
use crate::lab::tcp::bulk::{Buffers, Bulk, BulkPeer, Direction, Gvisor};
use crate::measure::turns::{Found, Turns};
use crate::output::best_peer::{Better, Comparison};
use crate::output::report::{Context, Experiment, Report, Row, Takes, median};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "lrp/table-1-tcp",
    about: "throughput of 24 MB with buffers of 32 KB and with defaults: softclock's stack, the kernel, smoltcp, gVisor",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "throughput of TCP";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    if let Err(reason) = lrp::check() {
        return Ok(Report::not_measured(TITLE, &reason));
    }
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    // Compiling takes longer than a smoke run may.
    let gvisor = match context.smoke {
        true => Err("gVisor is left out of smoke runs".to_owned()),
        false => Gvisor::compile(),
    };
    let mut peers = vec![
        BulkPeer::Own,
        BulkPeer::OwnSingle,
        BulkPeer::Kernel,
        BulkPeer::Smoltcp,
    ];
    match &gvisor {
        Ok(gvisor) => peers.push(BulkPeer::Gvisor(gvisor)),
        Err(reason) => notes.push(reason.clone()),
    }
    let mut cells: Vec<Cell<'_>> = Vec::new();
    for buffers in [Buffers::Small, Buffers::Default] {
        cells.extend(peers.iter().map(|&peer| Cell { peer, buffers }));
    }
    cells.retain(|cell| cell.starts(plan, &mut notes));
    let turns = Turns::new(context, plan.rounds, cells, Cell::name)?;
    let found = turns.measure(|cell| cell.measure(plan))?;
    let mut rows = rows(&found);
    rows.extend(BESIDE_PEERS.rows(&rows));
    Ok(Report {
        title: TITLE,
        notes,
        rows,
        charts: Vec::new(),
    })
}

/// A peer with one size of buffers.
struct Cell<'a> {
    peer: BulkPeer<'a>,
    buffers: Buffers,
}

impl Cell<'_> {
    /// Whether it can be measured on this machine. `notes` gets the reason why not.
    fn starts(&self, plan: &Plan, notes: &mut Vec<String>) -> bool {
        let once = Plan {
            transfers: 1,
            bytes: 1 << 20,
            ..*plan
        };
        let measured = self.measure(&once);
        if let Err(error) = &measured {
            notes.push(format!("{}: not measured: {error}", self.name()));
        }
        measured.is_ok()
    }

    fn name(&self) -> String {
        format!("{}, {}", self.peer.name(), self.buffers_name())
    }

    const fn buffers_name(&self) -> &'static str {
        match self.buffers {
            Buffers::Small => "buffers of 32 KB",
            Buffers::Default => "default buffers",
        }
    }

    /// Returns the medians in Mbit/s: sending and receiving.
    fn measure(&self, plan: &Plan) -> io::Result<[f64; 2]> {
        let bulk = Bulk::start(self.peer, self.buffers, plan.bytes)?;
        let median_rate = |direction| -> io::Result<f64> {
            let transfer = |_| Ok(bulk.transfer(direction, plan.bytes)? * 8.0 / 1e6);
            let rates: io::Result<Vec<f64>> = (0..plan.transfers).map(transfer).collect();
            Ok(median(&rates?))
        };
        Ok([
            median_rate(Direction::Sends)?,
            median_rate(Direction::Receives)?,
        ])
    }
}

fn rows(found: &Found<Cell<'_>, [f64; 2]>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (place, direction) in ["sending", "receiving"].into_iter().enumerate() {
        for buffers in [Buffers::Small, Buffers::Default] {
            for (cell, samples) in found.iter().filter(|(cell, _)| cell.buffers == buffers) {
                let samples = samples.iter().map(|sample| sample[place]);
                let samples: Vec<f64> = samples.collect();
                let metric = format!("{direction}; {}", cell.buffers_name());
                rows.push(Row::of_samples(
                    cell.peer.name(),
                    metric,
                    "Mbit/s",
                    &samples,
                ));
            }
        }
    }
    rows
}

const BESIDE_PEERS: Comparison = Comparison {
    is_ours: |variant| variant.starts_with(BulkPeer::Own.name()),
    is_peer: |variant| !variant.starts_with(BulkPeer::Own.name()),
    better: |_| Some(Better::More),
};

#[derive(Clone, Copy)]
struct Plan {
    /// The bytes of a transfer.
    bytes: u64,
    /// Transfers in each direction in a round.
    transfers: usize,
    rounds: usize,
}

const FULL: Plan = Plan {
    bytes: 24 << 20,
    transfers: 5,
    rounds: 7,
};

const SMOKE: Plan = Plan {
    bytes: 256 << 10,
    transfers: 1,
    rounds: 1,
};

const NOTES: [&str; 6] = [
    "a transfer of 24 MB (24 MiB) over one connection between the subject, on processor 1, and the kernel's sockets, on \
     processor 0; the time from connect(2) to the end at the receiver, handshake included; the median of five transfers is a \
     sample",
    "the subject is on a TAP device and the kernel at its other end, in one namespace; the kernel as subject is in another \
     namespace, over veth, where segments cross the link joined (TSO) and no system call carries a frame",
    "over TAP, softclock's stack takes and gives joined segments of up to 64 KB, one a system call, and leaves their checksums \
     to the kernel; with single segments it writes and reads frames of up to 1514 bytes, one a system call, as smoltcp and \
     gVisor's fdbased do on a TAP device, with checksums of its own",
    "32 KB: both directions of both ends (SO_SNDBUF and SO_RCVBUF, which the kernel doubles for its own overhead); defaults: the \
     kernel's and gVisor's grow by themselves, softclock's to 4 MiB and 6 MiB; smoltcp has none, and gets 4 MiB",
    "softclock's stack and smoltcp are driven by one thread each that does nothing else; smoltcp with its default congestion \
     control, none; gVisor's netstack by fdbased with SACK, as in runsc, GOMAXPROCS=1",
    "the paper's numbers are not in the copy of it that this project has",
];
