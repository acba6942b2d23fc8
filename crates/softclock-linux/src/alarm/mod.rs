//! Alarms: the hardware timers behind the soft timers (*Soft Timers*, sections 3 and 5.9).
//!
//! Soft timers fire at trigger states, so a thread that reaches those often needs no alarm. For the times between, each
//! thread has two POSIX timers that send it a signal:
//!
//! - The **backup** timer counts the thread's processor time. The kernel checks such timers at its tick, so they cost
//!   almost nothing, and an idle thread gets no signals. At each signal the handler looks for overdue events. The
//!   period adapts to the lateness found, from one tick to 32 ms.
//! - The **deadline** alarm lands at the earliest deadline of the events that have one. It is set lazily, just before
//!   the thread runs user code, and usually stays set when a trigger state fires the event first.
//!
//! A signal can interrupt the thread between any two instructions: inside the allocator, or during a `RefCell` borrow.
//! Therefore:
//!
//! - Only events registered here as [`AlarmSafe`], which recur and are never dropped, run inside the signal handler.
//!   Only these have a bound on lateness: that of the backup (its longest period plus one tick, in the thread's own
//!   running time), and that of their deadline. Plain events wait for a trigger state; the backup only records how late
//!   they are ([`set_plain_next_due`](Alarms::set_plain_next_due)).
//! - The runtime marks its critical sections ([`enter`](Alarms::enter), [`leave`](Alarms::leave)). An alarm that lands
//!   in a section runs no event; its work is done when the section ends.
//! - Alarms cannot starve the thread: deadline alarms keep a distance of at least 100 us. The distance grows, up to
//!   10 ms, while the thread has less time between two alarms than an alarm takes. Deadlines are missed by as much.
//!
//! [`SignalTimer`] is a hardware timer without any of these precautions, for comparison in experiments.
//!
//! An [`Alarms`] belongs to the thread that created it. All threads of the process share one real-time signal, the
//! first that has no handler yet. Interrupted system calls are restarted, except those that the kernel never restarts,
//! such as epoll_wait (signal(7)).
//!
//! # Example
//! ```
//! use std::time::Duration;
//!
//! use softclock_core::Clock;
//! use softclock_linux::alarm::{AlarmCounter, Alarms};
//! use softclock_linux::clock::ThreadClock;
//!
//! // Alarm-safe events are never dropped, so they live in a `static` or a leaked box.
//! static TICKS: AlarmCounter = AlarmCounter::new();
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ThreadClock::new();
//! let alarms = Alarms::new(&clock)?;
//! alarms.register(&TICKS, Duration::from_millis(1), None)?;
//!
//! // A runtime calls this at each trigger state; the backup timer does the same if the next one is far away.
//! while TICKS.fires() < 3 {
//!     alarms.run_due(clock.now(), 10);
//! }
//! # Ok(())
//! # }
//! ```

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

/// The alarms of one thread. Only that thread can use them; see the [module](self).
pub struct Alarms {
    /// The cell that the signal handler shares. A raw pointer from a leaked box, because the handler holds a copy of
    /// it.
    cell: NonNull<AlarmCell>,
    /// Not `Send`, not `Sync`: the timers signal this thread.
    _of_this_thread: PhantomData<*const ()>,
}

/// The settings of a thread's alarms.
#[derive(Clone, Debug)]
pub struct AlarmOptions {
    /// The longest period of the backup timer, reached while it finds nothing overdue. Raised to the kernel's tick if
    /// it is shorter. The default is 32 ms.
    pub backup_max: Duration,
    /// The least distance between deadline alarms, limited to 100 us (the default) to 10 ms.
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
    /// Creates the alarms of the calling thread, and starts the backup timer. Takes some microseconds.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if the thread has alarms, `WouldBlock` if the user's limit of pending signals
    /// (RLIMIT_SIGPENDING) is exhausted, and `ResourceBusy` if all real-time signals have handlers.
    pub fn new(clock: &ThreadClock) -> io::Result<Self> {
        Self::with_options(clock, &AlarmOptions::default())
    }

    /// Like [`new`](Self::new), with settings.
    ///
    /// # Errors
    /// The same as for [`new`](Self::new).
    pub fn with_options(clock: &ThreadClock, options: &AlarmOptions) -> io::Result<Self> {
        let cell = Box::new(AlarmCell::new(clock, options)?);
        // A plain pointer instead of the box, because a box claims that there is no other pointer to its content.
        let cell = NonNull::from(Box::leak(cell));
        // SAFETY: the cell is on the heap and freed only by drop, after detaching.
        if let Err(error) = unsafe { handler::attach(cell.as_ptr()) } {
            // SAFETY: the cell came from a box and was not attached, so no other pointer to it exists.
            drop(unsafe { Box::from_raw(cell.as_ptr()) });
            return Err(error);
        }
        let alarms = Self {
            cell,
            _of_this_thread: PhantomData,
        };
        // If this fails, dropping `alarms` detaches and frees the cell.
        alarms.cell().start()?;
        Ok(alarms)
    }

