//! Tests with real signals.

use std::hint::black_box;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use softclock_core::Clock;

use super::*;
use crate::clock::cpu_time_ns;

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

/// Leaks a counter for one test, since registration needs a `'static` reference.
fn counter() -> &'static AlarmCounter {
    Box::leak(Box::new(AlarmCounter::new()))
}

fn alarms() -> (ThreadClock, Alarms) {
    let clock = ThreadClock::new();
    let alarms = Alarms::new(&clock).unwrap();
    (clock, alarms)
}

/// Computes for this much processor time, alarms included, without reaching a trigger state. Returns the rounds of work
/// done.
fn compute(time: Duration) -> u64 {
    let end = cpu_time_ns() + time.as_nanos() as u64;
    let mut rounds = 0u64;
    while cpu_time_ns() < end {
        black_box((0..100u64).fold(rounds, |x, y| x.wrapping_mul(31) ^ y));
        rounds += 1;
    }
    rounds
}

#[test]
fn a_deadline_fires_under_a_computation() {
    let (clock, alarms) = alarms();
    let counter = counter();
    alarms.register(counter, MS, Some(100 * US)).unwrap();
    alarms.arm_if_needed(clock.now());
    compute(100 * MS);
    let by_deadline = counter.fires_by(FiredBy::Deadline);
    assert!(by_deadline > 20, "{by_deadline}: {:?}", alarms.stats());
    assert_eq!(counter.fires_by(FiredBy::TriggerState), 0);
}

/// A handler that keeps the lateness of its first 100 firings.
struct Samples {
    late_ns: [AtomicU64; 100],
    count: AtomicUsize,
}

// SAFETY: accesses atomics only, within the array.
unsafe impl AlarmSafe for Samples {
    fn fire(&self, firing: &Firing) {
        if let Some(late_ns) = self.late_ns.get(self.count.load(Relaxed)) {
            late_ns.store(firing.now.ns_since(firing.due), Relaxed);
            self.count.fetch_add(1, Relaxed);
        }
    }
}

/// Prints the lateness at deadlines. Asserts nothing, because the thread may be preempted when a deadline passes.
#[test]
fn lateness_at_deadlines() {
    let (clock, alarms) = alarms();
    let samples: &Samples = Box::leak(Box::new(Samples {
        late_ns: [const { AtomicU64::new(0) }; 100],
        count: AtomicUsize::new(0),
    }));
    alarms.register(samples, MS, Some(100 * US)).unwrap();
    alarms.arm_if_needed(clock.now());
    compute(100 * MS);
    let count = samples.count.load(Relaxed);
    let mut late: Vec<_> = samples.late_ns[..count]
        .iter()
        .map(|x| x.load(Relaxed))
        .collect();
    late.sort();
    let early = alarms.stats().early_ns;
    println!(
        "deadline 100 us after the due time: fired {} ns (p50), {} ns (p90) after it, alarms {early} ns early",
        late[count / 2],
        late[count * 9 / 10],
    );
}

#[test]
fn the_backup_fires_under_a_computation() {
    let (clock, alarms) = alarms();
    let counter = counter();
    alarms.register(counter, MS, None).unwrap();
    alarms.arm_if_needed(clock.now());
    compute(200 * MS);
    assert!(counter.fires_by(FiredBy::Backup) >= 5, "{counter:?}");
    assert_eq!(counter.fires(), counter.fires_by(FiredBy::Backup));
}

#[test]
fn the_backup_period_adapts() {
    let (clock, alarms) = alarms();
    let tick = alarms.backup_period();
    compute(300 * MS);
    let quiet = alarms.backup_period();
    assert!(quiet > tick, "{quiet:?}");
    alarms.set_plain_next_due(clock.now());
    compute(300 * MS);
    assert!(alarms.backup_period() < quiet);
    let plain = alarms.stats().plain_overdue;
    assert!(plain.count() > 0 && plain.max_ns() > 1_000_000);
    assert!(alarms.longest_backup() >= Duration::from_millis(32));
}

#[test]
fn nothing_fires_inside_a_section() {
    let (clock, alarms) = alarms();
    let counter = counter();
    alarms.register(counter, MS, Some(Duration::ZERO)).unwrap();
    let section = alarms.section();
    alarms.arm_if_needed(clock.now());
    alarms.enter();
    compute(30 * MS);
    alarms.leave();
    assert_eq!(counter.fires(), 0, "at the end of the inner section");
    drop(section);
    assert!(counter.fires() >= 1, "{:?}", alarms.stats());
    assert!(alarms.stats().deferred >= 1);
    compute(30 * MS);
    assert!(counter.fires() > 3, "and goes on afterwards");
}

