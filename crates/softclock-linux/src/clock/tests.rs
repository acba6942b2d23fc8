use std::hint::black_box;
use std::thread;
use std::time::Duration;

use super::*;

fn assert_monotonic(clock: &ThreadClock, for_ns: u64) {
    let start = clock.now();
    let mut last = start;
    let mut count = 0u32;
    while last.ns_since(start) < for_ns {
        let now = clock.now();
        assert!(now >= last, "{now:?} after {last:?}");
        last = now;
        count += 1;
        if count.is_multiple_of(1_000) {
            clock.resync();
        }
    }
}

/// Measures the clock's error, as the least of several differences: the thread may be preempted between two readings.
fn error_ns(clock: &ThreadClock) -> u64 {
    let measure = |_| {
        let before = monotonic_ns();
        let now = clock.now().as_ns();
        let after = monotonic_ns();
        before.saturating_sub(now).max(now.saturating_sub(after))
    };
    (0..10).map(measure).min().unwrap_or(0)
}

#[test]
fn never_goes_backwards() {
    assert_monotonic(&ThreadClock::new(), 50_000_000);
}

#[test]
fn never_goes_backwards_in_several_threads() {
    let threads: Vec<_> = (0..4)
        .map(|_| thread::spawn(|| assert_monotonic(&ThreadClock::new(), 30_000_000)))
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn follows_clock_monotonic() {
    let clock = ThreadClock::new();
    let mut worst = 0;
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(10));
        worst = worst.max(error_ns(&clock));
        clock.resync_if_due(clock.now());
    }
    println!("{}: largest error {worst} ns", clock.source());
    assert!(worst < 20_000, "{worst} ns");
}

#[test]
fn a_clock_behind_steps_forward() {
    let clock = ThreadClock::new();
    let Some(tracking) = clock.0.tracking.get() else {
        return;
    };
    let conversion = &clock.0.conversion;
    let ns = monotonic_ns() - 500_000_000;
    conversion.rebase(tracking.counter.read(), ns, conversion.mult(), 0);
    clock.resync();
    assert!(error_ns(&clock) < 100_000);
}

#[test]
fn a_clock_ahead_stands_still() {
    let clock = ThreadClock::new();
    let Some(tracking) = clock.0.tracking.get() else {
        return;
    };
    let conversion = &clock.0.conversion;
    let ns = monotonic_ns() + 900_000;
    conversion.rebase(tracking.counter.read(), ns, conversion.mult(), 0);
    let ahead = clock.now();
    clock.resync();
    assert!(clock.now() >= ahead);
    thread::sleep(Duration::from_millis(2));
    assert!(error_ns(&clock) < 100_000);
}

#[test]
fn a_clock_often_far_ahead_gives_the_counter_up() {
    let clock = ThreadClock::new();
    let Some(tracking) = clock.0.tracking.get() else {
        return;
    };
    let conversion = &clock.0.conversion;
    for step in 1..=u64::from(ASTRAY_LIMIT) {
        let ns = monotonic_ns() + step * 3_600_000_000_000;
        conversion.rebase(
            tracking.counter.read(),
            ns,
            conversion.mult(),
            conversion.offset_ns(),
        );
        let ahead = clock.now();
        clock.resync();
        let later = clock.now();
        assert!(later >= ahead);
        thread::sleep(Duration::from_millis(1));
        assert!(clock.now() > later, "time goes on");
    }
    let why = Distrust::Diverged;
    assert_eq!(clock.source(), ClockSource::Monotonic { why });
    let now = clock.now();
    let there = clock.to_std(now);
    assert!(there.elapsed() < Duration::from_secs(1));
}

#[test]
fn falls_back_to_clock_monotonic() {
    let clock = ThreadClock::monotonic();
    let why = Distrust::Asked;
    assert_eq!(clock.source(), ClockSource::Monotonic { why });
    assert_eq!(clock.source().to_string(), "CLOCK_MONOTONIC (asked for)");
    assert!(error_ns(&clock) < 10_000);
    assert!(!clock.resync_if_due(clock.now()));
    assert_monotonic(&clock, 5_000_000);
}

#[test]
fn std_instants_are_the_same_scale() {
    let clock = ThreadClock::new();
    let here = clock.now();
    let there = time::Instant::now();
    let difference = clock.from_std(there).ns_since(here);
    assert!(difference < 10_000_000, "{difference}");
    assert_eq!(clock.from_std(clock.to_std(here)), here);
    let past = here - Duration::from_secs(5);
    assert_eq!(clock.from_std(clock.to_std(past)), past);
    clock.to_std(Instant::FAR_FUTURE);
}

#[test]
fn the_handlers_reading_agrees() {
    for clock in [ThreadClock::new(), ThreadClock::monotonic()] {
        let before = clock.now().as_ns();
        let inside = clock.conversion().read_in_handler();
        assert!(inside >= before);
        assert!(clock.now().as_ns() >= inside.saturating_sub(1_000));
    }
}

/// Prints the cost of a reading. Asserts nothing, because machines differ.
#[test]
fn cost_of_a_reading() {
    let clock = ThreadClock::new();
    let cost = |mut read: Box<dyn FnMut() -> u64>| {
        let start = monotonic_ns();
        for _ in 0..10 {
            black_box(read());
        }
        (monotonic_ns() - start) as f64 / (10.0 * BATCH as f64)
    };
    let median = |mut costs: Vec<f64>| {
        costs.sort_by(f64::total_cmp);
        costs[costs.len() / 2]
    };
    let (mut bare, mut full) = (Vec::new(), Vec::new());
    for _ in 0..31 {
        if let Ok(counter) = Counter::detect() {
            bare.push(cost(Box::new(move || {
                (0..BATCH).fold(0, |sum: u64, _| sum.wrapping_add(counter.read()))
            })));
        }
        let clock = clock.clone();
        full.push(cost(Box::new(move || {
            (0..BATCH).fold(0, |sum: u64, _| sum.wrapping_add(clock.now().as_ns()))
        })));
    }
    let full = median(full);
    if !bare.is_empty() {
        println!("counter {:.2} ns, now() {full:.2} ns", median(bare));
    }
}

const BATCH: u64 = 1_000;

#[test]
fn long_waits_are_told_from_short_ones() {
    let clock = ThreadClock::new();
    if clock.0.tracking.get().is_none() {
        return;
    }
    let resync_at = || clock.0.resync_at_ns.get();
    // Several attempts, because the thread may be preempted for long between any two lines.
    let is_left_alone = |_| {
        let before = resync_at();
        clock.now();
        clock.resync_after_wait();
        resync_at() == before
    };
    assert!((0..10).any(is_left_alone));
    let before = resync_at();
    thread::sleep(Duration::from_nanos(2 * LONG_WAIT_NS));
    clock.resync_after_wait();
    assert_ne!(resync_at(), before);
}
