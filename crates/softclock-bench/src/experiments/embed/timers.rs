//! `embed/timers`: timers in loops of C and on tokio, by their own and by softclock: the cost of their operations, and
//! how late they fire in a loop that is idle or busy.

use std::error::Error;
use std::io;
use std::time::Duration;

use super::Plan;
use crate::lab::sleepers::{Finding, Order};
use crate::lab::timers::{Costs, IN_EPOLL, IN_LIBUV, IN_TOKIO, LIBUV, Program, TOKIO};
use crate::measure::turns::Turns;
use crate::output::best_peer::{Better, Comparison};
use crate::output::metric::{self, Metric};
use crate::output::report::{Context, Experiment, Report, Takes};
use crate::peers::program::Workshop;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "embed/timers",
    about: "cost and lateness of timers by libuv, libevent, timerfd and softclock-c, and on tokio, idle and busy",
    takes: Takes::RoundsAndSubjects,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let workshop = Workshop::new()?;
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    let programs = Program::all(&workshop, &mut notes)?;
    let name = |program: &Program| program.name.to_owned();
    let turns = Turns::new(context, plan.rounds, programs, name)?;
    let found = turns.measure(|program| Sample::measure(program, plan.slice))?;
    let mut rows = Vec::new();
    for (place, pending) in PENDING.iter().enumerate() {
        let variants = found.iter().map(|(program, rounds)| {
            let costs = rounds.iter().filter_map(|sample| sample.costs.get(place));
            (name(program), costs.collect())
        });
        rows.extend(metric::rows(
            &COSTS,
            &format!("{pending} pending"),
            variants,
        ));
    }
    for (place, case) in CASES.iter().enumerate() {
        let variants = found.iter().map(|(program, rounds)| {
            let late = rounds.iter().map(|sample| &sample.late[place]);
            (name(program), late.collect())
        });
        rows.extend(metric::rows(&LATENESS, &case.name(), variants));
    }
    let comparisons = [BESIDE_LIBUV, BESIDE_LOOPS, BESIDE_TOKIO];
    let ratios = comparisons.map(|comparison| comparison.rows(&rows));
    rows.extend(ratios.into_iter().flatten());
    notes.extend(found.iter().filter_map(|(program, rounds)| {
        let early = rounds
            .iter()
            .flat_map(|sample| &sample.late)
            .any(Late::is_early);
        early.then(|| format!("{}: more than 1 % of the timers fired early", program.name))
    }));
    Ok(Report {
        title: "timers in loops of C and on tokio",
        notes,
        rows,
        charts: Vec::new(),
    })
}

/// The samples of a program: of each number of pending timers, unless it has no costs, and of each case.
struct Sample {
    costs: Vec<Costs>,
    late: Vec<Late>,
}

impl Sample {
    fn measure(program: &Program, slice: Duration) -> io::Result<Self> {
        let costs = PENDING.iter().filter(|_| program.has_costs);
        let costs = costs.map(|&pending| program.costs(pending, slice.as_millis() / 10));
        let costs = costs.collect::<io::Result<_>>()?;
        // The cost of a message beside its work, in a loop without timers.
        let alone = program.late(&order(0, Duration::ZERO, slice), PAIRS)?;
        let of_message = alone.overhead_ns() / alone.bursts.max(1) as f64;
        let late = CASES.iter().map(|case| {
            let pairs = if case.is_busy { PAIRS } else { 0 };
            let finding = program.late(&order(TIMERS, case.period, slice), pairs)?;
            let messages_ns = of_message * finding.bursts as f64;
            Ok(Late {
                finding,
                messages_ns,
            })
        });
        Ok(Self {
            costs,
            late: late.collect::<io::Result<_>>()?,
        })
    }
}

fn order(timers: u32, period: Duration, slice: Duration) -> Order {
    let us = period.as_micros() as u64;
    Order {
        timers,
        shortest_us: us,
        longest_us: us,
        warm_up_ms: (slice / 10).as_millis() as u64,
        milliseconds: slice.as_millis() as u64,
    }
}

struct Case {
    period: Duration,
    is_busy: bool,
}

const fn case(us: u64, is_busy: bool) -> Case {
    Case {
        period: Duration::from_micros(us),
        is_busy,
    }
}

const CASES: [Case; 6] = [
    case(100, false),
    case(1_000, false),
    case(10_000, false),
    case(100, true),
    case(1_000, true),
    case(10_000, true),
];

impl Case {
    fn name(&self) -> String {
        let state = if self.is_busy { "busy" } else { "idle" };
        format!("{:?}, {state}", self.period).replace('µ', "u")
    }
}

