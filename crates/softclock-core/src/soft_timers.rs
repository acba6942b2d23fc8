//! The soft-timer facility (*Soft Timers*, section 3).
//!
//! Events wait in a timing wheel. At each trigger state the program calls [`SoftTimers::check`], which compares the
//! time with that of the earliest event and returns one event if it is due. [`SoftTimers::next_overdue`] returns
//! further due events, so the caller decides how much work it does at one trigger state.
//!
//! For an event scheduled T ticks ahead, and backup checks X ticks apart, the actual delay satisfies T < actual < T +
//! X + 1, provided that the caller checks at every backup and takes all overdue events. A tick is [`TICK_NS`]. X
//! counts only the time in which the thread runs: while it is not running, nothing can fire its events.
//!
//! Events here have no deadlines (section 5.9). An alarm that enforces a deadline interrupts the thread at any
//! instruction, so it may run only handlers that are safe there. The owner of the alarm keeps those handlers and
//! their deadlines in a table that a signal handler can read (`softclock-linux::alarm`), not in this wheel.

use core::mem;
use core::time::Duration;

use crate::time::TICK_NS;
use crate::{Instant, TimerKey, TimerWheel, TriggerState, TriggerStatistics, TriggerTrace};

/// The earliest time at which an event may fire, and whether an idle thread should wake up on time for it.
///
/// # Example
/// ```
/// use softclock_core::{FireWindow, Instant};
///
/// let at = Instant::from_ns(1_000_000);
/// // A packet to be paced: an idle thread spins to be on time.
/// assert!(!FireWindow::from(at).rough);
/// // A timeout of a connection: tens of microseconds late are fine.
/// assert!(FireWindow::roughly(at).rough);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FireWindow {
    /// The event fires in a later tick than that of this instant.
    pub earliest: Instant,
    /// Whether the event may fire late: an idle thread does not spin for it.
    pub rough: bool,
}

impl FireWindow {
    /// A window from `earliest` on, for which an idle thread wakes up on time.
    pub const fn from(earliest: Instant) -> Self {
        Self {
            earliest,
            rough: false,
        }
    }

    /// A window from `earliest` on, for which an idle thread may wake up late, as far as a blocking wait is.
    pub const fn roughly(earliest: Instant) -> Self {
        Self {
            earliest,
            rough: true,
        }
    }

    /// Returns the window that begins first, for a thread that must be awake for all of them: the exact one of two that
    /// begin together.
    ///
    /// ```
    /// use softclock_core::{FireWindow, Instant};
    ///
    /// let at = Instant::from_ns;
    /// let [rough, exact] = [FireWindow::roughly(at(5)), FireWindow::from(at(5))];
    /// assert_eq!(FireWindow::first([rough, exact]), Some(exact));
    /// assert_eq!(FireWindow::first([FireWindow::from(at(6)), rough]), Some(rough));
    /// assert_eq!(FireWindow::first([]), None);
    /// ```
    pub fn first(windows: impl IntoIterator<Item = Self>) -> Option<Self> {
        let windows = windows.into_iter();
        windows.min_by_key(|window| (window.earliest, window.rough))
    }
}

/// An event to be fired by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due<T> {
    /// The scheduled value.
    pub value: T,
    /// The instant for which the event was scheduled.
    pub due: Instant,
    /// Time from `due` to the check that returned the event, in nanoseconds.
    pub lateness_ns: u64,
}

/// Numbers of events by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventCounts {
    /// Events scheduled, including rescheduled ones.
    pub scheduled: u64,
    /// Events cancelled before they fired.
    pub cancelled: u64,
    /// Events fired.
    pub fired: u64,
}

