//! The one object that a thread shares with the signal handlers that interrupt it.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, compiler_fence,
};
use std::time::Duration;

use softclock_core::time::saturating_ns;
use softclock_core::{Clock, Instant};

use super::AlarmOptions;
use super::backup_period::BackupPeriod;
use super::deadline_alarm::DeadlineAlarm;
use super::handler;
use super::posix_timer::{PosixTimer, TimerClock};
use super::safe::{AlarmSafe, FiredBy, Firing};
use super::stats::{AlarmStats, Counters, add};
use super::table::{AlarmId, Table, TableFull};
use crate::clock::{ThreadClock, tick_ns};

/// The marks, the table and the timers of one thread.
///
/// Only the owning thread ever touches it: its code, and its signal handler, which runs between two instructions of
/// that code. The handler touches the table, the timers' state and the counters (all plain cells) only when the depth
/// is 0, and the code only while it is not; compiler fences keep the accesses on their side of the depth's change. What
/// both may touch at any time is atomic.
pub(super) struct AlarmCell {
    /// How many sections of the runtime the thread is in.
    depth: AtomicU32,
    /// [`AlarmKind`]s of alarms that landed inside a section.
    pending: AtomicU32,
    /// The first due time of the table, in nanoseconds.
    next_due: AtomicU64,
    /// The first due time of the application's plain events, in nanoseconds.
    plain_next_due: AtomicU64,
    /// When the last trigger state was, alarms included, in nanoseconds.
    last_trigger: AtomicU64,
    table: Table,
    /// Handlers are running: they do not nest.
    running: Cell<bool>,
    clock: ThreadClock,
    backup_timer: PosixTimer,
    deadline_alarm: DeadlineAlarm,
    /// `None` while the backup timer is off.
    backup_period: Cell<Option<BackupPeriod>>,
    tick_ns: u64,
    counters: Counters,
}

/// What a signal stands for; sent along as its value, and a bit of [`AlarmCell::pending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlarmKind {
    Backup = 1,
    Deadline = 2,
}

impl AlarmCell {
    /// A cell whose timers are not yet set.
    pub(super) fn new(clock: &ThreadClock, options: &AlarmOptions) -> io::Result<Self> {
        let signal = handler::install()?;
        let tick_ns = tick_ns();
        let backup_max_ns = saturating_ns(options.backup_max);
        let deadline_timer =
            PosixTimer::new(TimerClock::Monotonic, signal, AlarmKind::Deadline as usize)?;
        Ok(Self {
            depth: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            next_due: AtomicU64::new(u64::MAX),
            plain_next_due: AtomicU64::new(u64::MAX),
            last_trigger: AtomicU64::new(clock.now().as_ns()),
            table: Table::new(),
            running: Cell::new(false),
            clock: clock.clone(),
            backup_timer: PosixTimer::new(
                TimerClock::ThreadCpu,
                signal,
                AlarmKind::Backup as usize,
            )?,
            deadline_alarm: DeadlineAlarm::new(
                deadline_timer,
                saturating_ns(options.alarm_distance),
            ),
            backup_period: Cell::new(Some(BackupPeriod::new(tick_ns, backup_max_ns))),
            tick_ns,
            counters: Counters::new(),
        })
    }

    /// Sets the backup timer going.
    pub(super) fn start(&self) -> io::Result<()> {
        self.backup_period
            .get()
            .map_or(Ok(()), |period| self.arm_backup(period.period_ns()))
    }

    pub(super) fn set_backup(&self, longest: Option<Duration>) {
        self.within(|| {
            let period =
                longest.map(|longest| BackupPeriod::new(self.tick_ns, saturating_ns(longest)));
            self.backup_period.set(period);
            let result = match period {
                Some(period) => self.arm_backup(period.period_ns()),
                None => self.backup_timer.disarm(),
            };
            // Can only fail for a timer that does not exist.
            debug_assert!(result.is_ok());
        });
    }

    #[inline(always)]
    pub(super) fn enter(&self) {
        self.depth
            .store(self.depth.load(Relaxed).wrapping_add(1), Relaxed);
        compiler_fence(SeqCst);
    }

