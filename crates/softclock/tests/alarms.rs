//! Alarm-safe handlers of a runtime: fired at trigger states, and by alarms while a task computes.

use std::time::{Duration, Instant};

use softclock::alarm::{AlarmCounter, FiredBy};
use softclock::{Runtime, TriggerState};

const MS: Duration = Duration::from_millis(1);

fn run<T>(future: impl Future<Output = T>) -> T {
    Runtime::new().unwrap().block_on(future)
}

/// Computes without passing a trigger state.
fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn deadlines_are_kept_while_a_task_computes() {
    static COUNTER: AlarmCounter = AlarmCounter::new();
    run(async {
        softclock::schedule_alarm_safe(&COUNTER, MS, Some(MS)).unwrap();
        compute(200 * MS);
        assert!(COUNTER.fires_by(FiredBy::Deadline) > 10, "{COUNTER:?}");
    });
}

#[test]
fn the_backup_fires_what_has_no_deadline() {
    static COUNTER: AlarmCounter = AlarmCounter::new();
    run(async {
        softclock::schedule_alarm_safe(&COUNTER, MS, None).unwrap();
        compute(300 * MS);
        assert!(COUNTER.fires_by(FiredBy::Backup) > 2, "{COUNTER:?}");
        assert_eq!(COUNTER.fires_by(FiredBy::Deadline), 0);
    });
}

#[test]
fn trigger_states_win_in_a_busy_thread() {
    static COUNTER: AlarmCounter = AlarmCounter::new();
    run(async {
        let id = softclock::schedule_alarm_safe(&COUNTER, MS / 50, Some(MS)).unwrap();
        let start = Instant::now();
        while start.elapsed() < 100 * MS {
            softclock::yield_now().await;
        }
        let at_trigger_states = COUNTER.fires_by(FiredBy::TriggerState);
        assert!(at_trigger_states > 9 * COUNTER.fires() / 10, "{COUNTER:?}");
        softclock::cancel_alarm_safe(id);
        let fires = COUNTER.fires();
        compute(50 * MS);
        assert_eq!(COUNTER.fires(), fires);
    });
}

#[test]
fn an_idle_thread_fires_them_too() {
    static COUNTER: AlarmCounter = AlarmCounter::new();
    run(async {
        softclock::schedule_alarm_safe(&COUNTER, MS, Some(MS)).unwrap();
        softclock::sleep(50 * MS).await;
        assert!(COUNTER.fires_by(FiredBy::TriggerState) > 5, "{COUNTER:?}");
        assert!(softclock::statistics().blocks > 5);
    });
}

#[test]
fn the_backup_sees_plain_events_that_a_computing_task_delays() {
    run(async {
        let sleeper = softclock::spawn_local(softclock::sleep(MS));
        softclock::yield_now().await;
        softclock::spawn_local(async { compute(200 * MS) }).await;
        sleeper.await;
        let statistics = softclock::statistics();
        assert!(
            statistics.alarms.plain_overdue.count() > 0,
            "{statistics:?}"
        );
    });
}

#[test]
fn alarms_are_trigger_states_with_intervals_and_lateness() {
    static COUNTER: AlarmCounter = AlarmCounter::new();
    run(async {
        let begin = std::time::Instant::now();
        let id = softclock::schedule_alarm_safe(&COUNTER, MS, Some(MS)).unwrap();
        compute(200 * MS);
        softclock::cancel_alarm_safe(id);
        let triggers = softclock::statistics().triggers;
        let wall = begin.elapsed();
        for (state, by) in [
            (TriggerState::Backup, FiredBy::Backup),
            (TriggerState::Deadline, FiredBy::Deadline),
        ] {
            let source = triggers.of(state);
            assert!(source.count() > 0, "{state:?}: {triggers:?}");
            assert_eq!(source.fired(), COUNTER.fires_by(by), "{state:?}");
        }
        let deadline = &triggers.of(TriggerState::Deadline).intervals;
        assert!(deadline.quantile_ns(0.5) < 50_000_000, "{deadline:?}");
        // An alarm ends one interval and begins the next: their sum is the time that passed.
        let sum = Duration::from_nanos(triggers.intervals().sum_ns());
        assert!(sum <= wall + 20 * MS, "{sum:?} in {wall:?}");
    });
}