/// Pending events of type `T`, and the statistics of the trigger states that fire them.
///
/// # Example
/// ```
/// use softclock_core::{Instant, SoftTimers, TriggerState};
/// use std::time::Duration;
///
/// let at = |us: u64| Instant::from_ns(us * 1_000);
/// let mut timers = SoftTimers::new(at(0), Duration::from_millis(32));
/// timers.schedule_soft_event(at(0), 50, "send");
///
/// // Two trigger states: at the first nothing is due, the second fires the event 13 us late.
/// assert_eq!(timers.check(TriggerState::SystemCall, at(40)), None);
/// let due = timers.check(TriggerState::TaskEnd, at(63)).expect("an event is due");
/// assert_eq!((due.value, due.lateness_ns), ("send", 13_000));
/// ```
#[derive(Debug)]
pub struct SoftTimers<T> {
    events: TimerWheel<Event<T>>,
    /// No event is due before this instant. A check at a trigger state compares only with it.
    next_due: Instant,
    /// Number of pending events that are not rough.
    exact: usize,
    backup_period: Duration,
    triggers: TriggerStatistics,
    trace: Option<TriggerTrace>,
    counts: EventCounts,
}

/// Events taken out by [`SoftTimers::clear`], to be dropped at a place where running their destructors is safe.
#[derive(Debug)]
pub struct Cleared<T>(TimerWheel<Event<T>>);

impl<T> Cleared<T> {
    /// Returns whether no event was pending.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Debug)]
struct Event<T> {
    value: T,
    rough: bool,
}

impl<T> SoftTimers<T> {
    /// Bytes of memory per pending event.
    pub const NODE_BYTES: usize = TimerWheel::<Event<T>>::NODE_BYTES;

    /// Creates a facility without events at the time `start`. `backup_period` is the X of the bound.
    pub fn new(start: Instant, backup_period: Duration) -> Self {
        Self::with_capacity(start, backup_period, 0)
    }

    /// Like [`new`](Self::new), with memory for `capacity` pending events. Scheduling allocates only if more are
    /// pending.
    pub fn with_capacity(start: Instant, backup_period: Duration, capacity: usize) -> Self {
        Self {
            events: TimerWheel::with_capacity(capacity),
            next_due: Instant::FAR_FUTURE,
            exact: 0,
            backup_period,
            triggers: TriggerStatistics::new(start),
            trace: None,
            counts: EventCounts::default(),
        }
    }

    /// Returns the resolution of the measurement clock in Hz (the paper's `measure_resolution`).
    pub const fn measure_resolution() -> u64 {
        1_000_000_000 / TICK_NS
    }

    /// Returns `now` in ticks of the measurement clock (the paper's `measure_time`).
    pub const fn measure_time(now: Instant) -> u64 {
        now.tick()
    }

    /// Returns the frequency of the backup timer in Hz, rounded down but at least 1: the expected minimal resolution
    /// of events (the paper's `interrupt_clock_resolution`).
    pub fn interrupt_clock_resolution(&self) -> u64 {
        let ns = self.backup_period.as_nanos().max(1);
        u64::try_from(1_000_000_000 / ns).unwrap_or(u64::MAX).max(1)
    }

    /// Sets the backup period X.
    pub fn set_backup_period(&mut self, period: Duration) {
        self.backup_period = period;
    }

    /// Schedules `value` more than `ticks` ticks after `now` (the paper's `schedule_soft_event`). O(1).
    pub fn schedule_soft_event(&mut self, now: Instant, ticks: u64, value: T) -> TimerKey {
        let earliest = now.add_ns(ticks.saturating_mul(TICK_NS));
        self.schedule(FireWindow::from(earliest), value)
    }

    /// Schedules `value` to fire from `window.earliest` on. O(1).
    #[inline]
    pub fn schedule(&mut self, window: FireWindow, value: T) -> TimerKey {
        self.advance();
        let event = Event {
            value,
            rough: window.rough,
        };
        let key = self.events.schedule(window.earliest, event);
        self.exact += usize::from(!window.rough);
        self.counts.scheduled += 1;
        self.refresh();
        key
    }

    /// Cancels an event and returns its value, or `None` if it has fired or was cancelled before. O(1).
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let event = self.events.cancel(key)?;
        self.exact -= usize::from(!event.rough);
        self.counts.cancelled += 1;
        self.refresh();
        Some(event.value)
    }

    /// Moves a pending event to a new time under the same key. Returns false if it has fired or was cancelled. O(1).
    pub fn reschedule(&mut self, key: TimerKey, earliest: Instant) -> bool {
        self.advance();
        if !self.events.reschedule(key, earliest) {
            return false;
        }
        self.counts.scheduled += 1;
        self.refresh();
        true
    }

