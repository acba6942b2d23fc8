//! `pspacer/table-7`: processor time against the number of classes at the same total rate (*PSPacer/HT*, section IV-D,
//! Table VII).

use std::error::Error;
use std::io;
use std::thread;
use std::time::Duration;

use softclock_core::Rate;

use crate::lab::bridge::{self, Burst, Htb, Load, Pace, Setup, Shaper, Traffic, mbit};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pspacer/table-7",
    about: "Table VII: processor time against the number of classes, 1 to 1000, of pace, HTB, and the same ways unshaped",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "processor time and the number of classes";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    bridge::report(TITLE, &NOTES, |notes| {
        let plan = if context.smoke { &SMOKE } else { &FULL };
        let variants = variants(plan);
        let setups: Vec<Setup> = variants.iter().map(|variant| variant.setup()).collect();
        let found = bridge::rounds(context, &setups, plan.rounds, notes, |_, traffic| {
            sample(traffic, plan)
        })?;
        Ok((rows(&variants, &found), Vec::new()))
    })
}

fn variants(plan: &Plan) -> Vec<Variant> {
    let mut variants = Vec::new();
    for &(total_mbit, classes) in plan.totals {
        let mut add = |who, classes| {
            variants.push(Variant {
                who,
                classes,
                total_mbit,
            });
        };
        add(Who::Forwarded, 1);
        add(Who::Passed, 1);
        for who in [Who::Pace, Who::Htb] {
            classes.iter().for_each(|&classes| add(who, classes));
        }
    }
    variants
}

/// The shaper, the number of its classes, and the total rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant {
    who: Who,
    classes: u16,
    total_mbit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The kernel's bridge, without shaping.
    Forwarded,
    /// `softclock pace` with frames that match none of its classes.
    Passed,
    Pace,
    Htb,
}

impl Variant {
    fn name(self) -> String {
        let who = match self.who {
            Who::Forwarded => "forwarded".into(),
            Who::Passed => "softclock pace, passed unpaced".into(),
            Who::Pace => format!("softclock pace, classes: {}", self.classes),
            Who::Htb => format!("HTB, classes: {}", self.classes),
        };
        format!("{who}; {} Mbit/s", self.total_mbit)
    }

    fn setup(self) -> Setup {
        let rate = mbit(self.total_mbit);
        let pace = |class| Pace {
            classes: self.classes,
            class,
            ..Pace::of_rate(rate)
        };
        let (shaper, offered) = match self.who {
            Who::Forwarded => (Shaper::Forward, rate),
            Who::Passed => (Shaper::Pace(pace("proto sctp")), rate),
            Who::Pace => (Shaper::Pace(pace("burst 3000")), self.offered()),
            Who::Htb => (Shaper::Htb(self.htb()), self.offered()),
        };
        let load = Load::Flows {
            rate,
            offered,
            ports: self.classes,
        };
        Setup::new(self.name(), shaper, load)
    }

    fn htb(self) -> Htb {
        Htb {
            rate: mbit(self.total_mbit),
            classes: self.classes,
            burst: Burst::Bytes(BURST_BYTES),
        }
    }

    fn offered(self) -> Rate {
        mbit(self.total_mbit * 13 / 10)
    }

    /// Returns the variant that takes the same path through the machine without shaping.
    fn unshaped(self) -> Option<Self> {
        let who = match self.who {
            Who::Forwarded | Who::Passed => return None,
            Who::Pace => Who::Passed,
            Who::Htb => Who::Forwarded,
        };
        Some(Self {
            who,
            classes: 1,
            ..self
        })
    }

    fn forwarded(self) -> Option<Self> {
        let forwarded = Self {
            who: Who::Forwarded,
            classes: 1,
            ..self
        };
        (self != forwarded).then_some(forwarded)
    }

    /// Returns the same variant with one class; `None` for those that do not shape.
    fn one_class(self) -> Option<Self> {
        let shapes = matches!(self.who, Who::Pace | Who::Htb);
        shapes.then_some(Self { classes: 1, ..self })
    }
}

/// Rates and processor time of one slice.
struct Sample {
    frames: f64,
    bps: f64,
    /// Busy processors of the machine, less those of other work.
    machine: f64,
    others: f64,
    process: f64,
}

fn sample(traffic: Traffic, plan: &Plan) -> io::Result<Sample> {
    // Wait until all classes have used up their bursts.
    thread::sleep(plan.settle);
    let flow = traffic.measure(plan.slice)?;
    // Directly after the load, because the other work on the machine varies.
    let others = traffic.end_and_others(plan.slice / 2)?;
    Ok(Sample {
        frames: flow.frames,
        bps: flow.bps,
        machine: flow.busy.machine - others,
        others,
        process: flow.busy.process,
    })
}

impl Sample {
    fn machine_us(&self) -> f64 {
        self.machine * 1e6 / self.frames
    }

