//! Trigger states: the moments at which a program is awake anyway and can fire events (*Soft Timers*, sections 3 and
//! 5.4).

use alloc::boxed::Box;
use core::array;

use crate::{Histogram, Instant};

/// The kind of a trigger state: the sources of Table V, with the paper's names in parentheses, and those that only a
/// runtime has.
///
/// Each system call counts under one kind, by its purpose. The paper's `ip-intr` and `ip-output` are the kernel's
/// work on packets, which a program that uses the kernel's sockets does not see. A network stack inside the program
/// does such work itself and may add variants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum TriggerState {
    /// The end of a system call that neither receives nor sends (`syscalls`).
    SystemCall,
    /// The end of a receiving call on a socket: `recv`, `accept`, a batch of datagrams. In the paper, the end of the
    /// processing of a received packet (`ip-intr`).
    Receive,
    /// The end of a sending call on a socket: `send`, `connect`, a batch of datagrams. In the paper, the end of the
    /// transmission of a packet (`ip-output`).
    Send,
    /// The beginning of a turn of the runtime's loop. In the paper, the other loops of the network code
    /// (`tcpip-others`).
    Turn,
    /// A fault (`traps`). A user-space program does not see its own page faults, so the Linux runtime never counts
    /// this kind; it exists so that tables have the paper's rows.
    Fault,
    /// The idle loop, and the return from a blocking wait.
    Idle,
    /// The end of a task's poll.
    TaskEnd,
    /// The backup timer. In the Linux runtime it fires only alarm-safe events.
    Backup,
    /// The alarm for the earliest deadline (section 5.9). In the Linux runtime it fires only alarm-safe events.
    Deadline,
    /// A call to `trigger()` by the application.
    Application,
}

impl TriggerState {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 10] = [
        Self::SystemCall,
        Self::Receive,
        Self::Send,
        Self::Turn,
        Self::Fault,
        Self::Idle,
        Self::TaskEnd,
        Self::Backup,
        Self::Deadline,
        Self::Application,
    ];

    /// Returns a short name for tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SystemCall => "syscall",
            Self::Receive => "receive",
            Self::Send => "send",
            Self::Turn => "turn",
            Self::Fault => "fault",
            Self::Idle => "idle",
            Self::TaskEnd => "task-end",
            Self::Backup => "backup",
            Self::Deadline => "deadline",
            Self::Application => "application",
        }
    }
}

/// Statistics of the trigger states of one kind.
#[derive(Clone, Debug, Default)]
pub struct StateStatistics {
    /// The interval from the preceding trigger state, of any kind, to each of this kind.
    pub intervals: Histogram,
    /// The lateness of each event that a trigger state of this kind fired.
    pub lateness: Histogram,
}

impl StateStatistics {
    /// Returns the number of trigger states of this kind.
    pub fn count(&self) -> u64 {
        self.intervals.count()
    }

    /// Returns the number of events that they fired.
    pub fn fired(&self) -> u64 {
        self.lateness.count()
    }
}

/// Counts and histograms by kind of trigger state, in fixed memory of about 100 KB, most of which a workload never
/// touches.
///
/// # Example
/// ```
/// use softclock_core::{Instant, TriggerState, TriggerStatistics};
///
/// let mut statistics = TriggerStatistics::new(Instant::ORIGIN);
/// statistics.on_trigger(TriggerState::Receive, Instant::from_ns(8_000));
/// statistics.on_fire(TriggerState::Receive, 500);
/// statistics.on_trigger(TriggerState::Send, Instant::from_ns(10_000));
/// statistics.count_latest();
/// assert_eq!(statistics.of(TriggerState::Send).intervals.max_ns(), 2_000);
/// assert_eq!(statistics.of(TriggerState::Receive).fired(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct TriggerStatistics {
    /// Indexed by discriminant. The last entry absorbs the write of [`record_latest`](Self::record_latest) when there
    /// is no interval to count.
    states: Box<[StateStatistics; NO_STATE + 1]>,
    last: Instant,
    /// The latest interval, not yet counted, and the trigger state that ended it.
    ///
    /// The bucket is known only when the clock's reading is, and a store whose address depends on a register read
    /// delays the following instructions by about 10 ns. At the next trigger state, the address is long known. This
    /// is not an `Option`, since after a system call a mispredicted branch costs more than all the rest.
    latest_ns: u64,
    latest_state: u8,
}

