//! The statistics of a runtime.

use std::cell::Cell;
use std::time::Duration;

use softclock_core::time::saturating_ns;
use softclock_core::{Clock, EventCounts, TriggerStatistics};
use softclock_linux::alarm::AlarmStats;
use softclock_linux::clock::{ClockSource, cpu_time_ns};
use softclock_linux::readiness::Mechanism;

use super::inner::Inner;
use crate::signalling::SignallingReport;

/// All counts and histograms of a runtime at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Statistics {
    /// The source of the time.
    pub clock: ClockSource,
    /// The mechanism by which the kernel reports ready descriptors.
    pub mechanism: Mechanism,
    /// The reason why the mechanism is not epoll, if no mechanism was selected explicitly.
    pub fallback_reason: Option<String>,
    /// Trigger states, intervals and lateness by kind of trigger state.
    pub triggers: TriggerStatistics,
    /// Events scheduled, cancelled, fired.
    pub events: EventCounts,
    /// Events pending now, sleeping tasks included.
    pub pending: usize,
    /// The backup timer, the alarm for deadlines, and the alarm-safe events.
    pub alarms: AlarmStats,
    /// Turns of the runtime's loop.
    pub turns: u64,
    /// Polls of tasks.
    pub tasks: u64,
    /// Number of times the thread blocked because it had no work.
    pub blocks: u64,
    /// Time spent blocked because there was no work.
    pub blocked: Duration,
    /// Time spent spinning before an event.
    pub spun: Duration,
    /// Time in which the thread had work but could not run: it was preempted, its virtual CPU was stolen, or a task
    /// made a blocking call. Lateness includes this time; the bound on lateness counts running time only.
    pub not_running: Duration,
    /// The statistics of paced streams and datagrams.
    pub pacing: PacingStatistics,
    /// How the runtime has learned of the kernel's events; `None` with [`Policy::Interrupt`], which counts nothing.
    ///
    /// [`Policy::Interrupt`]: crate::signalling::Policy::Interrupt
    pub signalling: Option<SignallingReport>,
}

/// The statistics of a runtime's paced streams and datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PacingStatistics {
    /// Trains begun.
    pub trains: u64,
    /// Pieces given to the kernel. Late pieces that were sent together count as one.
    pub pieces: u64,
    /// Bytes of these pieces.
    pub bytes: u64,
    /// Number of times the kernel had no room for a piece.
    pub blocked: u64,
    /// Bytes that the rate allowed while streams were late by more than they make up for.
    pub forgotten_bytes: u64,
    /// Bytes accepted from writers but not yet given to the kernel.
    pub pending_bytes: u64,
}

/// Counts the work of paced sockets.
#[derive(Default)]
pub(crate) struct PacingCounts {
    so_far: Cell<PacingStatistics>,
}

impl PacingCounts {
    pub(crate) fn statistics(&self) -> PacingStatistics {
        self.so_far.get()
    }

    pub(crate) fn on_piece(&self, bytes: usize, begins_train: bool) {
        self.change(|counts| {
            counts.trains += u64::from(begins_train);
            counts.pieces += 1;
            counts.bytes += bytes as u64;
        });
    }

    pub(crate) fn on_blocked(&self) {
        self.change(|counts| counts.blocked += 1);
    }

    pub(crate) fn on_forgotten(&self, bytes: u64) {
        self.change(|counts| counts.forgotten_bytes += bytes);
    }

    pub(crate) fn on_accepted(&self, bytes: usize) {
        self.change(|counts| counts.pending_bytes += bytes as u64);
    }

    pub(crate) fn on_gone(&self, bytes: usize) {
        self.change(|counts| counts.pending_bytes -= bytes as u64);
    }

    fn change(&self, change: impl FnOnce(&mut PacingStatistics)) {
        let mut so_far = self.so_far.get();
        change(&mut so_far);
        self.so_far.set(so_far);
    }
}

#[derive(Default)]
pub(crate) struct TurnCounts {
    pub(crate) turns: Cell<u64>,
    pub(crate) tasks: Cell<u64>,
    blocks: Cell<u64>,
    blocked: Cell<Duration>,
}

impl TurnCounts {
    fn on_blocked(&self, time: Duration) {
        self.blocks.set(self.blocks.get() + 1);
        self.blocked.set(self.blocked.get() + time);
    }
}

impl Inner {
    /// Records that the thread was blocked because it had no work.
    pub(crate) fn on_blocked(&self, time: Duration) {
        self.counts.on_blocked(time);
        self.run_time.borrow_mut().blocked(saturating_ns(time));
    }

    /// Returns the total time in which the thread had no work: blocked, or spinning before an event.
    pub(crate) fn idle_time(&self) -> Duration {
        self.counts.blocked.get() + self.idle.borrow().spun()
    }

    /// Updates and returns the time in which the thread could not run.
    pub(crate) fn sample_run_time(&self) -> Duration {
        let mut run_time = self.run_time.borrow_mut();
        run_time.sample(self.clock.now(), cpu_time_ns());
        Duration::from_nanos(run_time.not_running_ns())
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let mut timers = self.timers.borrow_mut();
        let counts = &self.counts;
        let alarms = self.alarms.stats();
        let poller = self.poller.borrow();
        let mut triggers = timers.triggers().clone();
        alarms.add_to(&mut triggers);
        Statistics {
            clock: self.clock.source(),
            mechanism: poller.mechanism(),
            fallback_reason: poller.fallback_reason().map(str::to_owned),
            triggers,
            events: timers.counts(),
            pending: timers.len(),
            alarms,
            turns: counts.turns.get(),
            tasks: counts.tasks.get(),
            blocks: counts.blocks.get(),
            blocked: counts.blocked.get(),
            spun: self.idle.borrow().spun(),
            not_running: self.sample_run_time(),
            pacing: self.pacing.statistics(),
            signalling: self.kernel_events.report(self.clock.now()),
        }
    }
}
