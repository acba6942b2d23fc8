//! `clocked-interrupts/table-1`: throughput of TCP against the size of socket buffers, by way of signalling (*Clocked
//! Interrupts*, Table 1), and the same with a compute-bound process on the receiver's processor (4.1).

use std::error::Error;
use std::io;
use std::time::Duration;

use softclock::Rate;

use super::super::cells::{self, Cell};
use super::super::signalling::comparisons::comparisons;
use super::signals;
use crate::lab::signalling::{Bulk, Ends, Flow, Signal, Transfer};
use crate::output::best_peer::Better;
use crate::output::metric::Metric;
use crate::output::report::{Context, Experiment, Report, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "clocked-interrupts/table-1",
    about: "throughput of TCP against socket buffer by interrupts, polling, clock and soft polls, also beside a computing process",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "throughput by way of signalling";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let signals = match context.smoke {
        true => signals::few(),
        false => signals::all(),
    };
    let notes: Vec<&str> = signals::NOTES.into_iter().chain(OWN_NOTES).collect();
    let mut report = cells::report(
        context,
        (TITLE, &notes),
        (cells(&signals, plan), plan.rounds),
        &METRICS,
        |setting| measure(*setting, plan).map(|flow| vec![flow]),
        |_| Vec::new(),
    )?;
    for row in &mut report.rows {
        row.paper = paper(&row.variant, &row.metric);
    }
    let ratios = comparisons(&report.rows, |metric| {
        metric.starts_with(THROUGHPUT).then_some(Better::More)
    });
    report.rows.extend(ratios);
    Ok(report)
}

/// What is measured in a cell.
#[derive(Clone, Copy, Debug)]
struct Setting {
    signal: Signal,
    kilobytes: u32,
    part: Part,
}

/// The ends of the transfer that have the way of signalling, and what else there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Both ends, as in the paper, on processors that have nothing else to do.
    BothEnds,
    /// The receiver; the sender has interrupts.
    Receiver,
    /// Both ends; a thread computes on the receiver's processor.
    BothEndsBesideWork,
    /// The receiver, beside such a thread.
    ReceiverBesideWork,
    /// Both ends, beside such a thread, with a sender as fast as the paper's link.
    AtPapersRate,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::BothEnds => "both ends",
            Self::Receiver => "receiver only",
            Self::BothEndsBesideWork => "both ends, computing process",
            Self::ReceiverBesideWork => "receiver only, computing process",
            Self::AtPapersRate => "both ends, computing process, sender of 145 Mbit/s",
        }
    }

    const fn is_of_both(self) -> bool {
        !matches!(self, Self::Receiver | Self::ReceiverBesideWork)
    }

    const fn has_work(self) -> bool {
        !matches!(self, Self::BothEnds | Self::Receiver)
    }

    fn rate(self) -> Option<Rate> {
        match self {
            Self::AtPapersRate => Rate::from_bps(PAPERS_BPS),
            _ => None,
        }
    }
}

fn cells(signals: &[Signal], plan: &Plan) -> Vec<Cell<Setting>> {
    let mut cells = Vec::new();
    for &(part, sizes) in plan.parts {
        for &kilobytes in sizes {
            cells.extend(signals.iter().map(|&signal| Cell {
                variant: signal.name(),
                setting: setting_name(kilobytes, part),
                content: Setting {
                    signal,
                    kilobytes,
                    part,
                },
            }));
        }
    }
    cells
}

fn setting_name(kilobytes: u32, part: Part) -> String {
    format!("buffers of {kilobytes} KB, {}", part.name())
}

fn measure(setting: Setting, plan: &Plan) -> io::Result<Flow> {
    let ends = Ends {
        sender: match setting.part.is_of_both() {
            true => setting.signal,
            false => setting.signal.by_interrupts(),
        },
        receiver: setting.signal,
    };
    let transfer = Transfer {
        buffer: setting.kilobytes << 10,
        rate: setting.part.rate(),
    };
    let mut bulk = Bulk::start(ends, transfer)?;
    if setting.part.has_work() {
        bulk.compute()?;
    }
    bulk.begin()?;
    std::thread::sleep(plan.settle);
    bulk.flow(match setting.part.has_work() {
        // The scheduler gives the processor away for milliseconds.
        true => 2 * plan.slice,
        false => plan.slice,
    })
}

const THROUGHPUT: &str = "throughput";

const METRICS: [Metric<Flow>; 6] = [
    (THROUGHPUT, "Mbit/s", |flow| Some(flow.mbit_per_second())),
    ("receiver's share of its processor", "%", |flow| {
        Some(100.0 * flow.share())
    }),
    ("runs of the receiver", "1/s", |flow| {
        Some(flow.runs_per_second())
    }),
    ("lost to other threads before each run", "us", |flow| {
        Some(flow.wait_per_run().as_secs_f64() * 1e6)
    }),
    (
        "share of the processor that the computing process gets",
        "%",
        |flow| Some(100.0 * flow.computing_share()?),
    ),
    (
        "busy time of the receiver's processor, each MB",
        "us",
        |flow| {
            // Beside a computing process the processor is always busy.
            let is_alone = flow.computing.is_none();
            is_alone.then(|| flow.busy_per_megabyte().as_secs_f64() * 1e6)
        },
    ),
];

