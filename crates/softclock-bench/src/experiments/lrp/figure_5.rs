//! `lrp/figure-5`: HTTP throughput beside a flood of SYNs to a port whose listener never accepts (*LRP*, Figure 5),
//! beside the paper's flood of datagrams, and under a flood of the served port itself; and the recovery at the end of a
//! flood.

use std::error::Error;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use softclock_linux::priority::Priority;
use softclock_net::stack::Architecture;

use crate::lab::lrp::{Flood, Target};
use crate::lab::tcp::{
    Attack, Carrier, Load, Placement, SMALL, Stage, Subject, arrivals_after, check, versions,
    write_files,
};
use crate::load::closed_loop;
use crate::measure::turns::{Found, Turns};
use crate::output::chart::{Chart, Mark, Series};
use crate::output::report::{Context, Experiment, Report, Row, Takes, median};
use crate::servers::nginx::Files;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "lrp/figure-5",
    about: "HTTP throughput under floods of SYNs and of datagrams, and recovery after them, beside nginx, cookies and synproxy",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "HTTP throughput under a flood";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    if let Err(reason) = check() {
        return Ok(Report::not_measured(TITLE, &reason));
    }
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let root = tempfile::tempdir()?;
    write_files(root.path(), &[SMALL])?;
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    notes.extend([closed_loop::Load::detect().note().to_owned(), versions()]);
    let curves = curves(plan, root.path(), &mut notes);
    let turns = Turns::new(context, plan.rounds, curves, Curve::name)?;
    let found = turns.measure(|curve| curve.measure(root.path(), plan))?;
    Ok(Report {
        title: TITLE,
        notes,
        rows: rows(&found, plan.cases),
        charts: vec![chart(&found)],
    })
}

/// A server under an attack of rising rates.
struct Curve {
    subject: Subject,
    attack: &'static Case,
}

/// An attack, its rates, and the use of connections by the clients.
struct Case {
    attack: Attack,
    keep_alive: bool,
    /// Frames a second, in ascending order from 0 on; a rate that no sender reaches stands for the machine's limit.
    rates: &'static [u64],
}

struct Sweep {
    /// One for each rate.
    points: Vec<Point>,
    recovery: Duration,
}

#[derive(Clone, Copy)]
struct Point {
    /// Requests answered a second.
    answered: f64,
    /// Frames of the attack a second.
    sent: f64,
    /// Requests answered a second beside the same flood into the reference, if it has a rate.
    beside_reference: Option<f64>,
}

impl Case {
    fn clients(&self) -> &'static str {
        match self.keep_alive {
            true => "established connections",
            false => "one connection a request",
        }
    }

    fn setting(&self, rate: u64) -> String {
        let clients = self.clients();
        match rate {
            0 => format!("no flood, {clients}"),
            MOST => format!("{}, all that can be sent, {clients}", self.attack.name()),
            rate => format!("{}, {rate}/s, {clients}", self.attack.name()),
        }
    }
}

impl Curve {
    fn name(&self) -> String {
        let Self { subject, attack } = self;
        let (flood, clients) = (attack.attack.name(), attack.clients());
        format!("{}, {flood}, {clients}", subject.name())
    }

    fn measure(&self, root: &Path, plan: &Plan) -> io::Result<Sweep> {
        let stage = Stage::new(self.subject, root, plan.connections)?;
        let flood = self.attack.attack.start(&stage)?;
        let load = Load {
            file: SMALL,
            connections: plan.connections,
            keep_alive: self.attack.keep_alive,
            slice: plan.slice,
        };
        let warm = Load {
            slice: plan.settle,
            ..load
        };
        answered(&stage, &warm)?;
        let under = |rate: u64, target| {
            match rate {
                MOST => flood.set(rate, target),
                rate => flood.set_ahead(rate, target),
            }
            thread::sleep(plan.settle);
            let (before, begun) = (flood.sent(), Instant::now());
            let answered = answered(&stage, &load)?;
            let sent = (flood.sent() - before) as f64 / begun.elapsed().as_secs_f64();
            io::Result::Ok((answered, sent))
        };
        // All of them first: a server may need seconds to recover from a flood.
        let references = self.attack.rates.iter().map(|&rate| match rate {
            0 | MOST => Ok(None),
            rate => under(rate, Target::Reference).map(|(answered, _)| Some(answered)),
        });
        let references: Vec<_> = references.collect::<io::Result<_>>()?;
        let points = self.attack.rates.iter().zip(references);
        let points = points.map(|(&rate, beside_reference)| {
            let (answered, sent) = under(rate, Target::Server)?;
            Ok(Point {
                answered,
                sent,
                beside_reference,
            })
        });
        let points: io::Result<_> = points.collect();
        flood.set(0, Target::Server);
        thread::sleep(plan.pause);
        Ok(Sweep {
            points: points?,
            recovery: recovery(&stage, &flood, &load, plan)?,
        })
    }
}