    fn process_us(&self) -> Option<f64> {
        (self.process > 0.0).then_some(self.process * 1e6 / self.frames)
    }
}

fn rows(variants: &[Variant], found: &[(Setup, Vec<Sample>)]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |metric: &str, unit, of: &dyn Fn(Variant, usize) -> Option<f64>| {
        for variant in variants {
            let rounds = found.iter().map(|(_, samples)| samples.len()).max();
            let values = (0..rounds.unwrap_or(0)).filter_map(|round| of(*variant, round));
            let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
            if !values.is_empty() {
                rows.push(Row::of_samples(variant.name(), metric, unit, &values));
            }
        }
    };
    // Differences and ratios use values of the same round, because the machine's speed changes with time.
    let at = |variant: Variant, round: usize| {
        let (_, samples) = (found.iter()).find(|(setup, _)| setup.name == variant.name())?;
        samples.get(round)
    };
    let machine = |variant, round| Some(at(variant, round)?.machine_us());
    let process = |variant, round| at(variant, round)?.process_us();
    add("machine, time a frame above idle", "us", &machine);
    add(
        "the same, above idle, relative to one class",
        "x",
        &|variant, round| Some(machine(variant, round)? / machine(variant.one_class()?, round)?),
    );
    add(
        "machine, time a frame above forwarding",
        "us",
        &|variant, round| Some(machine(variant, round)? - machine(variant.forwarded()?, round)?),
    );
    add(
        "machine, time a frame: pace above passing unpaced, HTB above forwarding",
        "us",
        &|variant, round| Some(machine(variant, round)? - machine(variant.unshaped()?, round)?),
    );
    // Ratio to HTB, the only peer, with the same number of classes.
    add(
        "the same, above idle, pace relative to HTB",
        "x",
        &|variant, round| {
            let htb = Variant {
                who: Who::Htb,
                ..variant
            };
            let ratio = machine(variant, round)? / machine(htb, round)?;
            (variant.who == Who::Pace && ratio > 0.0).then_some(ratio)
        },
    );
    add("process of pace, time a frame", "us", &process);
    add(
        "the same, above passing unpaced",
        "us",
        &|variant, round| Some(process(variant, round)? - process(variant.unshaped()?, round)?),
    );
    add(
        "process of pace, relative to one class",
        "x",
        &|variant, round| Some(process(variant, round)? / process(variant.one_class()?, round)?),
    );
    add("rate above its target", "%", &|variant, round| {
        let target = mbit(variant.total_mbit).bps() as f64;
        Some((at(variant, round)?.bps / target - 1.0) * 100.0)
    });
    add("processors busy with other work", "", &|variant, round| {
        Some(at(variant, round)?.others)
    });
    rows
}

/// The burst of an HTB class, equal to that of pace's option `burst 3000`.
const BURST_BYTES: u64 = 3000;

struct Plan {
    /// Total rates in Mbit/s, each with the numbers of classes.
    totals: &'static [(u64, &'static [u16])],
    settle: Duration,
    /// The length of a slice: whole periods of 60 ms, in which each of 1000 classes sends one frame at 200 Mbit/s.
    slice: Duration,
    rounds: usize,
}

const FULL: Plan = Plan {
    totals: &[(200, &[1, 10, 100, 1000]), (100, &[1])],
    settle: Duration::from_millis(600),
    slice: Duration::from_millis(1800),
    rounds: 4,
};

const SMOKE: Plan = Plan {
    totals: &[(200, &[1, 1000])],
    settle: Duration::ZERO,
    slice: Duration::from_millis(100),
    rounds: 1,
};

const NOTES: [&str; 4] = [
    "UDP in all, each class an equal part of it and offered 1.3 times that; classes are told apart by port, \
     in HTB by a table of u32 filters; bursts of 3000 bytes in both; a sender of our own, as iperf3 has no more than \
     128 streams; the first frames of classes, which their clocks begin with, come evenly spread",
    "machine: all processors while it runs, less those busy right after it in the same round; it holds sender, shaper, and \
     receiver; HTB works in no process; forwarded and passed unpaced: the same rate offered, and no shaper; \
     where other work keeps all processors busy it tells nothing",
    "each frame that pace sends is received and sent by the process once more: system calls and copies are most of its time; \
     passed unpaced, the frames go through the same process in none of its classes, but mostly many by one call, as they come; \
     what pacing takes more is its clock, its queues, and a call for each",
    "Table VII is of 1 to 8 Gbit/s in % of 8 processors; at 4 Gbit/s with 1, 40 and 80 classes: PSPacer/HT 3.66, 5.81, 8.19 \
     (1, 1.6 and 2.2 times), HTB 3.92, 4.15, 4.49; at 8 Gbit/s with 1, 80 and 160: 8.35, 11.09, 17.04, HTB 8.88, 12.32, 25.55",
];
