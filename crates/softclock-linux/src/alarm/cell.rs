//! The state that a thread shares with the signal handler that interrupts it.

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

/// The section depth, the events and the timers of one thread.
///
/// Only the owning thread accesses it: its normal code, and its signal handler, which runs between two instructions of
/// that code. The table, the state of the timers and the counters are plain cells. The handler accesses them only when
/// `depth` is 0, and the normal code only while it is not; compiler fences keep these accesses from moving across a
/// change of the depth. Fields that both may access at any time are atomic.
pub(super) struct AlarmCell {
    /// The number of nested sections that the thread is in.
    depth: AtomicU32,
    /// [`AlarmKind`]s of alarms that landed inside a section.
    pending: AtomicU32,
    /// The earliest due time in the table, in nanoseconds.
    next_due: AtomicU64,
    /// The earliest due time of the plain events, in nanoseconds.
    plain_next_due: AtomicU64,
    /// The time of the last trigger state or alarm, in nanoseconds.
    last_trigger: AtomicU64,
    table: Table,
    /// Whether events are being fired. A handler that reaches a trigger state must not fire others inside.
    running: Cell<bool>,
    clock: ThreadClock,
    backup_timer: PosixTimer,
    deadline_alarm: DeadlineAlarm,
    /// `None` while the backup timer is off.
    backup_period: Cell<Option<BackupPeriod>>,
    tick_ns: u64,
    counters: Counters,
}

/// The timer that a signal comes from: the value that the signal carries, and a bit of [`AlarmCell::pending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlarmKind {
    Backup = 1,
    Deadline = 2,
}

impl AlarmCell {
    /// Creates a cell whose timers are not armed.
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

    /// Starts the backup timer.
    pub(super) fn start(&self) -> io::Result<()> {
        self.backup_period
            .get()
            .map_or(Ok(()), |period| self.arm_backup(period.period_ns()))
    }

    /// Restarts the backup timer with this longest period, or stops it.
    pub(super) fn set_backup(&self, longest: Option<Duration>) {
        self.within(|| {
            let period =
                longest.map(|longest| BackupPeriod::new(self.tick_ns, saturating_ns(longest)));
            self.backup_period.set(period);
            let result = match period {
                Some(period) => self.arm_backup(period.period_ns()),
                None => self.backup_timer.disarm(),
            };
            // Fails only for a timer that does not exist.
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

    /// Records a trigger state, and returns the time of the one before. An alarm that lands between the read and the
    /// write is overwritten, so that the next interval seems a little longer than it is.
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

    /// Fires up to `limit` events that are due at `now`, the most overdue first, and returns their number. Call it only
    /// inside a section or in the signal handler.
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
            // Rescheduled before it fires: then it is not due at `now` any more, so each event fires once at most.
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

    /// Sets, moves or cancels the deadline alarm if `now` requires it.
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

    /// Handles the signal of a timer. Runs in the signal handler.
    pub(super) fn on_signal(&self, kind: AlarmKind) {
        // Inside a section the plain cells may be in the middle of a change: only leave a mark for `leave`.
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
        // Learned only here: an alarm that waited for the end of a section is later than the signal was.
        if kind == AlarmKind::Deadline {
            self.deadline_alarm.learn_delay(now);
        }
        self.serve(kind, now);
        let done = Instant::from_ns(conversion.read_in_handler());
        self.after_alarm(kind, now, done);
        compiler_fence(SeqCst);
    }

    /// Does the work of alarms that landed inside the section that has ended.
    #[cold]
    fn run_pending(&self) {
        loop {
            // A section again: alarms that land meanwhile are marked as pending, and found by the next round.
            self.depth.store(1, Relaxed);
            compiler_fence(SeqCst);
            // A swap, because an alarm that landed between a read and a write would be lost.
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
            // Checked after the section has ended: an alarm that lands from here on does its work itself.
            if self.pending.load(Relaxed) == 0 {
                return;
            }
        }
    }

    /// Counts an alarm and fires the events that are due, inside a section or in the signal handler.
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
        // The alarm for the next deadline is set here, because the interrupted program may not reach a trigger state
        // before.
        self.follow_plan(done);
    }

    /// Records how late the plain events are, and adapts the period of the backup timer to the lateness of all events.
    fn adapt_backup(&self, now: Instant) {
        let plain = overdue(self.plain_next_due.load(Relaxed), now);
        if let Some(late) = plain {
            self.counters.plain_overdue.record(late);
        }
        let latest = plain.max(overdue(self.next_due.load(Relaxed), now));
        // `None` if the timer was turned off while a signal of it was pending.
        let Some(mut period) = self.backup_period.get() else {
            return;
        };
        let before = period.period_ns();
        let after = period.after_backup(latest);
        self.backup_period.set(Some(period));
        if after != before {
            // Fails only for a timer that does not exist.
            let _ = self.arm_backup(after);
        }
    }

    /// Arms the backup timer for a signal every `period_ns`, less a quarter of a tick.
    ///
    /// The kernel checks processor time at its ticks only. Without the reduction, a period of n ticks could end just
    /// after a tick, and would then take n + 1.
    fn arm_backup(&self, period_ns: u64) -> io::Result<()> {
        self.backup_timer.arm_each(period_ns - self.tick_ns / 4)
    }

    /// Updates the copies of the earliest due time and the wanted alarm after a change of the table.
    fn refresh(&self) {
        self.next_due.store(self.table.next_due().as_ns(), Relaxed);
        let early_ns = self.deadline_alarm.early_ns();
        self.deadline_alarm
            .set_wanted(self.table.next_alarm(early_ns));
    }

    /// Sets, moves or cancels the deadline alarm as [`DeadlineAlarm::follow_plan`] decides.
    fn follow_plan(&self, now: Instant) {
        let offset_ns = self.clock.conversion().offset_ns();
        self.deadline_alarm
            .follow_plan(now, offset_ns, &self.counters);
    }

    /// Runs `work` inside a section, so that it may access the plain cells.
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

/// Returns by how many nanoseconds an event due at `due_ns` is late; `None` if it is not.
fn overdue(due_ns: u64, now: Instant) -> Option<u64> {
    now.as_ns().checked_sub(due_ns).filter(|&late| late > 0)
}

/// The shortest period of an event. Shorter ones would leave the thread no time for anything else.
const LEAST_PERIOD_NS: u64 = 1_000;
