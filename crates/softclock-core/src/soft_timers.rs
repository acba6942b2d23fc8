//! The soft-timer facility (*Soft Timers*, section 3).
//!
//! Events wait in a timing wheel. At each trigger state the program calls [`SoftTimers::check`], which
//! compares the time with that of the earliest event and, if it has come, hands out one event; the rest of
//! what is due comes from [`SoftTimers::next_overdue`], so that the caller bounds its work.
//!
//! With T ticks asked and X ticks between backups, T < actual < T + X + 1 as long as the caller
//! checks at every backup and takes all that is overdue; a tick is [`TICK_NS`]. X counts time in which
//! the thread runs: nobody can fire an event for a thread that is not running.
//!
//! Events here have no deadlines (section 5.9). An alarm that enforces one interrupts the thread anywhere, so it may
//! only run handlers that are safe there, and those do not wait in this wheel: the owner of the alarm keeps them, with
//! their deadlines, in a table that a signal handler can read (`softclock-linux::alarm`).

use core::mem;
use core::time::Duration;

use crate::time::TICK_NS;
use crate::{Instant, TimerKey, TimerWheel, TriggerState, TriggerStatistics, TriggerTrace};

/// From when on an event may fire, and whether an idle thread wakes up on time for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FireWindow {
    /// Not before the tick after this instant.
    pub earliest: Instant,
    /// May fire late: an idle thread does not spin for it.
    pub rough: bool,
}

impl FireWindow {
    /// From `earliest` on, and on time if the thread is idle.
    pub const fn from(earliest: Instant) -> Self {
        Self {
            earliest,
            rough: false,
        }
    }

    /// From `earliest` on, when it is convenient: an idle thread need not be on time for it.
    pub const fn roughly(earliest: Instant) -> Self {
        Self {
            earliest,
            rough: true,
        }
    }
}

/// An event that is to be fired now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due<T> {
    /// What was scheduled.
    pub value: T,
    /// When it was due, as asked.
    pub due: Instant,
    /// How long ago that was, in nanoseconds.
    pub lateness_ns: u64,
}

/// What happened to events so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventCounts {
    /// Events scheduled, rescheduling included.
    pub scheduled: u64,
    /// Events cancelled before they fired.
    pub cancelled: u64,
    /// Events fired.
    pub fired: u64,
}

/// Pending events of type `T`, and the statistics of what fired them.
#[derive(Debug)]
pub struct SoftTimers<T> {
    events: TimerWheel<Event<T>>,
    /// No event is due before this: all that a check at a trigger state compares with.
    next_due: Instant,
    /// Pending events that are not rough.
    exact: usize,
    backup_period: Duration,
    triggers: TriggerStatistics,
    trace: Option<TriggerTrace>,
    counts: EventCounts,
}

/// Events taken out by [`SoftTimers::clear`], to be dropped where that is safe.
#[derive(Debug)]
pub struct Cleared<T>(TimerWheel<Event<T>>);

impl<T> Cleared<T> {
    /// Whether there were none.
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
    /// The memory of a pending event.
    pub const NODE_BYTES: usize = TimerWheel::<Event<T>>::NODE_BYTES;

    /// No events, at the time `start`; `backup_period` is the X of the bound.
    pub fn new(start: Instant, backup_period: Duration) -> Self {
        Self {
            events: TimerWheel::new(),
            next_due: Instant::FAR_FUTURE,
            exact: 0,
            backup_period,
            triggers: TriggerStatistics::new(start),
            trace: None,
            counts: EventCounts::default(),
        }
    }

    /// The resolution of the measurement clock in Hz (the paper's `measure_resolution`).
    pub const fn measure_resolution() -> u64 {
        1_000_000_000 / TICK_NS
    }

    /// `now` in ticks of the measurement clock (the paper's `measure_time`).
    pub const fn measure_time(now: Instant) -> u64 {
        now.tick()
    }

    /// The frequency in Hz at which the backup timer checks, rounded down but at least 1: the expected
    /// minimal resolution at which events are fired (the paper's `interrupt_clock_resolution`).
    pub fn interrupt_clock_resolution(&self) -> u64 {
        let ns = self.backup_period.as_nanos().max(1);
        u64::try_from(1_000_000_000 / ns).unwrap_or(u64::MAX).max(1)
    }

    /// The backup period X has changed.
    pub fn set_backup_period(&mut self, period: Duration) {
        self.backup_period = period;
    }

