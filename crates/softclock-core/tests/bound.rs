//! The bound of *Soft Timers* (section 3), tested with a model of a thread that runs, is preempted, passes trigger
//! states at random, and is interrupted by a backup timer.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use softclock_core::time::TICK_NS;
use softclock_core::{FireWindow, Instant, SoftTimers, TimerKey, TriggerState};

/// A pending event of the model.
struct Expected {
    key: TimerKey,
    scheduled: Instant,
    /// Time in which the thread had not run by then.
    stolen_ns: u64,
    ticks: u64,
}

struct Model {
    random: SplitMix,
    timers: SoftTimers<u64>,
    now: Instant,
    running_ns: u64,
    stolen_ns: u64,
    backup_ns: u64,
    next_backup_ns: u64,
    pending: HashMap<u64, Expected>,
    ids: Vec<u64>,
    next_id: u64,
    fired: u64,
}

impl Model {
    fn new(seed: u64, backup_ticks: u64) -> Self {
        let backup_ns = backup_ticks * TICK_NS;
        let mut random = SplitMix(seed);
        let now = Instant::from_ns(random.below(1 << 40));
        Self {
            now,
            random,
            timers: SoftTimers::new(now, Duration::from_nanos(backup_ns)),
            running_ns: 0,
            stolen_ns: 0,
            backup_ns,
            next_backup_ns: backup_ns,
            pending: HashMap::new(),
            ids: Vec::new(),
            next_id: 0,
            fired: 0,
        }
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0..=4 => self.schedule(),
            5..=6 => self.cancel(),
            7 => self.reschedule(),
            8 => self.steal(),
            _ => self.compute(),
        }
    }

    fn schedule(&mut self) {
        let ticks = self.random.log_uniform(1 << 22);
        let id = self.next_id;
        self.next_id += 1;
        let key = if self.random.below(4) == 0 {
            let window = FireWindow::roughly(self.now.add_ns(ticks * TICK_NS));
            self.timers.schedule(window, id)
        } else {
            self.timers.schedule_soft_event(self.now, ticks, id)
        };
        self.expect(id, key, ticks);
    }

    fn expect(&mut self, id: u64, key: TimerKey, ticks: u64) {
        let expected = Expected {
            key,
            scheduled: self.now,
            stolen_ns: self.stolen_ns,
            ticks,
        };
        self.pending.insert(id, expected);
        self.ids.push(id);
    }

    fn cancel(&mut self) {
        let Some((id, key)) = self.pick() else { return };
        assert_eq!(self.timers.cancel(key), Some(id));
        assert_eq!(self.timers.cancel(key), None);
        self.pending.remove(&id);
    }

    fn reschedule(&mut self) {
        let Some((id, key)) = self.pick() else { return };
        let ticks = self.random.log_uniform(1 << 22);
        let earliest = self.now.add_ns(ticks * TICK_NS);
        assert!(self.timers.reschedule(key, earliest));
        self.expect(id, key, ticks);
    }

    /// Returns a random pending event.
    fn pick(&mut self) -> Option<(u64, TimerKey)> {
        while !self.ids.is_empty() {
            let index = self.random.below(self.ids.len() as u64) as usize;
            let id = self.ids.swap_remove(index);
            if let Some(expected) = self.pending.get(&id) {
                return Some((id, expected.key));
            }
        }
        None
    }

    /// Preempts the thread, or stops its virtual machine.
    fn steal(&mut self) {
        let ns = self.random.log_uniform(1 << 26);
        self.now = self.now.add_ns(ns);
        self.stolen_ns += ns;
    }

    /// Computes until the next trigger state, interrupted by backups.
    fn compute(&mut self) {
        let mut left_ns = self.random.log_uniform(4 * self.backup_ns);
        loop {
            let to_backup = self.next_backup_ns - self.running_ns;
            let step = left_ns.min(to_backup);
            self.now = self.now.add_ns(step);
            self.running_ns += step;
            left_ns -= step;
            if step == to_backup {
                self.next_backup_ns += self.backup_ns;
                self.fire_all(TriggerState::Backup);
            } else {
                return self.pass_trigger_state();
            }
        }
    }

    /// Passes a trigger state, at which the caller limits its work.
    fn pass_trigger_state(&mut self) {
        let mut due = self.timers.check(TriggerState::SystemCall, self.now);
        for _ in 0..self.random.below(4) {
            let Some(event) = due else { return };
            self.on_fired(event.value, event.due);
            due = self.timers.next_overdue(TriggerState::SystemCall, self.now);
        }
        if let Some(event) = due {
            self.on_fired(event.value, event.due);
        }
    }

    /// Runs a backup, which takes all due events.
    fn fire_all(&mut self, state: TriggerState) {
        let mut due = self.timers.check(state, self.now);
        loop {
            match due {
                Some(event) => self.on_fired(event.value, event.due),
                // `None` with an event still due: the call only moved events between levels.
                None if self.timers.next_due().is_none_or(|next| next > self.now) => return,
                None => {}
            }
            due = self.timers.next_overdue(state, self.now);
        }
    }

    fn on_fired(&mut self, id: u64, due: Instant) {
        let expected = self
            .pending
            .remove(&id)
            .expect("fired twice, or after it was cancelled");
        self.fired += 1;
        assert_eq!(due, expected.scheduled.add_ns(expected.ticks * TICK_NS));
        let ticks = self.now.tick() - expected.scheduled.tick();
        assert!(
            ticks > expected.ticks,
            "early: {ticks} ticks for {}",
            expected.ticks
        );
        let stolen_ns = self.stolen_ns - expected.stolen_ns;
        let actual_ns = self.now.ns_since(expected.scheduled) - stolen_ns;
        let bound_ns = (expected.ticks + 1) * TICK_NS + self.backup_ns;
        assert!(actual_ns < bound_ns, "late: {actual_ns} ns of {bound_ns}");
    }

    /// Checks that all pending events fire in the end.
    fn finish(&mut self) {
        while let Some(next) = self.timers.next_due() {
            self.stolen_ns += next.ns_since(self.now);
            self.now = self.now.max(next);
            self.fire_all(TriggerState::Idle);
        }
        assert!(self.pending.is_empty(), "{} lost", self.pending.len());
        assert!(self.timers.is_empty());
        assert_eq!(self.timers.counts().fired, self.fired);
        assert_eq!(self.timers.triggers().lateness().count(), self.fired);
    }
}