struct Late {
    finding: Finding,
    /// The processor time of messages beside their work, in nanoseconds.
    messages_ns: f64,
}

impl Late {
    fn late_us(&self, quantile: f64) -> Option<f64> {
        let us = self.finding.lateness.quantile_ns(quantile) as f64 / 1e3;
        (self.finding.events() > 0).then_some(us)
    }

    fn cost_us(&self) -> Option<f64> {
        let events = self.finding.events();
        let ns = self.finding.overhead_ns() - self.messages_ns;
        (events > 0).then(|| ns / events as f64 / 1e3)
    }

    fn is_early(&self) -> bool {
        self.finding.early * 100 > self.finding.events()
    }
}

const COSTS: [Metric<Costs>; 3] = [
    ("schedule and cancel", "ns", |costs| {
        Some(costs.schedule_and_cancel)
    }),
    ("move", "ns", |costs| Some(costs.move_pending)),
    ("schedule and fire", "ns", |costs| Some(costs.fire)),
];

const LATENESS: [Metric<Late>; 4] = [
    ("lateness, p50", "us", |late| late.late_us(0.5)),
    ("lateness, p99", "us", |late| late.late_us(0.99)),
    ("cost of an event", "us", Late::cost_us),
    (MESSAGES, "1/s", |late| {
        let finding = &late.finding;
        let rate = finding.bursts as f64 * 1e9 / finding.elapsed_ns as f64;
        (finding.bursts > 0).then_some(rate)
    }),
];

const MESSAGES: &str = "messages a second";

const BESIDE_LIBUV: Comparison = Comparison {
    is_ours: |name| [IN_EPOLL, IN_LIBUV].contains(&name),
    is_peer: |name| name == LIBUV,
    better: |metric| (!metric.starts_with(MESSAGES)).then_some(Better::Less),
};

/// The best of the loops in C.
const BESIDE_LOOPS: Comparison = Comparison {
    is_peer: |name| ![IN_EPOLL, IN_LIBUV, TOKIO, IN_TOKIO].contains(&name),
    ..BESIDE_LIBUV
};

const BESIDE_TOKIO: Comparison = Comparison {
    is_ours: |name| name == IN_TOKIO,
    is_peer: |name| name == TOKIO,
    ..BESIDE_LIBUV
};

const NOTES: [&str; 10] = [
    "each program is a process with one thread that calls its functions, has a timer slack of 1 ns (PR_SET_TIMERSLACK) \
     and prints its own processor time; softclock-tokio has a second thread, which counts",
    "cost: the processor time of an operation in turns of the loop with 1000 operations each, by the time that the loop \
     has read at the turn's beginning; with a number of other timers pending, 10 to 60 s ahead at random",
    "schedule and cancel: a request's timeout, with those of 63 others between the two; move: one of the pending timers, \
     at random; schedule and fire: 1000 timers, which are due together when the loop looks",
    "lateness: 10 timers that each fire a period after the last time, counted from the time asked for, idle, or busy with \
     8 pairs of sockets, one of each pair always readable, whose messages take 5 to 20 us of work",
    "cost of an event: the process's processor time by the events; busy, without that of the messages' work, and without \
     the other costs of a message, as measured in a run beside it that has no timers. It is below zero where noise is greater, as it is \
     for the few events of 10 ms",
    "libuv, uv_timer_start: counts milliseconds of the loop's clock; due times are rounded up to them, so that no timer \
     fires early",
    "libevent: EVENT_BASE_FLAG_PRECISE_TIMER, which waits by a timerfd, without locks; for lateness, \
     EVENT_BASE_FLAG_NO_CACHE_TIME, without which its timers fire early by the time since the wait",
    "epoll, timerfd: a heap with four children a node and one timerfd for the earliest timer, since a timerfd for each \
     would be a system call for each operation; the program contains the heap, so that no call crosses a library",
    "softclock-c: the static library of this build with its defaults (an idle thread spins for at most 5 % of the time); \
     by epoll_pwait2, or by libuv with a softclock_wake; a check behind each message. libuv's and libevent's libraries \
     are shared ones",
    "tokio: the runtime of the current thread; its timers count milliseconds. softclock_tokio::sleep in the same runtime",
];

const PENDING: [usize; 3] = [1, 1_000, 100_000];

const TIMERS: u32 = 10;

const PAIRS: u32 = 8;

const FULL: Plan = Plan {
    rounds: 5,
    slice: Duration::from_secs(1),
};

const SMOKE: Plan = Plan {
    rounds: 1,
    slice: Duration::from_millis(20),
};
