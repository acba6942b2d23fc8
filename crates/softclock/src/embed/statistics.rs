//! The statistics of a loop's timers.

use std::time::Duration;

use softclock_core::{EventCounts, TriggerStatistics};
use softclock_linux::alarm::AlarmStats;
use softclock_linux::clock::ClockSource;

/// All counts and histograms of a [`LoopTimers`](super::LoopTimers) at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoopStatistics {
    /// The source of the time.
    pub clock: ClockSource,
    /// Trigger states, intervals and lateness by kind of trigger state.
    pub triggers: TriggerStatistics,
    /// Events scheduled, cancelled, fired.
    pub events: EventCounts,
    /// Events pending now.
    pub pending: usize,
    /// The backup timer, the alarm for deadlines, and the alarm-safe events; `None` while these are not in use.
    pub alarms: Option<AlarmStats>,
    /// Number of waits that could block.
    pub blocks: u64,
    /// Time spent in these waits.
    pub blocked: Duration,
    /// Time spent in waits that did not block, because an event was close.
    pub spun: Duration,
    /// Time in which the thread did not run though it did not wait: it was preempted, its virtual CPU was stolen, or it
    /// made another blocking call.
    pub not_running: Duration,
}
