//! Trigger states: the moments at which the program is awake anyway (*Soft Timers*, sections 3 and 5.4).

use alloc::boxed::Box;
use core::array;

use crate::{Histogram, Instant};

/// Where a trigger state comes from: the sources of Table V, and those that only we have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TriggerState {
    /// The end of a system call that neither receives nor sends (`syscalls`).
    SystemCall,
    /// The end of a receive-type call: `recv`, `accept`, a receive batch (`ip-intr`).
    IpInput,
    /// The end of a send-type call: `send`, a transmit batch (`ip-output`).
    IpOutput,
    /// The rest of the network code, above all the runtime's own turn (`tcpip-others`).
    TcpIpOther,
    /// A fault (`traps`). A user-space program does not see its own page faults: never counted by
    /// the Linux runtime, kept so that the table has the paper's rows.
    Fault,
    /// The idle loop, and the return from a blocking wait.
    Idle,
    /// The end of a task's poll.
    TaskEnd,
    /// The backup timer. In the Linux runtime it fires alarm-safe events only.
    Backup,
    /// The alarm for the earliest deadline (section 5.9). In the Linux runtime it fires alarm-safe events only.
    Deadline,
    /// A call to `trigger()` by the application.
    Application,
}

impl TriggerState {
    /// All sources, in the order of their discriminants.
    pub const ALL: [Self; 10] = [
        Self::SystemCall,
        Self::IpInput,
        Self::IpOutput,
        Self::TcpIpOther,
        Self::Fault,
        Self::Idle,
        Self::TaskEnd,
        Self::Backup,
        Self::Deadline,
        Self::Application,
    ];

    /// A short name for tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SystemCall => "syscall",
            Self::IpInput => "ip-input",
            Self::IpOutput => "ip-output",
            Self::TcpIpOther => "tcpip-other",
            Self::Fault => "fault",
            Self::Idle => "idle",
            Self::TaskEnd => "task-end",
            Self::Backup => "backup",
            Self::Deadline => "deadline",
            Self::Application => "application",
        }
    }
}

/// What one source of trigger states contributed.
#[derive(Clone, Debug, Default)]
pub struct SourceStatistics {
    /// The time from the trigger state before, of any source, to each of this source.
    pub intervals: Histogram,
    /// How late each event was that this source fired.
    pub lateness: Histogram,
}

impl SourceStatistics {
    /// How many trigger states came from this source.
    pub fn count(&self) -> u64 {
        self.intervals.count()
    }

    /// How many events this source fired.
    pub fn fired(&self) -> u64 {
        self.lateness.count()
    }
}

/// Counts and histograms by source, in fixed memory (about 100 KB, of which a workload touches little).
#[derive(Clone, Debug)]
pub struct TriggerStatistics {
    /// By discriminant, and a last one for the interval that there is not.
    sources: Box<[SourceStatistics; NO_SOURCE + 1]>,
    last: Instant,
    /// The latest interval and its source, not counted yet.
    ///
    /// The bucket to count it in is known only when the clock's reading is, and a store whose address waits for a
    /// register read holds up what follows by some 10 ns. At the next trigger state the address is long known. No
    /// `Option`: after a system call a branch costs more than all the rest.
    latest_ns: u64,
    latest_source: u8,
}

impl TriggerStatistics {
    /// Nothing counted yet; the first interval begins at `start`.
    pub fn new(start: Instant) -> Self {
        Self {
            sources: Box::new(array::from_fn(|_| SourceStatistics::default())),
            last: start,
            latest_ns: 0,
            latest_source: NO_SOURCE as u8,
        }
    }

    /// Counts a trigger state. Costs about 1 ns.
    #[inline]
    pub fn on_trigger(&mut self, state: TriggerState, now: Instant) {
        self.on_trigger_after(self.last, state, now);
    }

    /// As [`on_trigger`](Self::on_trigger), where the trigger state before was at `before`: it may have been counted
    /// elsewhere, and be [added](Self::add) later.
    #[inline]
    pub fn on_trigger_after(&mut self, before: Instant, state: TriggerState, now: Instant) {
        self.record_latest();
        self.latest_ns = now.ns_since(before);
        self.latest_source = state as u8;
        self.last = now;
    }

    /// Adds what was counted elsewhere for `state`.
    pub fn add(&mut self, state: TriggerState, intervals: &Histogram, lateness: &Histogram) {
        let source = &mut self.sources[state as usize];
        source.intervals.merge(intervals);
        source.lateness.merge(lateness);
    }

    /// When the last trigger state was that was counted here.
    pub const fn last(&self) -> Instant {
        self.last
    }

    /// Counts an event that `state` fired `lateness_ns` after it was due.
    pub fn on_fire(&mut self, state: TriggerState, lateness_ns: u64) {
        self.sources[state as usize].lateness.record(lateness_ns);
    }

    /// What `state` contributed. The latest interval counts from the next trigger state on, or when
    /// [`count_latest`](Self::count_latest) is called.
    pub fn source(&self, state: TriggerState) -> &SourceStatistics {
        &self.sources[state as usize]
    }

    /// Counts the latest interval now.
    pub fn count_latest(&mut self) {
        self.record_latest();
        self.latest_source = NO_SOURCE as u8;
    }

    #[inline]
    fn record_latest(&mut self) {
        let source = usize::from(self.latest_source).min(NO_SOURCE);
        self.sources[source].intervals.record(self.latest_ns);
    }

    /// The intervals between trigger states of all sources (Figure 2).
    pub fn intervals(&self) -> Histogram {
        self.merged(|source| &source.intervals)
    }

    /// The lateness of the events of all sources.
    pub fn lateness(&self) -> Histogram {
        self.merged(|source| &source.lateness)
    }

    fn merged(&self, part: impl Fn(&SourceStatistics) -> &Histogram) -> Histogram {
        let mut all = Histogram::new();
        let sources = TriggerState::ALL.map(|state| self.source(state));
        sources.iter().for_each(|source| all.merge(part(source)));
        all
    }
}

/// The place beyond the last source.
const NO_SOURCE: usize = TriggerState::ALL.len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_the_order_of_the_discriminants() {
        for (index, state) in TriggerState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, index);
        }
    }

    #[test]
    fn an_interval_counts_for_the_source_that_ends_it() {
        let mut statistics = TriggerStatistics::new(Instant::from_ns(40));
        statistics.on_trigger(TriggerState::SystemCall, Instant::from_ns(100));
        statistics.on_trigger(TriggerState::IpOutput, Instant::from_ns(130));
        statistics.count_latest();
        assert_eq!(
            statistics
                .source(TriggerState::SystemCall)
                .intervals
                .max_ns(),
            60
        );
        assert_eq!(
            statistics.source(TriggerState::IpOutput).intervals.max_ns(),
            30
        );
        assert_eq!(statistics.intervals().count(), 2);
        statistics.count_latest();
        assert_eq!(statistics.intervals().count(), 2);
    }

    #[test]
    fn what_is_counted_elsewhere_ends_an_interval_and_begins_one() {
        let mut statistics = TriggerStatistics::new(Instant::from_ns(0));
        let mut backups = Histogram::new();
        backups.record(20);
        let backup = Instant::from_ns(20);
        statistics.on_trigger_after(backup, TriggerState::SystemCall, Instant::from_ns(30));
        statistics.count_latest();
        statistics.add(TriggerState::Backup, &backups, &Histogram::new());
        assert_eq!(statistics.source(TriggerState::Backup).count(), 1);
        assert_eq!(statistics.intervals().sum_ns(), 30);
        assert_eq!(statistics.intervals().max_ns(), 20);
    }
}
