//! Measures the cost of a clock reading and the lateness of timers, in about half a second.

use std::hint::black_box;
use std::time::Duration;

use softclock::{Histogram, Runtime};
use softclock_core::Clock;
use softclock_linux::clock::{ThreadClock, monotonic_ns};

use super::check::Check;
use super::proc::reason;

pub(super) fn checks() -> Vec<Check> {
    vec![
        clock_reading(cost_of_reading()),
        idle_timer("timer, idle thread", softclock_http::DEFAULT_SPIN_CAP),
        idle_timer("the same, no spinning", 0.0),
    ]
}

/// The smallest of several averages, in nanoseconds: larger ones include interruptions.
fn cost_of_reading() -> f64 {
    let clock = ThreadClock::new();
    let sample = || {
        let start = monotonic_ns();
        for _ in 0..READINGS {
            black_box(clock.now());
        }
        (monotonic_ns() - start) as f64 / f64::from(READINGS)
    };
    (0..20).map(|_| sample()).fold(f64::INFINITY, f64::min)
}

fn clock_reading(ns: f64) -> Check {
    const NAME: &str = "clock reading";
    let found = format!("{ns:.0} ns; a soft check costs little more");
    match ns {
        ..DEAR_NS => Check::ok(NAME, found),
        _ => Check::note(NAME, found)
            .advice("see clock source above: reading it is most of what a check costs"),
    }
}

fn idle_timer(name: &'static str, spin_cap: f64) -> Check {
    match lateness(spin_cap) {
        Ok(late) => told(name, late.quantile_ns(0.5), late.quantile_ns(0.99)),
        Err(error) => Check::missing(name, format!("cannot start a runtime: {}", reason(&error)))
            .needed()
            .advice("ulimit -i 1024 and ulimit -n 1024, or a sandbox that allows timers and epoll"),
    }
}

/// Measures how late a sleep of a millisecond ends in an otherwise idle thread.
fn lateness(spin_cap: f64) -> std::io::Result<Histogram> {
    let runtime = Runtime::builder().spin_cap(spin_cap).build()?;
    Ok(runtime.block_on(async {
        let mut late = Histogram::new();
        let end = softclock::now() + MEASURED;
        while softclock::now() < end {
            let due = softclock::now() + SLEEP;
            softclock::sleep_until(due).await;
            late.record(softclock::now().ns_since(due));
        }
        late
    }))
}

fn told(name: &'static str, p50_ns: u64, p99_ns: u64) -> Check {
    let us = |ns: u64| ns as f64 / 1e3;
    let found = format!(
        "{:.1} us late (p50), {:.1} us (p99)",
        us(p50_ns),
        us(p99_ns)
    );
    if p99_ns < LATE_NS {
        Check::ok(name, found)
    } else {
        Check::note(name, found).advice(
            "something else takes the processor: look at load, steal time (vmstat) and CPU quota, or pin it (taskset)",
        )
    }
}

const READINGS: u32 = 10_000;
const SLEEP: Duration = Duration::from_millis(1);
const MEASURED: Duration = Duration::from_millis(200);

/// A reading of CLOCK_MONOTONIC takes less through the vDSO, and more by a system call.
const DEAR_NS: f64 = 60.0;

/// Ordinary wake-ups take tens of microseconds.
const LATE_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn dear_clocks_and_late_timers_are_noted() {
        assert_eq!(clock_reading(11.0).status, Status::Ok);
        assert_eq!(clock_reading(300.0).status, Status::Note);
        assert_eq!(
            told("", 100, 60_000).found,
            "0.1 us late (p50), 60.0 us (p99)"
        );
        assert_eq!(told("", 100, 2_000_000).status, Status::Note);
    }
}