impl TriggerStatistics {
    /// Creates empty statistics. The first interval begins at `start`.
    pub fn new(start: Instant) -> Self {
        Self {
            states: Box::new(array::from_fn(|_| StateStatistics::default())),
            last: start,
            latest_ns: 0,
            latest_state: NO_STATE as u8,
        }
    }

    /// Counts a trigger state at `now`. Costs about 1 ns.
    #[inline]
    pub fn on_trigger(&mut self, state: TriggerState, now: Instant) {
        self.on_trigger_after(self.last, state, now);
    }

    /// Like [`on_trigger`](Self::on_trigger), with the preceding trigger state at `before`. Use it when that one was
    /// counted elsewhere, to be [added](Self::add) later.
    #[inline]
    pub fn on_trigger_after(&mut self, before: Instant, state: TriggerState, now: Instant) {
        self.record_latest();
        self.latest_ns = now.ns_since(before);
        self.latest_state = state as u8;
        self.last = now;
    }

    /// Adds histograms of `state` that were counted elsewhere.
    pub fn add(&mut self, state: TriggerState, intervals: &Histogram, lateness: &Histogram) {
        let counted = &mut self.states[state as usize];
        counted.intervals.merge(intervals);
        counted.lateness.merge(lateness);
    }

    /// Returns the time of the latest trigger state that was counted here.
    pub const fn last(&self) -> Instant {
        self.last
    }

    /// Counts an event that `state` fired `lateness_ns` after it was due.
    pub fn on_fire(&mut self, state: TriggerState, lateness_ns: u64) {
        self.states[state as usize].lateness.record(lateness_ns);
    }

    /// Returns the statistics of one kind. They include the latest interval only after the next trigger state or a
    /// call of [`count_latest`](Self::count_latest).
    pub fn of(&self, state: TriggerState) -> &StateStatistics {
        &self.states[state as usize]
    }

    /// Counts the latest interval at once, instead of at the next trigger state.
    pub fn count_latest(&mut self) {
        self.record_latest();
        self.latest_state = NO_STATE as u8;
    }

    #[inline]
    fn record_latest(&mut self) {
        let state = usize::from(self.latest_state).min(NO_STATE);
        self.states[state].intervals.record(self.latest_ns);
    }

    /// Returns the intervals between trigger states of all kinds (Figure 2).
    pub fn intervals(&self) -> Histogram {
        self.merged(|state| &state.intervals)
    }

    /// Returns the lateness of all events.
    pub fn lateness(&self) -> Histogram {
        self.merged(|state| &state.lateness)
    }

    fn merged(&self, part: impl Fn(&StateStatistics) -> &Histogram) -> Histogram {
        let mut all = Histogram::new();
        for state in TriggerState::ALL {
            all.merge(part(self.of(state)));
        }
        all
    }
}

/// The index behind the last kind.
const NO_STATE: usize = TriggerState::ALL.len();

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
    fn an_interval_counts_for_the_state_that_ends_it() {
        let mut statistics = TriggerStatistics::new(Instant::from_ns(40));
        statistics.on_trigger(TriggerState::SystemCall, Instant::from_ns(100));
        statistics.on_trigger(TriggerState::Send, Instant::from_ns(130));
        statistics.count_latest();
        assert_eq!(
            statistics.of(TriggerState::SystemCall).intervals.max_ns(),
            60
        );
        assert_eq!(statistics.of(TriggerState::Send).intervals.max_ns(), 30);
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
        assert_eq!(statistics.of(TriggerState::Backup).count(), 1);
        assert_eq!(statistics.intervals().sum_ns(), 30);
        assert_eq!(statistics.intervals().max_ns(), 20);
    }
}
