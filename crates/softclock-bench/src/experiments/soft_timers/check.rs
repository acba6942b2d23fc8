//! `soft-timers/check`: the cost of a trigger state, beside the cost of the alternatives.
//!
//! *Soft Timers* (section 5.2) rests on a check being a clock read and a comparison. A program that needs microsecond
//! timers without it must ask the kernel, so the system calls stand beside it.

use std::convert::Infallible;
use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use softclock::embed::LoopTimers;
use softclock_core::{Clock, FireWindow, SoftTimers, TriggerState};
use softclock_linux::clock::{ClockSource, Counter, ThreadClock};

use crate::measure::calls::{Effort, ns_per_call};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/check",
    about: "a soft check beside a clock read, a system call and timerfd_settime",
    takes: Takes::Nothing,
    run,
};

/// An operation that can be repeated and timed; `sample` returns the nanoseconds per call.
struct Operation {
    name: &'static str,
    calls: u32,
    sample: Box<dyn FnMut(u32) -> f64>,
}

impl Operation {
    fn new(name: &'static str, calls: u32, mut operation: impl FnMut() + 'static) -> Self {
        Self {
            name,
            calls,
            sample: Box::new(move |calls| ns_per_call(calls, &mut operation)),
        }
    }
}

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let mut operations = operations()?;
    let samples = sample_in_turn(context, &mut operations);
    let mut rows: Vec<Row> = operations
        .iter()
        .zip(&samples)
        .map(|(operation, samples)| Row::of_samples(operation.name, METRIC, "ns", samples))
        .collect();
    rows.extend(above_the_clock(&operations, &samples));
    Ok(Report {
        title: "what one trigger state costs, and its alternatives",
        notes: notes(),
        rows,
        charts: Vec::new(),
    })
}

/// Returns the cost of the check without its clock reading, from samples taken one after the other: in a tight loop,
/// where the processor overlaps one check with the next, and after a system call, where real trigger states are.
fn above_the_clock(operations: &[Operation], samples: &[Vec<f64>]) -> [Row; 2] {
    let samples_of = |name: &str| {
        let index = operations
            .iter()
            .position(|operation| operation.name == name);
        &samples[index.expect("all of them are among the operations")]
    };
    let difference = |variant: &str, check: &str, clock: &str| {
        let pairs = samples_of(check).iter().zip(samples_of(clock));
        let differences: Vec<f64> = pairs.map(|(check, clock)| check - clock).collect();
        Row::of_samples(
            variant,
            "soft check above the clock reading",
            "ns",
            &differences,
        )
    };
    [
        difference("back to back", SOFT_CHECK, THREAD_CLOCK),
        difference("after a system call", CALL_AND_CHECK, CALL_AND_CLOCK),
    ]
}

fn notes() -> Vec<String> {
    let mut notes = vec![
        "each figure contains the loop around the call, below a nanosecond".to_owned(),
        "the check finds a far event pending and nothing due; its statistics are on".to_owned(),
    ];
    if let ClockSource::Monotonic { why } = ThreadClock::new().source() {
        notes.push(format!("the counter is not used on this machine: {why:?}"));
    }
    notes
}

/// Returns the operations in the order of the table. Each is sampled directly after the one before it.
fn operations() -> Result<Vec<Operation>, Box<dyn Error>> {
    let mut operations = Vec::new();
    if let Ok(counter) = Counter::detect() {
        operations.push(Operation::new("counter reading", 5_000, move || {
            black_box(counter.read());
        }));
    }
    let (now, check) = (thread_clock(), soft_check());
    // Separate instances: an operation owns its closure.
    let (mut now_after, mut check_after) = (thread_clock(), soft_check());
    operations.extend([
        Operation::new(THREAD_CLOCK, 5_000, now),
        Operation::new(SOFT_CHECK, 5_000, check),
        Operation::new("LoopTimers::check", 5_000, loop_check()),
        Operation::new("clock_gettime", 2_000, || {
            black_box(clock_gettime(ClockId::Monotonic));
        }),
        Operation::new("system call (getppid)", 500, system_call),
        Operation::new(CALL_AND_CLOCK, 500, move || {
            system_call();
            now_after();
        }),
        Operation::new(CALL_AND_CHECK, 500, move || {
            system_call();
            check_after();
        }),
        timerfd_settime_operation()?,
    ]);
    Ok(operations)
}

/// Makes a cheap system call. Always inlined: the return after a system call is mispredicted where the kernel
/// overwrites the return stack, and otherwise only some variants would pay for it.
#[inline(always)]
fn system_call() {
    black_box(rustix::process::getppid());
}

fn thread_clock() -> impl FnMut() {
    let clock = ThreadClock::new();
    move || {
        black_box(clock.now());
    }
}

/// Returns the runtime's work at a trigger state: a clock reading and a check.
fn soft_check() -> impl FnMut() {
    let clock = ThreadClock::new();
    let mut timers = SoftTimers::new(clock.now(), Duration::from_millis(4));
    let far = clock.now() + Duration::from_secs(3600);
    timers.schedule(FireWindow::from(far), 0_u64);
    move || {
        let due = timers.check(TriggerState::SystemCall, clock.now());
        // Only the result's tag: copying the whole event to memory is no part of a caller's check.
        black_box(due.is_some());
    }
}

/// Returns the work of a loop that has timers without a runtime.
fn loop_check() -> impl FnMut() {
    let mut timers = LoopTimers::new();
    timers.schedule_after(Duration::from_secs(3600), 0_u64);
    move || {
        timers.check(TriggerState::SystemCall);
        black_box(timers.next_overdue().is_some());
    }
}

/// Returns an operation that re-arms one far timer, as an event loop does that keeps its next timeout in the kernel.
fn timerfd_settime_operation() -> Result<Operation, Box<dyn Error>> {
    let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let far = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec::try_from(Duration::from_secs(3600))?,
    };
    Ok(Operation::new("timerfd_settime", 100, move || {
        // The descriptor and the value are valid as long as the operation lives, so errors cannot occur.
        let previous = timerfd_settime(&fd, TimerfdTimerFlags::empty(), &far);
        black_box(previous.is_ok());
    }))
}

/// Samples all operations in each round, so that a noisy second affects all of them alike.
fn sample_in_turn(context: &Context, operations: &mut [Operation]) -> Vec<Vec<f64>> {
    let rounds = Effort::of(context, 1).samples / TOGETHER;
    let mut samples = vec![Vec::with_capacity(rounds * TOGETHER); operations.len()];
    for round in 0..rounds {
        let of_round = context.round(round, rounds, "rounds of short loops", || {
            let mut samples = vec![Vec::with_capacity(TOGETHER); operations.len()];
            for _ in 0..TOGETHER {
                for (operation, samples) in operations.iter_mut().zip(&mut samples) {
                    let calls = Effort::of(context, operation.calls).calls;
                    samples.push((operation.sample)(calls));
                }
            }
            Ok::<_, Infallible>(samples)
        });
        let Ok(of_round) = of_round;
        for (samples, of_round) in samples.iter_mut().zip(of_round) {
            samples.extend(of_round);
        }
    }
    context.progress(rounds, rounds, "");
    samples
}

/// Short loops of each operation per round. The steal time is read once per round, so a round must be long enough for
/// it.
const TOGETHER: usize = 25;

const METRIC: &str = "cost of one call";
const THREAD_CLOCK: &str = "ThreadClock::now";
const SOFT_CHECK: &str = "soft check";
const CALL_AND_CLOCK: &str = "system call, ThreadClock::now";
const CALL_AND_CHECK: &str = "system call, soft check";