    /// Begins a section in which no alarm runs an event. Sections nest. Costs about 0.5 ns.
    #[inline(always)]
    pub fn enter(&self) {
        self.cell().enter();
    }

    /// Ends a section. At the end of the outermost one, does the work of alarms that landed inside. Costs about 0.5 ns
    /// if there were none.
    ///
    /// A call without a matching [`enter`](Self::enter) ends an outer section early, or does nothing outside of
    /// sections. Prefer [`section`](Self::section).
    #[inline(always)]
    pub fn leave(&self) {
        self.cell().leave();
    }

    /// Begins a section that ends when the returned value is dropped.
    #[inline(always)]
    pub fn section(&self) -> Section<'_> {
        self.enter();
        Section(self)
    }

    /// Registers `handler` to fire every `period` (at least 1 us), counted from its previous firing; the first time one
    /// period from now.
    ///
    /// Each firing happens at the first of these: a trigger state ([`run_due`](Self::run_due)), the backup timer, or a
    /// deadline alarm about `deadline` after the event was due. Sets the deadline alarm if this event's is the
    /// earliest.
    ///
    /// # Errors
    /// Returns [`TableFull`] if the thread has [`CAPACITY`] alarm-safe events.
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

    /// Ends an event's registration. Returns whether it was registered.
    pub fn unregister(&self, id: AlarmId) -> bool {
        self.cell().unregister(id)
    }

    /// Records a trigger state at `now`, and returns the time of the previous one; alarms count too. Costs a memory
    /// read and a write.
    #[inline(always)]
    pub fn on_trigger(&self, now: Instant) -> Instant {
        self.cell().on_trigger(now)
    }

    /// The due time of the earliest alarm-safe event, or the far future without events. Costs a memory read.
    #[inline(always)]
    pub fn next_due(&self) -> Instant {
        self.cell().next_due()
    }

    /// Fires up to `limit` events that are due at `now`, the most overdue first, and returns their number. Call it at
    /// trigger states. Costs a comparison if nothing is due.
    #[inline]
    pub fn run_due(&self, now: Instant, limit: usize) -> usize {
        let cell = self.cell();
        if now < cell.next_due() {
            return 0;
        }
        cell.within(|| cell.run_due(now, limit, FiredBy::TriggerState))
    }

    /// Sets the due time of the earliest plain event, one that is *not* alarm-safe, or the far future without plain
    /// events. The backup timer records how late it is. Costs a memory write.
    #[inline(always)]
    pub fn set_plain_next_due(&self, due: Instant) {
        self.cell().set_plain_next_due(due);
    }

    /// Sets, moves or cancels the deadline alarm if necessary. Call it before user code runs.
    ///
    /// Costs a few comparisons if there is nothing to do, otherwise a system call of about 0.5 us (3.5 us if the kernel
    /// has to reprogram the hardware timer).
    #[inline(always)]
    pub fn arm_if_needed(&self, now: Instant) {
        self.cell().arm_if_needed(now);
    }

    /// Cancels the deadline alarm. Call it before the thread blocks until [`next_due`](Self::next_due): the end of that
    /// wait is a trigger state, so no alarm is needed. Costs a comparison if the alarm is not set.
    pub fn disarm_for_idle(&self) {
        self.cell().disarm();
    }

    /// Changes the longest period of the backup timer, or turns the timer off (`None`): then only trigger states and
    /// deadlines fire events. One system call.
    pub fn set_backup(&self, longest: Option<Duration>) {
        self.cell().set_backup(longest);
    }

    /// The current period of the backup timer; [`u64::MAX`] nanoseconds if it is off.
    pub fn backup_period(&self) -> Duration {
        Duration::from_nanos(self.cell().backup_period_ns())
    }

    /// The upper bound on the lateness of alarm-safe events, in the thread's own running time (the paper's X): the
    /// longest backup period plus one tick; [`u64::MAX`] nanoseconds if the backup timer is off.
    ///
    /// The paper's `interrupt_clock_resolution()` is the reciprocal.
    pub fn longest_backup(&self) -> Duration {
        Duration::from_nanos(self.cell().longest_backup_ns())
    }

    /// Returns a copy of the statistics, about 25 KiB.
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
        // The handler forgets the cell first, so that a signal that is queued, or lands while the timers are being
        // deleted, does nothing.
        handler::detach();
        // SAFETY: the pointer came from a box. The handler has forgotten it, and cannot be using it: it runs in this
        // thread only, to completion. No reference is left, because references borrow from `self`.
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

/// Creates and deletes a timer of the type that the backup timer needs.
pub(crate) fn cpu_clock_timer() -> io::Result<()> {
    PosixTimer::new(TimerClock::ThreadCpu, libc::SIGALRM, 0).map(drop)
}

/// A section in which no alarm runs an event; see [`Alarms::section`]. Dropping it ends the section.
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
