//! The one-shot alarm for the earliest deadline.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use softclock_core::Instant;

use super::deadline_plan::{DeadlinePlan, IMMINENT_NS};
use super::posix_timer::PosixTimer;
use super::spacing::Spacing;
use super::stats::{Counters, add};

/// The timer of the deadline alarm and its state. `armed` and `wanted` are atomic because they are read outside
/// sections too.
#[derive(Debug)]
pub(super) struct DeadlineAlarm {
    timer: PosixTimer,
    /// The time to which the timer is set, in nanoseconds; `u64::MAX` if it is not set.
    armed: AtomicU64,
    /// The time at which an alarm should land, in nanoseconds; `u64::MAX` if none is needed.
    wanted: AtomicU64,
    spacing: Cell<Spacing>,
    /// The smoothed delay from the time set to the handler's start, in nanoseconds. Alarms are set earlier by this
    /// much.
    early_ns: Cell<u64>,
}

impl DeadlineAlarm {
    /// Creates an alarm that is not set. Alarms will land at least `distance_ns` apart.
    pub(super) fn new(timer: PosixTimer, distance_ns: u64) -> Self {
        Self {
            timer,
            armed: AtomicU64::new(u64::MAX),
            wanted: AtomicU64::new(u64::MAX),
            spacing: Cell::new(Spacing::new(distance_ns)),
            early_ns: Cell::new(FIRST_EARLY_NS),
        }
    }

    pub(super) fn early_ns(&self) -> u64 {
        self.early_ns.get()
    }

    pub(super) fn distance_ns(&self) -> u64 {
        self.spacing.get().distance_ns()
    }

    /// Sets the time at which an alarm should land; the far future if none is needed.
    pub(super) fn set_wanted(&self, at: Instant) {
        self.wanted.store(at.as_ns(), Relaxed);
    }

    #[inline]
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Relaxed) != u64::MAX
    }

    /// Returns whether the timer may have to be set, moved or cancelled at `now`, by a cheap and conservative check.
    /// [`follow_plan`](Self::follow_plan) decides.
    #[inline]
    pub(super) fn needs_plan(&self, now: Instant) -> bool {
        let armed = self.armed.load(Relaxed);
        let wanted = self.wanted.load(Relaxed);
        let none = armed & wanted == u64::MAX;
        let in_time = armed <= wanted && armed > now.as_ns().saturating_add(IMMINENT_NS);
        !none && !in_time
    }

    /// Updates the smoothed delay from an alarm that landed at `now`. Ignores alarms so late that the thread was
    /// probably preempted.
    pub(super) fn learn_delay(&self, now: Instant) {
        let armed = self.armed.load(Relaxed);
        let late = now.as_ns().saturating_sub(armed);
        if armed <= now.as_ns() && late < PREEMPTED_NS {
            let early = self.early_ns.get();
            let smoothed = early - early / SMOOTHING + late / SMOOTHING;
            self.early_ns
                .set(smoothed.clamp(LEAST_EARLY_NS, MOST_EARLY_NS));
        }
    }

    /// Marks the timer as not set, since its signal has landed at `now`; unless it has been set to a later time since.
    pub(super) fn landed(&self, now: Instant) {
        if self.armed.load(Relaxed) <= now.as_ns() {
            self.armed.store(u64::MAX, Relaxed);
        }
    }

    /// Adapts the distance between alarms to one that took from `landed` to `done`.
    pub(super) fn on_done(&self, landed: Instant, done: Instant) {
        let mut spacing = self.spacing.get();
        spacing.on_alarm(landed, done);
        self.spacing.set(spacing);
    }

    /// Sets, moves or cancels the timer as [`DeadlinePlan`] decides at `now`. `offset_ns` is the lead of the thread's
    /// clock over CLOCK_MONOTONIC.
    pub(super) fn follow_plan(&self, now: Instant, offset_ns: u64, counters: &Counters) {
        let armed = Instant::from_ns(self.armed.load(Relaxed));
        let wanted = Instant::from_ns(self.wanted.load(Relaxed));
        let earliest = self.spacing.get().earliest();
        match DeadlinePlan::decide(armed, wanted, now, earliest) {
            DeadlinePlan::Keep => {}
            DeadlinePlan::Arm(at) => {
                let pushed = armed > now && armed < at;
                add(
                    if pushed {
                        &counters.pushes
                    } else {
                        &counters.arms
                    },
                    1,
                );
                self.set(Some(at), offset_ns);
            }
            DeadlinePlan::Disarm => {
                add(&counters.pushes, 1);
                self.set(None, offset_ns);
            }
        }
    }

    pub(super) fn disarm(&self) {
        self.set(None, 0);
    }

    /// Sets the timer, or cancels it (`None`). Stores the time first, because the alarm may land at once.
    fn set(&self, at: Option<Instant>, offset_ns: u64) {
        self.armed
            .store(at.map_or(u64::MAX, Instant::as_ns), Relaxed);
        let result: io::Result<()> = match at {
            Some(at) => self.timer.arm_at(at.sub_ns(offset_ns).as_ns()),
            None => self.timer.disarm(),
        };
        // Fails only for a timer that does not exist.
        debug_assert!(result.is_ok());
    }
}

/// The assumed delay of alarms before the first measurement, and the limits of the smoothed delay.
const FIRST_EARLY_NS: u64 = 20_000;
const LEAST_EARLY_NS: u64 = 5_000;
const MOST_EARLY_NS: u64 = 60_000;

/// A new measurement of the delay has a weight of one in this many.
const SMOOTHING: u64 = 8;

/// An alarm later than this probably found its thread preempted. That is no property of alarms, so it is not learned.
const PREEMPTED_NS: u64 = 1_000_000;