    #[inline(always)]
    pub(super) fn leave(&self) {
        compiler_fence(SeqCst);
        let depth = self.depth.load(Relaxed).saturating_sub(1);
        self.depth.store(depth, Relaxed);
        compiler_fence(SeqCst);
        if depth == 0 && self.pending.load(Relaxed) != 0 {
            self.run_pending();
        }
    }

    /// An alarm may land between the read and the write: the interval then begins a little early.
    #[inline(always)]
    pub(super) fn on_trigger(&self, now: Instant) -> Instant {
        let before = self.last_trigger.load(Relaxed);
        self.last_trigger.store(now.as_ns(), Relaxed);
        Instant::from_ns(before)
    }

    #[inline(always)]
    pub(super) fn next_due(&self) -> Instant {
        Instant::from_ns(self.next_due.load(Relaxed))
    }

    pub(super) fn set_plain_next_due(&self, due: Instant) {
        self.plain_next_due.store(due.as_ns(), Relaxed);
    }

    pub(super) fn backup_period_ns(&self) -> u64 {
        self.within(|| self.period_or(u64::MAX, |period| period.period_ns()))
    }

    pub(super) fn longest_backup_ns(&self) -> u64 {
        let tick_ns = self.tick_ns;
        self.within(|| self.period_or(u64::MAX, |period| period.max_ns().saturating_add(tick_ns)))
    }

    fn period_or(&self, off: u64, on: impl FnOnce(BackupPeriod) -> u64) -> u64 {
        self.backup_period.get().map_or(off, on)
    }

    pub(super) fn register(
        &self,
        handler: &'static dyn AlarmSafe,
        period_ns: u64,
        slack_ns: Option<u64>,
    ) -> Result<AlarmId, TableFull> {
        let period_ns = period_ns.max(LEAST_PERIOD_NS);
        self.within(|| {
            let now = self.clock.now();
            let due = now.add_ns(period_ns);
            let id = self.table.insert(handler, period_ns, slack_ns, due)?;
            self.refresh();
            self.follow_plan(now);
            Ok(id)
        })
    }

    pub(super) fn unregister(&self, id: AlarmId) -> bool {
        self.within(|| {
            let removed = self.table.remove(id);
            self.refresh();
            removed
        })
    }

    /// Fires what is due at `now`, the most overdue first. Only inside a section.
    pub(super) fn run_due(&self, now: Instant, limit: usize, by: FiredBy) -> usize {
        if self.running.replace(true) {
            return 0;
        }
        let mut fired = 0;
        while fired < limit {
            let Some(event) = self.table.most_overdue(now) else {
                break;
            };
            let due = event.due;
            self.counters.fired[by as usize].record(now.ns_since(due));
            self.table.reschedule(event.slot, now);
            event.handler.fire(&Firing { now, due, by });
            fired += 1;
        }
        self.running.set(false);
        if fired > 0 {
            self.refresh();
        }
        fired
    }

    /// Sets, moves or takes back the deadline alarm as is right at `now`.
    #[inline]
    pub(super) fn arm_if_needed(&self, now: Instant) {
        if self.deadline_alarm.needs_plan(now) {
            self.within(|| self.follow_plan(now));
        }
    }

    pub(super) fn disarm(&self) {
        if self.deadline_alarm.is_armed() {
            self.within(|| self.deadline_alarm.disarm());
        }
    }

    pub(super) fn stats(&self) -> AlarmStats {
        self.within(|| AlarmStats {
            distance_ns: self.deadline_alarm.distance_ns(),
            early_ns: self.deadline_alarm.early_ns(),
            backup_period_ns: self.period_or(u64::MAX, |period| period.period_ns()),
            ..self.counters.snapshot()
        })
    }

    /// What the signal handler does.
    pub(super) fn on_signal(&self, kind: AlarmKind) {
        if self.depth.load(Relaxed) != 0 {
            self.pending
                .store(self.pending.load(Relaxed) | kind as u32, Relaxed);
            let deferred = &self.counters.deferred;
            deferred.store(deferred.load(Relaxed).wrapping_add(1), Relaxed);
            return;
        }
        compiler_fence(SeqCst);
        let conversion = self.clock.conversion();
        let now = Instant::from_ns(conversion.read_in_handler());
        if kind == AlarmKind::Deadline {
            self.deadline_alarm.learn_delay(now);
        }
        self.serve(kind, now);
        let done = Instant::from_ns(conversion.read_in_handler());
        self.after_alarm(kind, now, done);
        compiler_fence(SeqCst);
    }

