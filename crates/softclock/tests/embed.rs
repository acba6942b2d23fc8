//! Soft timers of a thread that has its own loop, with waits by poll(2).

use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{current_timer_slack, set_current_timer_slack};
use softclock::alarm::AlarmCounter;
use softclock::embed::{FireWindow, LoopTimers, TriggerState, WakeTimer};
use softclock_linux::allocations::{Counted, of_this_thread};

#[global_allocator]
static COUNTED: Counted = Counted;

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

/// Longer than any of these tests takes.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits as a loop without descriptors does, and returns the events that are then due.
fn wait<T>(timers: &mut LoopTimers<T>) -> Vec<T> {
    thread::sleep(timers.before_wait().expect("an event is pending"));
    timers.after_wait(false);
    overdue(timers)
}

fn overdue<T>(timers: &mut LoopTimers<T>) -> Vec<T> {
    let due = std::iter::from_fn(|| timers.next_overdue());
    due.map(|due| due.value).collect()
}

/// Waits for the timer by poll(2) with this limit, and returns whether it ended the wait.
fn is_readable(wake: &WakeTimer, limit: Duration) -> bool {
    let limit = limit.try_into().unwrap();
    poll(&mut [PollFd::new(wake, PollFlags::IN)], Some(&limit)).unwrap() > 0
}

#[test]
fn many_events_of_one_time_are_due_at_the_first_check() {
    let mut timers = LoopTimers::new();
    let due = FireWindow::from(timers.now() + 3 * MS);
    for event in 0..200 {
        timers.schedule(due, event);
    }
    thread::sleep(5 * MS);
    timers.check(TriggerState::Turn);
    // They have to be sorted first, which takes a part of a check's work.
    let found = overdue(&mut timers).len();
    assert!((16..=32).contains(&found), "{found}");
}

#[test]
fn events_fire_in_order_and_not_early() {
    let mut timers = LoopTimers::new();
    let start = Instant::now();
    for us in [700, 300, 2_500] {
        timers.schedule_after(us * US, us);
    }
    let mut fired = Vec::new();
    while !timers.is_empty() {
        for us in wait(&mut timers) {
            assert!(start.elapsed() >= us * US, "{us} us");
            fired.push(us);
        }
    }
    assert_eq!(fired, [300, 700, 2_500]);
}

#[test]
fn a_check_fires_a_bounded_number() {
    let mut timers = LoopTimers::new();
    (0..40).for_each(|n| _ = timers.schedule_after(Duration::ZERO, n));
    thread::sleep(100 * US);
    assert!(timers.next_overdue().is_none(), "nothing was checked");
    timers.check(TriggerState::Application);
    assert_eq!(overdue(&mut timers).len(), 32);
    assert_eq!(timers.before_wait(), Some(Duration::ZERO), "8 are left");
    timers.after_wait(true);
    assert_eq!(overdue(&mut timers).len(), 8);
    assert_eq!(timers.before_wait(), None);
}

#[test]
fn events_can_be_cancelled_and_moved() {
    let mut timers = LoopTimers::with_capacity(2);
    let [first, second] = ["first", "second"].map(|name| timers.schedule_after(MS, name));
    assert_eq!(timers.cancel(first), Some("first"));
    assert_eq!(timers.cancel(first), None);
    *timers.get_mut(second).unwrap() = "moved";
    let hour = timers.now() + 3600 * 1000 * MS;
    assert!(timers.reschedule(second, hour));
    assert!(timers.next_due() >= Some(hour));
    assert!(timers.before_wait() > Some(3599 * 1000 * MS));
    assert!(timers.reschedule(second, timers.now()));
    // The event fires in a later tick, and a wait may end sooner.
    let fired = std::iter::repeat_with(|| wait(&mut timers));
    assert_eq!(fired.flatten().next(), Some("moved"));
    assert!(!timers.reschedule(second, hour) && timers.is_empty());
}

