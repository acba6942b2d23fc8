//! Alarms: the hardware timers that back the soft timers up (*Soft Timers*, sections 3 and 5.9).
//!
//! A thread that reaches trigger states often needs none of this. For the times when it does not, it has two POSIX
//! timers that send it a signal:
//!
//! - The **backup** counts the thread's own processor time and so rides on the kernel's tick, nearly free; it looks for
//!   overdue events each tick to each 32 ms, by how late it finds them. An idle thread has none.
//! - The **deadline** alarm comes at the earliest deadline of the events that have one. It is set lazily, when the
//!   thread is about to run code of its user, and not taken back when a trigger state is faster.
//!
//! A signal lands between any two instructions: in the allocator, under a `RefCell` borrow. Therefore:
//!
//! - Only events registered here as [`AlarmSafe`], which recur and are never dropped, run in the signal. They alone
//!   have the bounds of the backup (the longest backup period and a tick of the thread's own running time) and of
//!   deadlines. All others wait for a trigger state; the backup counts how late it saw them
//!   ([`set_plain_next_due`](Alarms::set_plain_next_due)).
//! - The runtime marks its own sections ([`enter`](Alarms::enter), [`leave`](Alarms::leave)). An alarm that lands in
//!   one runs nothing; the work is done when the section ends.
//! - Alarms cannot starve the thread: deadline alarms come 100 us apart or more, and farther apart, up to 10 ms, when
//!   the thread had less time between two of them than they took. A deadline is then missed by as much.
//!
//! [`SignalTimer`] is the hardware timer without all this care, to measure against.
//!
//! An [`Alarms`] belongs to the thread that made it. One real-time signal that nobody handles is taken for all threads
//! of the process; interrupted system calls are restarted, except those that never are (epoll_wait among them).

mod backup_period;
mod cell;
mod deadline_alarm;
mod deadline_plan;
mod handler;
mod lateness;
mod posix_timer;
mod safe;
mod signal_timer;
mod spacing;
mod stats;
#[cfg(feature = "experiments")]
mod synthetic;
mod table;

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::time::Duration;

use softclock_core::Instant;
use softclock_core::time::saturating_ns;

pub use backup_period::BackupPeriod;
pub use lateness::AlarmLateness;
pub use safe::{AlarmCounter, AlarmSafe, AlarmSend, FiredBy, Firing};
pub use signal_timer::SignalTimer;
pub use stats::AlarmStats;
#[cfg(feature = "experiments")]
pub use synthetic::SyntheticHandler;
pub use table::{AlarmId, CAPACITY, TableFull};

use crate::clock::ThreadClock;
use cell::AlarmCell;
use posix_timer::{PosixTimer, TimerClock};

/// The alarms of one thread, which alone can use them.
pub struct Alarms {
    /// From `Box::into_raw`: the signal handler holds the same pointer.
    cell: NonNull<AlarmCell>,
    /// Not `Send`, not `Sync`: the timers signal this thread.
    _of_this_thread: PhantomData<*const ()>,
}

/// Settings of a thread's alarms.
#[derive(Clone, Debug)]
pub struct AlarmOptions {
    /// The longest period of the backup timer while it finds nothing overdue; at least the kernel's tick. 32 ms.
    pub backup_max: Duration,
    /// The least distance between deadline alarms, from 100 us (also the default) to 10 ms.
    pub alarm_distance: Duration,
}

impl Default for AlarmOptions {
    fn default() -> Self {
        Self {
            backup_max: Duration::from_millis(32),
            alarm_distance: Duration::from_nanos(spacing::LEAST_DISTANCE_NS),
        }
    }
}

impl Alarms {
    /// Alarms for the calling thread, with the backup timer running. Some microseconds.
    ///
    /// Fails with `AlreadyExists` where the thread has alarms, `WouldBlock` where the user's limit of pending signals
    /// is exhausted, `ResourceBusy` where all real-time signals are taken.
    pub fn new(clock: &ThreadClock) -> io::Result<Self> {
        Self::with_options(clock, &AlarmOptions::default())
    }

    /// As [`new`](Self::new), with settings.
    pub fn with_options(clock: &ThreadClock, options: &AlarmOptions) -> io::Result<Self> {
        let cell = Box::new(AlarmCell::new(clock, options)?);
        // From here on drop takes care.
        let cell = NonNull::from(Box::leak(cell));
        // SAFETY: the cell is on the heap and freed only by drop, after detaching.
        if let Err(error) = unsafe { handler::attach(cell.as_ptr()) } {
            // SAFETY: the cell came from a box and was not attached, so that nobody else knows it.
            drop(unsafe { Box::from_raw(cell.as_ptr()) });
            return Err(error);
        }
        let alarms = Self {
            cell,
            _of_this_thread: PhantomData,
        };
        alarms.cell().start()?;
        Ok(alarms)
    }