    /// Does the work of alarms that landed inside the section that ended.
    #[cold]
    fn run_pending(&self) {
        loop {
            self.depth.store(1, Relaxed);
            compiler_fence(SeqCst);
            // One instruction: an alarm may land between two.
            let pending = self.pending.swap(0, Relaxed);
            for kind in [AlarmKind::Deadline, AlarmKind::Backup] {
                if pending & kind as u32 != 0 {
                    let now = self.clock.now();
                    self.serve(kind, now);
                    self.after_alarm(kind, now, self.clock.now());
                }
            }
            compiler_fence(SeqCst);
            self.depth.store(0, Relaxed);
            compiler_fence(SeqCst);
            if self.pending.load(Relaxed) == 0 {
                return;
            }
        }
    }

    fn serve(&self, kind: AlarmKind, now: Instant) {
        let interval_ns = now.ns_since(self.on_trigger(now));
        match kind {
            AlarmKind::Deadline => {
                self.counters.deadline_alarms.record(interval_ns);
                self.deadline_alarm.landed(now);
                self.run_due(now, usize::MAX, FiredBy::Deadline);
            }
            AlarmKind::Backup => {
                self.counters.backups.record(interval_ns);
                add(&self.counters.overruns, self.backup_timer.overruns());
                self.adapt_backup(now);
                self.run_due(now, usize::MAX, FiredBy::Backup);
            }
        }
    }

    fn after_alarm(&self, kind: AlarmKind, landed: Instant, done: Instant) {
        if kind == AlarmKind::Deadline {
            self.deadline_alarm.on_done(landed, done);
        }
        // The interrupted program may not reach a trigger state before the next deadline.
        self.follow_plan(done);
    }

    fn adapt_backup(&self, now: Instant) {
        let plain = overdue(self.plain_next_due.load(Relaxed), now);
        if let Some(late) = plain {
            self.counters.plain_overdue.record(late);
        }
        let latest = plain.max(overdue(self.next_due.load(Relaxed), now));
        // A signal may still be on its way when the timer is turned off.
        let Some(mut period) = self.backup_period.get() else {
            return;
        };
        let before = period.period_ns();
        let after = period.after_backup(latest);
        self.backup_period.set(Some(period));
        if after != before {
            // Can only fail for a timer that does not exist.
            let _ = self.arm_backup(after);
        }
    }

    /// The kernel looks at processor time at its ticks only. A quarter of a tick less than the period asked for keeps
    /// a tick from being missed by a hair.
    fn arm_backup(&self, period_ns: u64) -> io::Result<()> {
        self.backup_timer.arm_each(period_ns - self.tick_ns / 4)
    }

    fn refresh(&self) {
        self.next_due.store(self.table.next_due().as_ns(), Relaxed);
        let early_ns = self.deadline_alarm.early_ns();
        self.deadline_alarm
            .set_wanted(self.table.next_alarm(early_ns));
    }

    fn follow_plan(&self, now: Instant) {
        let offset_ns = self.clock.conversion().offset_ns();
        self.deadline_alarm
            .follow_plan(now, offset_ns, &self.counters);
    }

    /// Runs owner's code that touches what the handler touches.
    #[inline(always)]
    pub(super) fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        self.enter();
        let result = work();
        self.leave();
        result
    }
}

impl AlarmKind {
    pub(super) const fn from_value(value: usize) -> Option<Self> {
        match value {
            1 => Some(Self::Backup),
            2 => Some(Self::Deadline),
            _ => None,
        }
    }
}

/// How late what was due at `due_ns` is.
fn overdue(due_ns: u64, now: Instant) -> Option<u64> {
    now.as_ns().checked_sub(due_ns).filter(|&late| late > 0)
}

/// Events more frequent than this would leave the thread nothing else to do.
const LEAST_PERIOD_NS: u64 = 1_000;