#[test]
fn trigger_states_fire_what_is_due() {
    let (_, alarms) = alarms();
    let (counter, other) = (counter(), counter());
    assert_eq!(alarms.next_due(), Instant::FAR_FUTURE);
    let _section = alarms.section();
    let id = alarms.register(counter, MS, None).unwrap();
    alarms.register(other, 2 * MS, None).unwrap();
    let due = alarms.next_due();
    assert_eq!(alarms.run_due(due - US, 10), 0);
    assert_eq!(alarms.run_due(due + 5 * MS, 1), 1);
    assert_eq!((counter.fires(), other.fires()), (1, 0));
    assert_eq!(alarms.run_due(due + 5 * MS, 10), 1);
    assert_eq!(alarms.next_due(), due + 6 * MS, "a period after the firing");
    assert!(alarms.unregister(id));
    assert!(!alarms.unregister(id));
    assert_eq!(alarms.next_due(), due + 7 * MS);
    let stats = alarms.stats();
    assert_eq!(stats.fired[FiredBy::TriggerState as usize].count(), 2);
}

#[test]
fn trigger_states_spare_the_alarm() {
    let (clock, alarms) = alarms();
    alarms.register(counter(), 50 * US, Some(500 * US)).unwrap();
    let mut fired = 0;
    while fired < 1_000 {
        let now = clock.now();
        let _section = alarms.section();
        fired += alarms.run_due(now, 10) as u64;
        alarms.arm_if_needed(now);
    }
    let stats = alarms.stats();
    assert!(stats.deadline_alarms.count() * 2 < fired, "{stats:?}");
    assert!(stats.pushes > 0);
}

#[test]
fn the_allocator_survives_alarms() {
    let (clock, alarms) = alarms();
    alarms
        .register(counter(), 100 * US, Some(Duration::ZERO))
        .unwrap();
    alarms.arm_if_needed(clock.now());
    let end = clock.now() + 300 * MS;
    let mut kept: Vec<Vec<usize>> = Vec::new();
    let mut i = 0usize;
    while clock.now() < end {
        kept.push(vec![i; i % 200]);
        if kept.len() > 50 {
            let old = kept.swap_remove(i % 50);
            assert!(old.iter().all(|x| x % 200 == old.len()));
        }
        i += 1;
    }
    let alarms = alarms.stats().deadline_alarms.count();
    assert!(alarms > 100, "{alarms} alarms in {i} rounds");
}

#[test]
fn short_periods_do_not_starve_the_thread() {
    let (clock, alarms) = alarms();
    let mut shares: Vec<f64> = (0..5)
        .map(|_| {
            let alone = compute(20 * MS);
            let id = alarms
                .register(counter(), 20 * US, Some(Duration::ZERO))
                .unwrap();
            alarms.arm_if_needed(clock.now());
            let beside = compute(20 * MS);
            alarms.unregister(id);
            beside as f64 / alone as f64
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    println!("share of work done beside alarms each 20 us: {shares:.2?}");
    assert!(shares[2] > 0.3, "{shares:?} {:?}", alarms.stats());
}

struct Slow;

// SAFETY: calls only clock_gettime, which is async-signal-safe.
unsafe impl AlarmSafe for Slow {
    fn fire(&self, _: &Firing) {
        let start = cpu_time_ns();
        while cpu_time_ns() < start + 500_000 {}
    }
}

#[test]
fn slow_handlers_do_not_starve_the_thread() {
    let (clock, alarms) = alarms();
    let alone = compute(50 * MS);
    alarms
        .register(&Slow, 20 * US, Some(Duration::ZERO))
        .unwrap();
    alarms.arm_if_needed(clock.now());
    compute(20 * MS);
    let beside = compute(50 * MS);
    assert!(alarms.stats().distance_ns > 200_000);
    assert!(beside * 5 > alone, "{beside} of {alone}");
}

#[test]
fn one_set_of_alarms_a_thread() {
    let (clock, alarms) = alarms();
    let error = Alarms::new(&clock).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    drop(alarms);
    Alarms::new(&clock).unwrap();
}

#[test]
fn dropped_while_armed() {
    let clock = ThreadClock::new();
    for i in 0..1_000u64 {
        let alarms = Alarms::new(&clock).unwrap();
        let period = Duration::from_nanos(1_000 + i * 100);
        alarms
            .register(counter(), period, Some(Duration::ZERO))
            .unwrap();
        alarms.arm_if_needed(clock.now());
        compute(Duration::from_nanos(i * 50));
        if i % 3 == 0 {
            alarms.enter();
            compute(50 * US);
        }
    }
}

#[test]
fn threads_have_their_own_alarms() {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(|| {
                let (clock, alarms) = alarms();
                let counter = counter();
                alarms.register(counter, MS, Some(100 * US)).unwrap();
                alarms.arm_if_needed(clock.now());
                compute(200 * MS);
                counter.fires()
            })
        })
        .collect();
    for thread in threads {
        assert!(thread.join().unwrap() > 10);
    }
}