/// The requests that are answered a second: none if the server does not answer even the first one.
fn answered(stage: &Stage, load: &Load) -> io::Result<f64> {
    match stage.load_with(load, Some(CLIENTS)) {
        Err(error) if closed_loop::is_unanswered(&error) => Ok(0.0),
        sample => Ok(sample?.requests_per_second()),
    }
}

/// The time from the end of a flood at the machine's limit until the clients get 95 % of what they got before it.
fn recovery(stage: &Stage, flood: &Flood, load: &Load, plan: &Plan) -> io::Result<Duration> {
    let lasting = Load {
        slice: plan.settle + plan.slice + plan.flooded + plan.after,
        ..*load
    };
    thread::scope(|scope| {
        let clients = scope.spawn(|| stage.load_with(&lasting, Some(CLIENTS)));
        thread::sleep(plan.settle);
        let before = arrivals_after(stage, || (), plan.slice)?.mean();
        flood.set(MOST, Target::Server);
        thread::sleep(plan.flooded);
        let ended = || flood.set(0, Target::Server);
        let after = arrivals_after(stage, ended, plan.after)?;
        // Clients without an answer show in the counts.
        match clients.join() {
            Ok(Err(error)) if !closed_loop::is_unanswered(&error) => Err(error),
            _ => Ok(()),
        }?;
        Ok(after.time_until(0.95 * before))
    })
}

/// The curves that this machine can measure. `notes` gets the reasons for the others.
fn curves(plan: &Plan, root: &Path, notes: &mut Vec<String>) -> Vec<Curve> {
    let mut curves = Vec::new();
    for &subject in plan.subjects {
        let starts = || match Stage::new(subject, root, plan.connections) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        match subject.check().and_then(|()| starts()) {
            Ok(()) => curves.extend(plan.cases.iter().map(|attack| Curve { subject, attack })),
            Err(reason) => notes.push(format!("{}: not measured: {reason}", subject.name())),
        }
    }
    curves
}

/// The name, the unit, and the value at a rate; `None` leaves the round out.
type Metric = (&'static str, &'static str, fn(&Sweep, usize) -> Option<f64>);

const METRICS: [Metric; 4] = [
    ("throughput not lost", "1/s", |sweep, place| {
        Some(sweep.points[place].answered)
    }),
    (
        "share of the throughput without flood",
        "%",
        |sweep, place| {
            let without = sweep.points[0].answered;
            (without > 0.0).then(|| 100.0 * sweep.points[place].answered / without)
        },
    ),
    (
        "share of the throughput beside the same flood into the reference",
        "%",
        |sweep, place| {
            let point = &sweep.points[place];
            let beside = point.beside_reference.filter(|&beside| beside > 0.0)?;
            Some(100.0 * point.answered / beside)
        },
    ),
    ("sent by the attack", "k/s", |sweep, place| {
        Some(sweep.points[place].sent / 1e3)
    }),
];

fn rows(found: &Found<Curve, Sweep>, cases: &[Case]) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in cases {
        let of_case = || {
            found
                .iter()
                .filter(|(curve, _)| std::ptr::eq(curve.attack, case))
        };
        for (place, &rate) in case.rates.iter().enumerate() {
            // Without a flood the shares are all 100 %, and nothing is sent.
            let metrics = if rate == 0 {
                &METRICS[..1]
            } else {
                &METRICS[..]
            };
            for (metric, unit, of) in metrics {
                for (curve, sweeps) in of_case() {
                    let values = sweeps.iter().filter_map(|sweep| of(sweep, place));
                    let values: Vec<f64> = values.collect();
                    if values.is_empty() {
                        continue;
                    }
                    let setting = match rate {
                        0 => format!("{} beside {}", case.setting(0), case.attack.name()),
                        rate => case.setting(rate),
                    };
                    let metric = format!("{metric}; {setting}");
                    rows.push(Row::of_samples(curve.subject.name(), metric, unit, &values));
                }
            }
        }
        for (curve, sweeps) in of_case() {
            let times = sweeps.iter();
            let times: Vec<f64> = times
                .map(|sweep| sweep.recovery.as_secs_f64() * 1e3)
                .collect();
            let metric = format!(
                "back at 95 % after {}, {}",
                case.attack.name(),
                case.clients()
            );
            rows.push(Row::of_samples(curve.subject.name(), metric, "ms", &times));
        }
    }
    rows
}

/// The paper's figure.
fn chart(found: &Found<Curve, Sweep>) -> Chart {
    let of_paper = |(Curve { attack, .. }, _): &&(Curve, _)| {
        attack.attack == Attack::SynsElsewhere && !attack.keep_alive
    };
    let median_of = |sweeps: &[Sweep], place: usize, of: fn(&Point) -> f64| {
        let values = sweeps.iter().map(|sweep| of(&sweep.points[place]));
        let values: Vec<f64> = values.collect();
        median(&values)
    };
    let series = found.iter().filter(of_paper).map(|(curve, sweeps)| Series {
        name: curve.subject.name(),
        mark: Mark::Line,
        points: (0..curve.attack.rates.len())
            .map(|place| {
                let sent = median_of(sweeps, place, |point| point.sent / 1e3);
                (sent, median_of(sweeps, place, |point| point.answered))
            })
            .collect(),
    });
    let title = "requests answered against SYNs to another port".to_owned();
    let labels = ["SYNs, thousands a second", "requests a second"];
    Chart::from_zero(title, labels, series.collect())
}