    /// Marks the beginning of a section in which no handler may run. Sections nest. About 0.5 ns.
    #[inline(always)]
    pub fn enter(&self) {
        self.cell().enter();
    }

    /// Ends a section; at the end of the outermost one runs what an alarm left to do. About 0.5 ns if nothing.
    ///
    /// A `leave` without its [`enter`](Self::enter) ends the outer section or does nothing.
    #[inline(always)]
    pub fn leave(&self) {
        self.cell().leave();
    }

    /// A section that lasts as long as the value.
    #[inline(always)]
    pub fn section(&self) -> Section<'_> {
        self.enter();
        Section(self)
    }

    /// Has `handler` fire each `period` (at least 1 us) after its previous firing, for the first time a period from
    /// now: at a trigger state, or at the backup, or at the latest about when `deadline` has passed since it was due.
    /// Sets the deadline alarm if need be.
    pub fn register(
        &self,
        handler: &'static dyn AlarmSafe,
        period: Duration,
        deadline: Option<Duration>,
    ) -> Result<AlarmId, TableFull> {
        let slack_ns = deadline.map(saturating_ns);
        self.cell()
            .register(handler, saturating_ns(period), slack_ns)
    }

    /// Ends an event. Returns whether it was registered.
    pub fn unregister(&self, id: AlarmId) -> bool {
        self.cell().unregister(id)
    }

    /// Notes a trigger state at `now`; gives the time of the one before, which may have been an alarm. A memory read and
    /// a write.
    #[inline(always)]
    pub fn on_trigger(&self, now: Instant) -> Instant {
        self.cell().on_trigger(now)
    }

    /// When the first alarm-safe event is due; the far future if there is none. A memory read.
    #[inline(always)]
    pub fn next_due(&self) -> Instant {
        self.cell().next_due()
    }

    /// Fires up to `limit` events that are due at `now`, the most overdue first; returns their number. For trigger
    /// states: costs a comparison if nothing is due.
    #[inline]
    pub fn run_due(&self, now: Instant, limit: usize) -> usize {
        let cell = self.cell();
        if now < cell.next_due() {
            return 0;
        }
        cell.within(|| cell.run_due(now, limit, FiredBy::TriggerState))
    }

    /// Tells when the first event that is *not* alarm-safe is due (the far future: none), so that the backup timer can
    /// tell how late it is. A memory write.
    #[inline(always)]
    pub fn set_plain_next_due(&self, due: Instant) {
        self.cell().set_plain_next_due(due);
    }

    /// Sets the deadline alarm if it must be set. To be called before code of the user runs; costs a few comparisons
    /// if there is nothing to do, else a system call of about 0.5 us (3.5 us where the hardware is reprogrammed).
    #[inline(always)]
    pub fn arm_if_needed(&self, now: Instant) {
        self.cell().arm_if_needed(now);
    }

    /// Takes the deadline alarm back. To be called before the thread blocks until [`next_due`](Self::next_due), which
    /// needs no alarm; a comparison if it is not set.
    pub fn disarm_for_idle(&self) {
        self.cell().disarm();
    }

    /// Changes the longest period of the backup timer, or turns it off: then only trigger states and deadlines fire
    /// events. A system call.
    pub fn set_backup(&self, longest: Option<Duration>) {
        self.cell().set_backup(longest);
    }

    /// The present period of the backup timer.
    pub fn backup_period(&self) -> Duration {
        Duration::from_nanos(self.cell().backup_period_ns())
    }

    /// The paper's X: no alarm-safe event is later than this, counted in the thread's own running time.
    ///
    /// `interrupt_clock_resolution()` is its reciprocal.
    pub fn longest_backup(&self) -> Duration {
        Duration::from_nanos(self.cell().longest_backup_ns())
    }

    /// What has happened so far. Copies some 25 KiB.
    pub fn stats(&self) -> AlarmStats {
        self.cell().stats()
    }

    #[inline(always)]
    fn cell(&self) -> &AlarmCell {
        // SAFETY: the cell is freed by drop only, and only shared references to it are ever made.
        unsafe { self.cell.as_ref() }
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        // First the handler loses sight of the cell: a signal that is queued, or comes while the timers are being
        // deleted, does nothing.
        handler::detach();
        // SAFETY: the pointer came from a box; the handler no longer has it, it runs in this thread only, and so is not
        // running now; no reference is left, since they borrow from `self`.
        drop(unsafe { Box::from_raw(self.cell.as_ptr()) });
    }
}

impl fmt::Debug for Alarms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarms")
            .field("next_due", &self.next_due())
            .finish_non_exhaustive()
    }
}

/// Whether the backup timer's kind of timer can be had.
pub(crate) fn cpu_clock_timer() -> io::Result<()> {
    PosixTimer::new(TimerClock::ThreadCpu, libc::SIGALRM, 0).map(drop)
}

/// A section in which no handler runs; see [`Alarms::section`].
#[derive(Debug)]
pub struct Section<'a>(&'a Alarms);

impl Drop for Section<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests;