fn run(seed: u64, steps: u64, backup_ticks: u64) -> u64 {
    let mut model = Model::new(seed, backup_ticks);
    for _ in 0..steps {
        model.step();
    }
    model.finish();
    model.fired
}

#[test]
fn two_million_operations_keep_the_bound() {
    const SEED: u64 = 0x50f7_71e5;
    println!("seed {SEED:#x}");
    assert!(run(SEED, 1_000_000, 1_000) > 100_000);
    assert!(run(SEED + 1, 1_000_000, 4_000) > 100_000);
}

proptest! {
    #[test]
    fn any_thread_keeps_the_bound(seed: u64, backup_ticks in 1u64..10_000) {
        run(seed, 500, backup_ticks);
    }
}

#[test]
fn the_paper_s_operations() {
    let timers = SoftTimers::<()>::new(Instant::ORIGIN, Duration::from_millis(4));
    assert_eq!(SoftTimers::<()>::measure_resolution(), 1_000_000);
    assert_eq!(
        SoftTimers::<()>::measure_time(Instant::from_ns(12_345_678)),
        12_345
    );
    assert_eq!(timers.interrupt_clock_resolution(), 250);
}

#[test]
fn rough_events_fire_as_others_do_but_are_not_waited_for() {
    let mut timers = SoftTimers::new(Instant::ORIGIN, Duration::from_millis(4));
    let at = |ticks: u64| Instant::from_ns(ticks * TICK_NS);
    let rough = timers.schedule(FireWindow::roughly(at(5)), "rough");
    assert!(!timers.has_exact());
    timers.schedule(FireWindow::from(at(7)), "exact");
    let cancelled = timers.schedule(FireWindow::from(at(8)), "cancelled");
    assert!(timers.reschedule(rough, at(6)));
    let fire = |timers: &mut SoftTimers<_>, ticks| {
        let due = timers.check(TriggerState::SystemCall, at(ticks));
        due.map(|due| due.value)
    };
    assert_eq!(fire(&mut timers, 7), Some("rough"));
    assert_eq!(fire(&mut timers, 8), Some("exact"));
    assert!(timers.has_exact());
    assert!(timers.cancel(cancelled).is_some());
    assert!(!timers.has_exact());
    timers.schedule(FireWindow::from(at(9)), "cleared");
    drop(timers.clear());
    assert!(!timers.has_exact());
}

#[test]
fn the_far_future_never_comes() {
    let soon = Instant::from_ns(5 * TICK_NS);
    let mut timers = SoftTimers::new(Instant::ORIGIN, Duration::from_millis(4));
    let key = timers.schedule(FireWindow::from(Instant::FAR_FUTURE), ());
    for now in [soon, soon.add_ns(TICK_NS), Instant::FAR_FUTURE] {
        assert_eq!(timers.check(TriggerState::Backup, now), None);
    }
    assert_eq!(timers.cancel(key), Some(()));
}

/// Figure 1, with T = 1.
#[test]
fn an_event_fires_in_the_tick_after_the_one_asked() {
    for offset_ns in 0..TICK_NS {
        let mut timers = SoftTimers::new(Instant::ORIGIN, Duration::from_nanos(2 * TICK_NS));
        let scheduled = Instant::from_ns(10 * TICK_NS + offset_ns);
        timers.schedule_soft_event(scheduled, 1, ());
        let tick = Instant::from_ns(12 * TICK_NS);
        assert!(
            timers
                .check(TriggerState::SystemCall, tick.sub_ns(1))
                .is_none()
        );
        assert!(timers.check(TriggerState::SystemCall, tick).is_some());
    }
}

/// Steele, Lea, Flood: *Fast splittable pseudorandom number generators*.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a value below `bound`, with each octave equally likely.
    fn log_uniform(&mut self, bound: u64) -> u64 {
        let octaves = u64::from(bound.max(2).ilog2());
        let top = 1 << (1 + self.below(octaves));
        self.below(top)
    }
}