struct Plan {
    subjects: &'static [Subject],
    cases: &'static [Case],
    connections: usize,
    settle: Duration,
    slice: Duration,
    /// The time between the floods of rising rates and the one before recovery.
    pause: Duration,
    /// The time of the flood before recovery.
    flooded: Duration,
    /// The time that is watched after it.
    after: Duration,
    rounds: usize,
}

const FULL: Plan = Plan {
    subjects: &[
        Subject::Stack(Architecture::Bsd, Carrier::Xdp),
        Subject::Stack(Architecture::EarlyDemux, Carrier::Xdp),
        Subject::Stack(Architecture::SoftLrp, Carrier::Xdp),
        Subject::Stack(Architecture::NiLrp, Carrier::Xdp),
        Subject::Kernel(Placement::Rps),
        Subject::Kernel(Placement::ThreadedNapi),
        Subject::Nginx(Files::ReadCached, Placement::Rps),
        Subject::Nginx(Files::ReadCached, Placement::ThreadedNapi),
        Subject::GuardedKernel(Placement::Rps),
        Subject::GuardedKernel(Placement::ThreadedNapi),
        Subject::GuardedNginx(Files::ReadCached, Placement::Rps),
        Subject::GuardedNginx(Files::ReadCached, Placement::ThreadedNapi),
    ],
    cases: &[
        Case {
            attack: Attack::SynsElsewhere,
            keep_alive: false,
            rates: &[0, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, MOST],
        },
        Case {
            attack: Attack::SynsElsewhere,
            keep_alive: true,
            rates: &[0, 20_000, 200_000, MOST],
        },
        Case {
            attack: Attack::Datagrams,
            keep_alive: false,
            rates: &[0, 20_000, 100_000, MOST],
        },
        Case {
            attack: Attack::Syns,
            keep_alive: false,
            rates: &[0, 20_000, 200_000, MOST],
        },
        Case {
            attack: Attack::Syns,
            keep_alive: true,
            rates: &[0, 20_000, 200_000, MOST],
        },
    ],
    connections: 64,
    settle: Duration::from_millis(200),
    slice: Duration::from_millis(800),
    pause: Duration::from_millis(1500),
    flooded: Duration::from_millis(1000),
    after: Duration::from_millis(3000),
    rounds: 3,
};

const SMOKE: Plan = Plan {
    subjects: &[
        Subject::Stack(Architecture::SoftLrp, Carrier::Xdp),
        Subject::Nginx(Files::ReadCached, Placement::ThreadedNapi),
    ],
    cases: &[Case {
        attack: Attack::SynsElsewhere,
        keep_alive: false,
        rates: &[0, 5_000],
    }],
    connections: 4,
    settle: Duration::from_millis(20),
    slice: Duration::from_millis(100),
    pause: Duration::from_millis(20),
    flooded: Duration::from_millis(100),
    after: Duration::from_millis(200),
    rounds: 1,
};

/// More than the sender can send.
const MOST: u64 = 10_000_000;

/// On the same processor after a flood with a rate, and before one that sends all it can.
const CLIENTS: Priority = Priority::Fifo(5);

const NOTES: [&str; 10] = [
    "server on processor 1; clients and flood on processor 0, by SCHED_FIFO: a flood with a rate goes before the clients, and one \
     that sends all it can takes what they leave; all receive work of the server's link takes place on the server's processor",
    "receive work of the server's link: in a kernel thread of threaded NAPI with the server's priority, or, with RPS, in \
     interrupts of the server's processor, before the server",
    "64 clients of wrk; 1 KB; one connection a request, as in the paper, or established connections, which were opened before \
     the request that is counted, but during the flood",
    "SYNs have 32 768 different sources, to which the server's answers are lost; the clients' address has completed handshakes \
     before, so softclock's stack answers its SYNs first; the listener at the other port never accepts; \
     datagrams have 14 bytes, as the paper's, and go to a socket that is never read",
    "the share of the throughput without flood includes the processor time that sending the flood takes from the clients; the \
     share beside the same flood into the reference, a third namespace whose kernel drops all on the clients' processor, does not",
    "sent by the attack: frames that veth accepted, or lost as its ring was full",
    "the kernel's servers answer by cookies when their queues are full (net.ipv4.tcp_syncookies=1); synproxy: nft's, for \
     both ports",
    "back at 95 %: from the end of a flood of a second at the machine's limit to the end of the first of three windows of 20 ms \
     in a row with at least 95 % of the bytes that arrived at the clients a second before the flood; 3000 ms: not within 3 s",
    "a server that does not accept the first connection, or does not answer on it for 10 s, counts as 0; rounds in which it \
     does so without a flood are left out of the shares",
    "the paper: eight clients, 1300 bytes, a server that the clients saturate; BSD is in livelock at 10 000 SYN/s, SOFT-LRP keeps \
     almost 50 % at 20 000",
];
