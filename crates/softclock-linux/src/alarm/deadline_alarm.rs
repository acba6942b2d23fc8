//! The one-shot alarm for the earliest deadline: when it is set, moved and taken back.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use softclock_core::Instant;

use super::deadline_plan::{DeadlinePlan, IMMINENT_NS};
use super::posix_timer::PosixTimer;
use super::spacing::Spacing;
use super::stats::{Counters, add};

/// The timer and what is known of it. `armed` and `wanted` are read outside sections too and so atomic.
#[derive(Debug)]
pub(super) struct DeadlineAlarm {
    timer: PosixTimer,
    /// What the timer is set to, in nanoseconds; `u64::MAX` if it is not set.
    armed: AtomicU64,
    /// When an alarm ought to land, in nanoseconds.
    wanted: AtomicU64,
    spacing: Cell<Spacing>,
    /// How late alarms land, smoothed; they are set earlier by it.
    early_ns: Cell<u64>,
}

impl DeadlineAlarm {
    /// Not set; alarms will land `distance_ns` apart or more.
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

    /// Tells when an alarm ought to land.
    pub(super) fn set_wanted(&self, at: Instant) {
        self.wanted.store(at.as_ns(), Relaxed);
    }

    #[inline]
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Relaxed) != u64::MAX
    }

    /// Whether the timer may have to be set or moved at `now`; [`follow_plan`](Self::follow_plan) tells how.
    #[inline]
    pub(super) fn needs_plan(&self, now: Instant) -> bool {
        let armed = self.armed.load(Relaxed);
        let wanted = self.wanted.load(Relaxed);
        let none = armed & wanted == u64::MAX;
        let in_time = armed <= wanted && armed > now.as_ns().saturating_add(IMMINENT_NS);
        !none && !in_time
    }

    /// Notes how late the alarm landed, unless the thread was not running in between.
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

    /// The signal has come at `now`: the timer is not set any more, unless it was set anew meanwhile.
    pub(super) fn landed(&self, now: Instant) {
        if self.armed.load(Relaxed) <= now.as_ns() {
            self.armed.store(u64::MAX, Relaxed);
        }
    }

    /// The alarm landed, and its work ended at `done`.
    pub(super) fn on_done(&self, landed: Instant, done: Instant) {
        let mut spacing = self.spacing.get();
        spacing.on_alarm(landed, done);
        self.spacing.set(spacing);
    }

    /// Sets, moves or takes back the timer as is right at `now`; `offset_ns` is what our clock is ahead of the kernel's.
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

    /// Notes the new time before setting it, for the alarm may land at once.
    fn set(&self, at: Option<Instant>, offset_ns: u64) {
        self.armed
            .store(at.map_or(u64::MAX, Instant::as_ns), Relaxed);
        let result: io::Result<()> = match at {
            Some(at) => self.timer.arm_at(at.sub_ns(offset_ns).as_ns()),
            None => self.timer.disarm(),
        };
        // Can only fail for a timer that does not exist.
        debug_assert!(result.is_ok());
    }
}

/// How late alarms land where nothing is known yet.
const FIRST_EARLY_NS: u64 = 20_000;
const LEAST_EARLY_NS: u64 = 5_000;
const MOST_EARLY_NS: u64 = 60_000;

/// The weight of a new measurement is one part in this many.
const SMOOTHING: u64 = 8;

/// An alarm this late found the thread not running, which says nothing about alarms.
const PREEMPTED_NS: u64 = 1_000_000;