#[test]
fn the_wait_leaves_room_for_its_lateness_if_events_are_exact() {
    let mut timers = LoopTimers::new();
    // Time to earn that it may spin.
    thread::sleep(5 * MS);
    let due = timers.now() + 3 * MS;
    let exact = timers.schedule(FireWindow::from(due), ());
    let before = timers.now();
    let limit = timers.before_wait().unwrap();
    assert!(before + limit < due, "{limit:?}");
    timers.cancel(exact);
    timers.schedule(FireWindow::roughly(due), ());
    let limit = timers.before_wait().unwrap();
    assert!(timers.now() + limit >= due, "{limit:?}");

    while wait(&mut timers).is_empty() {}
    assert_eq!(timers.statistics().spun, Duration::ZERO);
    timers.set_spin_cap(1.0);
    let start = Instant::now();
    // A wait that ends behind its event leaves nothing to spin for.
    while timers.statistics().spun.is_zero() {
        assert!(start.elapsed() < LIMIT, "nothing was spun");
        timers.schedule_after(3 * MS, ());
        while wait(&mut timers).is_empty() {}
    }
}

#[test]
fn statistics_count_checks_events_and_waits() {
    let mut timers = LoopTimers::new();
    timers.schedule_after(MS, ());
    let minute = timers.schedule_after(60_000 * MS, ());
    timers.check(TriggerState::Send);
    while wait(&mut timers).is_empty() {}
    timers.cancel(minute);
    let statistics = timers.statistics();
    let events = statistics.events;
    assert_eq!(
        (events.scheduled, events.fired, events.cancelled),
        (2, 1, 1)
    );
    assert_eq!(statistics.triggers.of(TriggerState::Send).count(), 1);
    assert_eq!(statistics.triggers.of(TriggerState::Idle).fired(), 1);
    assert!(statistics.blocks >= 1 && statistics.blocked >= MS / 2);
    assert_eq!(statistics.pending, 0);
    assert!(statistics.alarms.is_none());
}

#[test]
fn the_slack_of_the_thread_is_restored() {
    let slack = || current_timer_slack().unwrap();
    set_current_timer_slack(Some(60_000.try_into().unwrap())).unwrap();
    let (first, second) = (LoopTimers::<()>::new(), LoopTimers::<()>::new());
    assert_eq!(slack(), 1);
    drop(first);
    assert_eq!(slack(), 1);
    drop(second);
    assert_eq!(slack(), 60_000);
}

#[test]
fn alarm_safe_handlers_run_while_the_loop_computes() {
    static BEATS: AlarmCounter = AlarmCounter::new();
    let mut timers = LoopTimers::<()>::new();
    let id = timers.schedule_alarm_safe(&BEATS, MS, None).unwrap();
    let start = Instant::now();
    while BEATS.fires() < 3 {
        assert!(start.elapsed() < LIMIT, "no signal came");
    }
    let alarms = timers.statistics().alarms.expect("they are in use");
    assert!(alarms.backups.count() > 0);
    assert!(timers.next_due().is_some());
    let limit = timers.before_wait().expect("the handler's next call");
    assert!(limit <= MS);

    let error = LoopTimers::<()>::new().set_backup(None).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(timers.cancel_alarm_safe(id) && !timers.cancel_alarm_safe(id));
    assert_eq!(timers.before_wait(), None);
    drop(timers);
    LoopTimers::<()>::new().set_backup(Some(8 * MS)).unwrap();
}

#[test]
fn a_wake_timer_ends_waits_once() {
    let mut wake = WakeTimer::new().unwrap();
    assert_eq!(wake.limit(None), None);
    assert!(!is_readable(&wake, MS), "it is not set");
    assert_eq!(wake.limit(Some(300 * US)), None);
    assert!(is_readable(&wake, LIMIT));
    assert_eq!(wake.limit(Some(Duration::ZERO)), Some(Duration::ZERO));
    assert!(!is_readable(&wake, Duration::ZERO), "it has ended its wait");
    assert_eq!(wake.limit(Some(60_000 * MS)), None);
    assert!(!is_readable(&wake, MS), "set anew");
    assert_eq!(wake.limit(Some(US)), None);
    assert!(is_readable(&wake, LIMIT));
    assert_eq!(wake.limit(None), None);
    assert!(!is_readable(&wake, MS), "no longer set");
}

#[test]
fn checking_and_scheduling_allocate_nothing() {
    let mut timers = LoopTimers::with_capacity(100);
    let before = of_this_thread();
    for n in 0..1_000_u64 {
        for us in 0..100 {
            timers.schedule_after(us * US, n);
        }
        while !timers.is_empty() {
            timers.check(TriggerState::Application);
            while timers.next_overdue().is_some() {}
        }
        timers.before_wait();
        timers.after_wait(true);
    }
    assert_eq!(of_this_thread() - before, 0);
}
