//! What a runtime did so far.

use std::cell::Cell;
use std::time::Duration;

use softclock_core::{EventCounts, TriggerStatistics};
use softclock_linux::clock::ClockSource;

use super::inner::Inner;

/// All counts and histograms of a runtime, at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Statistics {
    /// What time is read from.
    pub clock: ClockSource,
    /// Trigger states, intervals and lateness by source.
    pub triggers: TriggerStatistics,
    /// Events scheduled, cancelled, fired.
    pub events: EventCounts,
    /// Events pending now, sleeping tasks included.
    pub pending: usize,
    /// Turns of the runtime's loop.
    pub turns: u64,
    /// Polls of tasks.
    pub tasks: u64,
    /// Times the thread blocked for want of work.
    pub blocks: u64,
    /// Time spent blocked for want of work.
    pub blocked: Duration,
    /// Time spent spinning before an event.
    pub spun: Duration,
    /// Time in which the thread could not run although it wanted to: preempted, or its virtual CPU stolen.
    /// Lateness includes it; the bound on lateness counts running time only.
    pub not_running: Duration,
}

#[derive(Default)]
pub(crate) struct TurnCounts {
    pub(crate) turns: Cell<u64>,
    pub(crate) tasks: Cell<u64>,
    blocks: Cell<u64>,
    blocked: Cell<Duration>,
}

impl TurnCounts {
    pub(crate) fn on_blocked(&self, time: Duration) {
        self.blocks.set(self.blocks.get() + 1);
        self.blocked.set(self.blocked.get() + time);
    }
}

impl Inner {
    pub(crate) fn statistics(&self) -> Statistics {
        let timers = self.timers.borrow();
        let counts = &self.counts;
        Statistics {
            clock: self.clock.source(),
            triggers: timers.triggers().clone(),
            events: timers.counts(),
            pending: timers.len(),
            turns: counts.turns.get(),
            tasks: counts.tasks.get(),
            blocks: counts.blocks.get(),
            blocked: counts.blocked.get(),
            spun: self.idle.borrow().spun(),
            not_running: Duration::ZERO,
        }
    }
}