#[test]
fn an_idle_thread_is_left_alone() {
    let (clock, alarms) = alarms();
    let counter = counter();
    alarms.register(counter, 5 * MS, Some(US)).unwrap();
    alarms.arm_if_needed(clock.now());
    alarms.disarm_for_idle();
    thread::sleep(20 * MS);
    assert_eq!(counter.fires_by(FiredBy::Deadline), 0);
    alarms.arm_if_needed(clock.now());
    compute(20 * MS);
    assert!(counter.fires_by(FiredBy::Deadline) > 0);
}

#[test]
fn foreign_signals_are_ignored() {
    let (_, alarms) = alarms();
    let counter = counter();
    alarms.register(counter, US, None).unwrap();
    compute(10 * US);
    let fires = counter.fires();
    let signal = handler::install().unwrap();
    // SAFETY: the signal has a handler.
    unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
    assert!(counter.fires() <= fires + 1);
    assert_eq!(alarms.stats().deadline_alarms.count(), 0);
}

#[test]
fn sends_heartbeats_under_a_computation() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let heartbeat: &AlarmSend = Box::leak(Box::new(AlarmSend::new(sender.into(), *b"alive")));
    let (clock, alarms) = alarms();
    alarms.register(heartbeat, 2 * MS, Some(MS)).unwrap();
    alarms.arm_if_needed(clock.now());
    compute(50 * MS);
    assert!(heartbeat.sent() > 3);
    let mut buffer = [0; 10];
    assert_eq!(receiver.recv(&mut buffer).unwrap(), 5);
}

#[test]
fn plain_timers_signal_until_dropped() {
    let counter = counter();
    let timer = SignalTimer::start(counter, MS).unwrap();
    let error = SignalTimer::start(counter, MS).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    compute(30 * MS);
    drop(timer);
    let fires = counter.fires();
    assert!(fires > 5, "{fires}");
    compute(10 * MS);
    assert_eq!(counter.fires(), fires);
    SignalTimer::start(counter, MS).unwrap();
}

/// Prints the cost of each operation. Asserts nothing, because machines differ.
#[test]
fn costs() {
    let (clock, alarms) = alarms();
    let cost = |name: &str, work: &dyn Fn(u64)| {
        let mut costs: Vec<_> = (0..21)
            .map(|_| {
                let start = clock.now();
                (0..ROUNDS).for_each(work);
                clock.now().ns_since(start) as f64 / ROUNDS as f64
            })
            .collect();
        costs.sort_by(f64::total_cmp);
        println!("{name}: {:.2} ns", costs[costs.len() / 2]);
    };
    cost("loop", &|_| black_box(()));
    cost("enter + leave", &|_| drop(black_box(alarms.section())));
    let now = clock.now();
    cost("run_due, nothing due", &|_| {
        black_box(alarms.run_due(now, 1));
    });
    cost("arm_if_needed, no deadline", &|_| alarms.arm_if_needed(now));
    let hour = Duration::from_secs(3_600);
    alarms.register(counter(), hour, Some(hour)).unwrap();
    alarms.arm_if_needed(now);
    cost("arm_if_needed, armed", &|_| alarms.arm_if_needed(now));
    cost("disarm + arm", &|_| {
        alarms.disarm_for_idle();
        alarms.arm_if_needed(now);
    });
    alarms.register(counter(), US, None).unwrap();
    let due = std::cell::Cell::new(alarms.next_due() + MS);
    cost("fire and reschedule", &|_| {
        due.set(due.get() + US);
        assert_eq!(alarms.run_due(due.get(), 1), 1);
    });
}

const ROUNDS: u64 = 1_000;
