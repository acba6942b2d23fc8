//! Trigger states: the moments at which the program is awake anyway (*Soft Timers*, sections 3 and 5.4).

use alloc::boxed::Box;
use core::array;

use crate::{Histogram, Instant};

/// The kind of a trigger state: the sources of Table V, whose names in the paper stand in parentheses, and those that
/// only a runtime has.
///
/// A call is counted by what it asks for: the paper's `ip-intr` and `ip-output` are the kernel's work on packets, which
/// a program that uses the kernel's sockets does not see. A stack inside the program has such work of its own, and so
/// may add variants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum TriggerState {
    /// The end of a system call that neither receives nor sends (`syscalls`).
    SystemCall,
    /// The end of a receive-type call on a socket: `recv`, `accept`, a batch of datagrams. In the paper it is the end
    /// of the processing of a packet that has come (`ip-intr`).
    Receive,
    /// The end of a send-type call on a socket: `send`, `connect`, a batch of datagrams. In the paper it is the end of
    /// the transmission of a packet (`ip-output`).
    Send,
    /// The beginning of a turn of the runtime's loop. In the paper it is the other loops of the network code
    /// (`tcpip-others`).
    Turn,
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
    /// All of them, in the order of their discriminants.
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

    /// A short name for tables and metrics.
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

/// What the trigger states of one kind contributed.
#[derive(Clone, Debug, Default)]
pub struct StateStatistics {
    /// The time from the trigger state before, of any kind, to each of this kind.
    pub intervals: Histogram,
    /// How late each event was that one of them fired.
    pub lateness: Histogram,
}

impl StateStatistics {
    /// How many trigger states of this kind were passed.
    pub fn count(&self) -> u64 {
        self.intervals.count()
    }

    /// How many events they fired.
    pub fn fired(&self) -> u64 {
        self.lateness.count()
    }
}

/// Counts and histograms by trigger state, in fixed memory (about 100 KB, of which a workload touches little).
#[derive(Clone, Debug)]
pub struct TriggerStatistics {
    /// By discriminant, and a last one for the interval that there is not.
    states: Box<[StateStatistics; NO_STATE + 1]>,
    last: Instant,
    /// The latest interval and the state that ended it, not counted yet.
    ///
    /// The bucket to count it in is known only when the clock's reading is, and a store whose address waits for a
    /// register read holds up what follows by some 10 ns. At the next trigger state the address is long known. No
    /// `Option`: after a system call a branch costs more than all the rest.
    latest_ns: u64,
    latest_state: u8,
}

impl TriggerStatistics {
    /// Nothing counted yet; the first interval begins at `start`.
    pub fn new(start: Instant) -> Self {
        Self {
            states: Box::new(array::from_fn(|_| StateStatistics::default())),
            last: start,
            latest_ns: 0,
            latest_state: NO_STATE as u8,
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
        self.latest_state = state as u8;
        self.last = now;
    }

    /// Adds what was counted elsewhere for `state`.
    pub fn add(&mut self, state: TriggerState, intervals: &Histogram, lateness: &Histogram) {
        let counted = &mut self.states[state as usize];
        counted.intervals.merge(intervals);
        counted.lateness.merge(lateness);
    }

    /// When the last trigger state was that was counted here.
    pub const fn last(&self) -> Instant {
        self.last
    }

    /// Counts an event that `state` fired `lateness_ns` after it was due.
    pub fn on_fire(&mut self, state: TriggerState, lateness_ns: u64) {
        self.states[state as usize].lateness.record(lateness_ns);
    }

    /// What `state` contributed. The latest interval counts from the next trigger state on, or when
    /// [`count_latest`](Self::count_latest) is called.
    pub fn of(&self, state: TriggerState) -> &StateStatistics {
        &self.states[state as usize]
    }

    /// Counts the latest interval now.
    pub fn count_latest(&mut self) {
        self.record_latest();
        self.latest_state = NO_STATE as u8;
    }

    #[inline]
    fn record_latest(&mut self) {
        let state = usize::from(self.latest_state).min(NO_STATE);
        self.states[state].intervals.record(self.latest_ns);
    }

    /// The intervals between trigger states of all kinds (Figure 2).
    pub fn intervals(&self) -> Histogram {
        self.merged(|state| &state.intervals)
    }

    /// The lateness of all events.
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

/// The place beyond the last state.
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