    /// Schedules `value` at least `ticks` ticks after `now` (the paper's `schedule_soft_event`). O(1).
    pub fn schedule_soft_event(&mut self, now: Instant, ticks: u64, value: T) -> TimerKey {
        let earliest = now.add_ns(ticks.saturating_mul(TICK_NS));
        self.schedule(FireWindow::from(earliest), value)
    }

    /// Schedules `value` to be fired from `window.earliest` on. O(1).
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

    /// Cancels an event; `None` if it has fired or was cancelled before. O(1).
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let event = self.events.cancel(key)?;
        self.exact -= usize::from(!event.rough);
        self.counts.cancelled += 1;
        self.refresh();
        Some(event.value)
    }

    /// Moves a pending event to a new time, keeping its key; false if it has fired or was cancelled before. O(1).
    pub fn reschedule(&mut self, key: TimerKey, earliest: Instant) -> bool {
        self.advance();
        if !self.events.reschedule(key, earliest) {
            return false;
        }
        self.counts.scheduled += 1;
        self.refresh();
        true
    }

    /// The value of a pending event.
    pub fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        self.events.get_mut(key).map(|event| &mut event.value)
    }

    /// Passes a trigger state at `now`: counts it, and hands out one event if any is due.
    ///
    /// When none is, this costs a comparison and about 2 ns for the statistics; as much again while they are traced.
    #[inline]
    pub fn check(&mut self, state: TriggerState, now: Instant) -> Option<Due<T>> {
        self.check_after(self.triggers.last(), state, now)
    }

    /// As [`check`](Self::check), where the trigger state before was at `before`: signal handlers are trigger states
    /// too, which this facility does not see.
    #[inline]
    pub fn check_after(
        &mut self,
        before: Instant,
        state: TriggerState,
        now: Instant,
    ) -> Option<Due<T>> {
        self.triggers.on_trigger_after(before, state, now);
        if let Some(trace) = &mut self.trace {
            trace.record(state, now);
        }
        self.next_overdue(state, now)
    }

    /// One more event that is due at this trigger state. A bounded amount of work: `None` while
    /// [`next_due`](Self::next_due) is not after `now` means that it should be called again soon.
    #[inline]
    pub fn next_overdue(&mut self, state: TriggerState, now: Instant) -> Option<Due<T>> {
        if now < self.next_due {
            return None;
        }
        self.pop(state, now)
    }

    /// The earliest instant at which a check may have something to do.
    pub fn next_due(&self) -> Option<Instant> {
        (self.next_due != Instant::FAR_FUTURE).then_some(self.next_due)
    }

    /// Whether an event is pending that is not [rough](FireWindow::rough): only then an idle thread has to be on time.
    pub const fn has_exact(&self) -> bool {
        self.exact > 0
    }

    /// When the last check was, or where the facility began.
    pub const fn last_check(&self) -> Instant {
        self.triggers.last()
    }

    /// Takes all pending events out, in no particular order. For the end of a program; O(1) and a new wheel.
    pub fn clear(&mut self) -> Cleared<T> {
        self.next_due = Instant::FAR_FUTURE;
        self.exact = 0;
        Cleared(mem::take(&mut self.events))
    }

    /// Pending events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Trigger states, intervals and lateness by kind of trigger state.
    pub fn triggers(&mut self) -> &TriggerStatistics {
        self.triggers.count_latest();
        &self.triggers
    }

    /// Records each trigger state from now on in `trace`; `None` ends it. Gives back the trace that was in use.
    pub fn set_trace(&mut self, trace: Option<TriggerTrace>) -> Option<TriggerTrace> {
        core::mem::replace(&mut self.trace, trace)
    }

    /// The trace in use.
    pub const fn trace(&self) -> Option<&TriggerTrace> {
        self.trace.as_ref()
    }

    /// Events scheduled, cancelled and fired.
    pub const fn counts(&self) -> EventCounts {
        self.counts
    }

    #[inline(never)]
    fn pop(&mut self, state: TriggerState, now: Instant) -> Option<Due<T>> {
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

    /// Lets the wheel follow the clock, so that what is due soon is put where it will fire from.
    fn advance(&mut self) {
        self.events.advance(self.triggers.last());
    }

    fn refresh(&mut self) {
        self.next_due = self.events.next_due().unwrap_or(Instant::FAR_FUTURE);
    }
}
