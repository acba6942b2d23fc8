//! `pspacer/table-7`: processor time against the number of classes at the same total rate (*PSPacer/HT*, section IV-D):
//! Table VII.

use std::error::Error;
use std::io;
use std::thread;
use std::time::Duration;

use crate::lab::{self, Load, Pace, Setup, Shaper, Traffic, Usage, mbit};
use crate::report::{Context, Experiment, Report, Row};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pspacer/table-7",
    about: "Table VII: processor time against the number of classes, 1 to 1000, of pace and HTB",
    run,
};

const TITLE: &str = "processor time and the number of classes";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    lab::report(TITLE, &NOTES, |notes| {
        let plan = if context.smoke { &SMOKE } else { &FULL };
        let setups = setups(plan);
        let found = lab::rounds(context, &setups, plan.rounds, notes, |_, traffic| {
            sample(traffic, plan)
        })?;
        Ok((rows(&found), Vec::new()))
    })
}

fn setups(plan: &Plan) -> Vec<Setup> {
    let rate = mbit(RATE_MBIT);
    let mut setups = vec![Setup::new(
        "forwarded",
        Shaper::Forward,
        Load::Flows(rate, 1),
    )];
    for kind in [PACE, HTB] {
        for &classes in plan.classes {
            let shaper = match kind {
                PACE => Shaper::Pace(Pace {
                    classes,
                    class: "burst 3000",
                    ..Pace::of_rate(rate)
                }),
                _ => Shaper::Htb(rate, classes),
            };
            let load = Load::Flows(mbit(RATE_MBIT * 13 / 10), classes);
            setups.push(Setup::new(format!("{kind}, {classes}"), shaper, load));
        }
    }
    setups
}

/// What one slice took.
struct Sample {
    frames: f64,
    rate_error: f64,
    /// Processors of the machine beyond those of others.
    machine: f64,
    others: f64,
    process: f64,
}

fn sample(traffic: Traffic, plan: &Plan) -> io::Result<Sample> {
    // Until all classes have used their bursts up.
    thread::sleep(plan.settle);
    let flow = traffic.measure(plan.slice)?;
    traffic.end()?;
    let before = Usage::now(None)?;
    thread::sleep(plan.slice / 2);
    let others = Usage::now(None)?.since(&before).machine;
    let target = mbit(RATE_MBIT).bps() as f64;
    Ok(Sample {
        frames: flow.frames,
        rate_error: (flow.bps / target - 1.0) * 100.0,
        machine: flow.busy.machine - others,
        others,
        process: flow.busy.process,
    })
}

impl Sample {
    fn machine_us(&self) -> f64 {
        self.machine * 1e6 / self.frames
    }

    fn process_us(&self) -> f64 {
        self.process * 1e6 / self.frames
    }
}

type Results = [(Setup, Vec<Sample>)];

fn rows(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |metric: &str, unit, of: &dyn Fn(&Setup, usize) -> Option<f64>| {
        for (setup, samples) in results {
            let values = (0..samples.len()).filter_map(|round| of(setup, round));
            let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
            if !values.is_empty() {
                rows.push(Row::of_samples(&setup.name, metric, unit, &values));
            }
        }
    };
    let at = |name: &str, round: usize| {
        let (_, samples) = results.iter().find(|(setup, _)| setup.name == name)?;
        samples.get(round)
    };
    // Of the same round, as the machine changes with time.
    let one = |setup: &Setup, round| {
        let (kind, _) = setup.name.split_once(',')?;
        at(&format!("{kind}, 1"), round)
    };
    add("machine, time a frame above idle", "us", &|setup, round| {
        Some(at(&setup.name, round)?.machine_us())
    });
    add(
        "the same, above idle, relative to one class",
        "x",
        &|setup, round| {
            Some(at(&setup.name, round)?.machine_us() / one(setup, round)?.machine_us())
        },
    );
    add(
        "machine, time a frame above forwarding",
        "us",
        &|setup, round| {
            let forwarded = at("forwarded", round).filter(|_| setup.name != "forwarded")?;
            Some(at(&setup.name, round)?.machine_us() - forwarded.machine_us())
        },
    );
    let process = |setup: &Setup, round| {
        let us = at(&setup.name, round)?.process_us();
        (us > 0.0).then_some(us)
    };
    add("process of pace, time a frame", "us", &process);
    add("the same, relative to one class", "x", &|setup, round| {
        Some(process(setup, round)? / one(setup, round)?.process_us())
    });
    add("rate above its target", "%", &|setup, round| {
        Some(at(&setup.name, round)?.rate_error)
    });
    add("processors busy with other work", "", &|setup, round| {
        Some(at(&setup.name, round)?.others)
    });
    rows
}

struct Plan {
    classes: &'static [u16],
    settle: Duration,
    /// Whole periods of 60 ms, in which each of 1000 classes, which began together, sends a frame.
    slice: Duration,
    rounds: usize,
}

const FULL: Plan = Plan {
    classes: &[1, 10, 100, 1000],
    settle: Duration::from_millis(800),
    slice: Duration::from_millis(2400),
    rounds: 5,
};

const SMOKE: Plan = Plan {
    classes: &[1, 1000],
    settle: Duration::ZERO,
    slice: Duration::from_millis(100),
    rounds: 1,
};

/// Of all classes together.
const RATE_MBIT: u64 = 200;

const PACE: &str = "softclock pace, classes";
const HTB: &str = "HTB, classes";

const NOTES: [&str; 4] = [
    "200 Mbit/s of UDP in all, each class an equal part of it and offered 1.3 times that; classes are told apart by port, \
     in HTB by a table; bursts of 3000 bytes in pace, tc's default in HTB; a sender of our own, as iperf3 has no more than \
     128 streams",
    "machine: all processors while it runs, less those busy right after it in the same round; it holds sender, shaper, and \
     receiver; HTB works in no process; forwarded: 200 Mbit/s and no shaper; \
     where other work keeps all processors busy it tells nothing",
    "each frame that pace sends is received and sent by the process once more: system calls and copies are most of its time",
    "Table VII is of 1 to 8 Gbit/s in % of 8 processors; at 4 Gbit/s with 1, 40 and 80 classes: PSPacer/HT 3.66, 5.81, 8.19 \
     (1, 1.6 and 2.2 times), HTB 3.92, 4.15, 4.49; at 8 Gbit/s with 1, 80 and 160: 8.35, 11.09, 17.04, HTB 8.88, 12.32, 25.55",
];
