//! `soft-timers/check`: what a trigger state pays, beside what the alternatives pay.
//!
//! *Soft Timers* (section 5.2) rests on a check being a clock read and a comparison. A program that
//! wants microsecond timers without it must ask the kernel, so the system calls stand beside it.

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::measure::{Effort, ns_per_call};
use crate::report::{Context, Experiment, Report, Row};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/check",
    about: "a soft check beside a clock read, a system call and timerfd_settime",
    run,
};

/// A thing that can be done `calls` times and says how long one took, in nanoseconds.
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
    let rows = operations
        .iter()
        .zip(&samples)
        .map(|(operation, samples)| Row::of_samples(operation.name, METRIC, "ns", samples))
        .collect();
    Ok(Report {
        title: "what one trigger state costs, and its alternatives",
        notes: vec!["each figure contains the loop around the call, below a nanosecond".to_owned()],
        rows,
    })
}

fn operations() -> Result<Vec<Operation>, Box<dyn Error>> {
    Ok(vec![
        Operation::new("clock_gettime", 20_000, || {
            black_box(clock_gettime(ClockId::Monotonic));
        }),
        Operation::new("system call (getppid)", 5_000, || {
            black_box(rustix::process::getppid());
        }),
        timerfd_settime_operation()?,
    ])
}

/// Re-arms one far timer, as an event loop does that keeps its next timeout in the kernel.
fn timerfd_settime_operation() -> Result<Operation, Box<dyn Error>> {
    let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let far = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec::try_from(Duration::from_secs(3600))?,
    };
    Ok(Operation::new("timerfd_settime", 2_000, move || {
        // The descriptor and the value are valid for as long as the operation lives.
        let previous = timerfd_settime(&fd, TimerfdTimerFlags::empty(), &far);
        black_box(previous.is_ok());
    }))
}

/// Takes the samples round by round, so that a noisy second touches all operations alike.
fn sample_in_turn(context: &Context, operations: &mut [Operation]) -> Vec<Vec<f64>> {
    let rounds = Effort::of(context, 1).samples;
    let mut samples = vec![Vec::with_capacity(rounds); operations.len()];
    for round in 0..rounds {
        context.progress(round, rounds, "rounds of short loops");
        for (operation, samples) in operations.iter_mut().zip(&mut samples) {
            let calls = Effort::of(context, operation.calls).calls;
            samples.push((operation.sample)(calls));
        }
    }
    context.progress(rounds, rounds, "");
    samples
}

const METRIC: &str = "cost of one call";