/// The paper's throughput.
fn paper(variant: &str, metric: &str) -> Option<f64> {
    let setting = metric.strip_prefix(THROUGHPUT)?.strip_prefix("; ")?;
    if setting == setting_name(256, Part::AtPapersRate) {
        let of = LOADED.iter().find(|(name, _)| *name == variant);
        return of.map(|&(_, value)| value);
    }
    let place = SIZES_KB
        .iter()
        .position(|&size| setting == setting_name(size, Part::BothEnds))?;
    let of = DEDICATED.iter().find(|(name, _)| *name == variant);
    of.map(|&(_, values)| values[place])
}

/// Table 1, in Mbit/s, for [`SIZES_KB`].
const DEDICATED: [(&str, [f64; 9]); 6] = [
    (
        "interrupt",
        [
            6.75, 12.45, 20.82, 30.80, 51.73, 66.83, 76.25, 124.97, 144.05,
        ],
    ),
    (
        "poll",
        [6.34, 13.24, 22.43, 37.27, 50.03, 64.02, 76.78, 81.57, 82.62],
    ),
    (
        "clocked=2000us",
        [2.60, 5.02, 9.28, 16.20, 21.72, 37.95, 57.17, 95.00, 143.76],
    ),
    (
        "clocked=1000us",
        [
            3.92, 7.36, 13.40, 22.96, 42.03, 52.26, 65.27, 110.03, 144.10,
        ],
    ),
    (
        "clocked=500us",
        [
            5.88, 9.81, 18.17, 26.58, 45.64, 61.72, 70.91, 117.24, 143.59,
        ],
    ),
    (
        "clocked=250us",
        [
            6.67, 11.94, 21.57, 35.35, 50.35, 64.27, 73.22, 121.09, 143.81,
        ],
    ),
];

/// With a computing process on the receiver, and buffers of 256 KB.
const LOADED: [(&str, f64); 3] = [
    ("interrupt", 61.8),
    ("poll", 48.6),
    ("clocked=2000us", 106.19),
];

struct Plan {
    /// With the sizes of buffers, in KB.
    parts: &'static [(Part, &'static [u32])],
    settle: Duration,
    slice: Duration,
    rounds: usize,
}

const SIZES_KB: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

const FULL: Plan = Plan {
    parts: &[
        (Part::BothEnds, &SIZES_KB),
        (Part::Receiver, &[4, 32, 256]),
        (Part::BothEndsBesideWork, &[32, 256]),
        (Part::ReceiverBesideWork, &[256]),
        (Part::AtPapersRate, &[256]),
    ],
    settle: Duration::from_millis(100),
    slice: Duration::from_millis(200),
    rounds: 3,
};

const SMOKE: Plan = Plan {
    parts: &[(Part::BothEnds, &[1, 64]), (Part::AtPapersRate, &[256])],
    settle: Duration::from_millis(60),
    slice: Duration::from_millis(60),
    rounds: 1,
};

/// That of the paper's link, which its throughput reached.
const PAPERS_BPS: u64 = 144_900_000;

const OWN_NOTES: [&str; 4] = [
    "messages of 32 KB, without end; send and receive buffers of both ends; this project's stack rounds receive buffers up to \
     whole segments of 1448 bytes, and the kernel doubles both for its own overhead (socket(7)) and has at least 2304 and 4608",
    "receiver only: the sender has interrupts; the paper measured both ends only",
    "computing process: a thread of the receiver's priority on the receiver's processor, as the paper's `factor`; runs \
     of the receiver: the times that the scheduler gave it the processor; lost to other threads: the mean time for which it was \
     ready before that (schedstat)",
    "sender of 145 Mbit/s: paced, as fast as the paper's link of 144.9 Mbit/s, which its interrupts did not reach beside the \
     computing process; without that limit a window a period is the most that a clock moves: 1 Gbit/s with 256 KB and 2 ms",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_numbers_are_found() {
        let both = |size| format!("throughput; {}", setting_name(size, Part::BothEnds));
        assert_eq!(paper("poll", &both(1)), Some(6.34));
        assert_eq!(paper("clocked=250us", &both(256)), Some(143.81));
        let loaded = format!("throughput; {}", setting_name(256, Part::AtPapersRate));
        assert_eq!(paper("clocked=2000us", &loaded), Some(106.19));
        assert_eq!(paper("hybrid", &both(1)), None);
        let signals: Vec<String> = signals::all().into_iter().map(Signal::name).collect();
        for (name, _) in DEDICATED {
            assert!(signals.iter().any(|signal| signal == name), "{name}");
        }
    }
}