    /// Returns the value of a pending event.
    pub fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        self.events.get_mut(key).map(|event| &mut event.value)
    }

    /// Counts a trigger state at `now`, and returns one event if any is due.
    ///
    /// If none is due, this costs a comparison and about 2 ns for the statistics, and 2 ns more while a trace is
    /// recorded.
    #[inline]
    pub fn check(&mut self, state: TriggerState, now: Instant) -> Option<Due<T>> {
        self.check_after(self.triggers.last(), state, now)
    }

    /// Like [`check`](Self::check), with the preceding trigger state at `before`. Signal handlers are trigger states
    /// too, but this facility does not see them.
    #[inline]
    pub fn check_after(
        &mut self,
        before: Instant,
        state: TriggerState,
        now: Instant,
    ) -> Option<Due<T>> {
        self.on_trigger_after(before, state, now);
        self.next_overdue(state, now)
    }

    /// Counts a trigger state at `now` and fires nothing, for callers that take its events by
    /// [`next_overdue`](Self::next_overdue) alone. The preceding trigger state was at `before`.
    #[inline]
    pub fn on_trigger_after(&mut self, before: Instant, state: TriggerState, now: Instant) {
        self.triggers.on_trigger_after(before, state, now);
        if let Some(trace) = &mut self.trace {
            trace.record(state, now);
        }
    }

    /// Returns one more event that is due at this trigger state. Does a bounded amount of work: if it returns `None`
    /// while [`next_due`](Self::next_due) is not after `now`, call it again soon.
    #[inline]
    pub fn next_overdue(&mut self, state: TriggerState, now: Instant) -> Option<Due<T>> {
        if now < self.next_due {
            return None;
        }
        self.pop(state, now)
    }

    /// Returns the earliest instant at which a check may have work to do.
    pub fn next_due(&self) -> Option<Instant> {
        (self.next_due != Instant::FAR_FUTURE).then_some(self.next_due)
    }

    /// Returns whether an event is pending that is not [rough](FireWindow::rough), for which an idle thread must be
    /// on time.
    pub const fn has_exact(&self) -> bool {
        self.exact > 0
    }

    /// Returns the time of the last check, or the start time if there was none.
    pub const fn last_check(&self) -> Instant {
        self.triggers.last()
    }

    /// Removes all pending events, in no particular order, for the end of a program. O(1), but allocates a new wheel.
    pub fn clear(&mut self) -> Cleared<T> {
        self.next_due = Instant::FAR_FUTURE;
        self.exact = 0;
        let successor = self.events.successor();
        Cleared(mem::replace(&mut self.events, successor))
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the counts, intervals and lateness by kind of trigger state.
    pub fn triggers(&mut self) -> &TriggerStatistics {
        self.triggers.count_latest();
        &self.triggers
    }

    /// Starts to record each trigger state in `trace`, or stops for `None`. Returns the previous trace.
    pub fn set_trace(&mut self, trace: Option<TriggerTrace>) -> Option<TriggerTrace> {
        core::mem::replace(&mut self.trace, trace)
    }

    /// Returns the trace in use.
    pub const fn trace(&self) -> Option<&TriggerTrace> {
        self.trace.as_ref()
    }

    /// Returns the numbers of events scheduled, cancelled and fired.
    pub const fn counts(&self) -> EventCounts {
        self.counts
    }

    #[inline(never)]
    fn pop(&mut self, state: TriggerState, now: Instant) -> Option<Due<T>> {
        // The wheel may only have moved events between levels, and the next due time changes either way.
        let popped = self.events.pop_due(now);
        self.refresh();
        let (due, Event { value, rough }) = popped?;
        self.exact -= usize::from(!rough);
        self.counts.fired += 1;
        let lateness_ns = now.ns_since(due);
        self.triggers.on_fire(state, lateness_ns);
        Some(Due {
            value,
            due,
            lateness_ns,
        })
    }

    /// Advances the wheel to the latest trigger state, so that an event due soon is linked into its final slot at
    /// once.
    fn advance(&mut self) {
        self.events.advance(self.triggers.last());
    }

    fn refresh(&mut self) {
        self.next_due = self.events.next_due().unwrap_or(Instant::FAR_FUTURE);
    }
}
