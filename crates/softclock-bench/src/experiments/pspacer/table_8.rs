//! `pspacer/table-8`: goodput over other links than Ethernet cards at line rate (*PSPacer/HT*, section IV-E, Table
//! VIII).
//!
//! The paper shows that pacing by a timer also works where the line rate is not reached, and on pseudo devices. This
//! experiment uses veth, a TAP device, a bond, and HTB and TBF over veth.

use std::error::Error;
use std::time::Duration;

use softclock_core::Rate;

use crate::lab::bridge::{
    self, Burst, FRAME_BYTES, Htb, Line, Load, Pace, Setup, Shaper, TCP_DATA_BYTES, mbit,
};
use crate::output::best_peer::{Better, Comparison};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pspacer/table-8",
    about: "Table VIII: goodput through pace over veth, a TAP and a bond, and through HTB, against theory",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "goodput over other links";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    bridge::report(TITLE, &NOTES, |notes| {
        let plan = if context.smoke { &SMOKE } else { &FULL };
        let mut rows = Vec::new();
        let mut variants = VARIANTS.to_vec();
        for &(target, paper) in plan.targets {
            let setups = variants.iter().map(|variant| variant.setup(target));
            let setups: Vec<Setup> = setups.collect();
            let found = bridge::rounds(context, &setups, plan.rounds, notes, |_, traffic| {
                Ok(traffic.measure(plan.slice)?.data_bps() / 1e6)
            })?;
            // A variant that did not start at one target is not tried at the next.
            variants.retain(|variant| found.iter().any(|(setup, _)| setup.name == variant.name));
            let theory = target as f64 * f64::from(TCP_DATA_BYTES) / f64::from(FRAME_BYTES);
            let metric = format!("goodput, target {target} Mbit/s");
            rows.push(Row::of_samples("theory", &metric, "Mbit/s", &[theory]));
            for (setup, goodput) in &found {
                let row = Row::of_samples(&setup.name, &metric, "Mbit/s", goodput);
                rows.push(Row {
                    paper: paper.filter(|_| setup.name == OURS),
                    ..row
                });
            }
        }
        rows.extend(BESIDE_PEERS.rows(&rows));
        Ok((rows, Vec::new()))
    })
}

const BESIDE_PEERS: Comparison = Comparison {
    is_ours: |variant| variant == OURS,
    is_peer: |variant| variant.starts_with("HTB") || variant.starts_with("TBF"),
    better: |_| Some(Better::More),
};

/// A shaper over a kind of link.
#[derive(Clone, Copy, Debug)]
struct Variant {
    name: &'static str,
    line: Line,
    of_rate: fn(Rate) -> Shaper,
}

impl Variant {
    fn setup(&self, target_mbit: u64) -> Setup {
        let shaper = (self.of_rate)(mbit(target_mbit));
        Setup::new(self.name, shaper, Load::Tcp).over(self.line)
    }

    const fn pace(name: &'static str, line: Line) -> Self {
        Self {
            name,
            line,
            of_rate: |rate| Shaper::Pace(Pace::of_rate(rate)),
        }
    }
}

const OURS: &str = "softclock pace over veth";

const VARIANTS: [Variant; 6] = [
    Variant::pace(OURS, Line::Veth),
    Variant {
        name: "HTB over veth",
        line: Line::Veth,
        of_rate: |rate| Shaper::Htb(Htb::of_rate(rate)),
    },
    Variant {
        name: "HTB, burst of 1 ms, over veth",
        line: Line::Veth,
        of_rate: |rate| {
            Shaper::Htb(Htb {
                burst: Burst::Millisecond,
                ..Htb::of_rate(rate)
            })
        },
    },
    Variant {
        name: "TBF over veth",
        line: Line::Veth,
        of_rate: |rate| Shaper::Tbf(rate, None),
    },
    Variant::pace("softclock pace over a TAP", Line::Tap),
    Variant::pace("softclock pace over a bond", Line::Bond),
];

struct Plan {
    /// Targets in Mbit/s, with the paper's goodput.
    targets: &'static [(u64, Option<f64>)],
    slice: Duration,
    rounds: usize,
}

const FULL: Plan = Plan {
    targets: &[
        (100, None),
        (500, Some(487.0)),
        (600, Some(584.0)),
        (700, Some(681.0)),
        (800, Some(780.0)),
    ],
    slice: Duration::from_millis(2000),
    rounds: 3,
};

const SMOKE: Plan = Plan {
    targets: &[(100, None)],
    slice: Duration::from_millis(200),
    rounds: 1,
};

const NOTES: [&str; 4] = [
    "HTB has tc's default burst (1600 bytes), which tc-htb(8) says bounds its rate, and then one of 1 ms, as TBF has",
    "goodput is data of TCP (iperf3, one connection, cubic, without TSO); theory: the share of data in full frames, of the \
     target",
    "TAP: programs of the bridge's own host send on it; bond: frames leave on a bond over one veth",
    "the paper's theory is 487, 584, 682 and 779 Mbit/s; PSPacer with gap packets has 448, 535, 620 and 707",
];
