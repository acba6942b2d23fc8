//! Pending events of a loop, and how long the loop may wait for them.

use std::fmt;
use std::io;
use std::mem;
use std::time::{self, Duration};

use softclock_core::time::saturating_ns;
use softclock_core::{
    Clock, Due, FireWindow, IdleRule, IdleStep, Instant, SoftTimers, TimerKey, TriggerState,
};
use softclock_linux::alarm::{AlarmId, AlarmSafe, Alarms};
use softclock_linux::clock::{MinimalSlack, RunTime, ThreadClock, cpu_time_ns};

use super::statistics::LoopStatistics;

/// Soft timers of a thread that has its own loop. Events are values of the type `T`; the loop decides what to do with
/// each.
///
/// It belongs to the thread that created it (it is not `Send`), and keeps the thread's timer slack at 1 ns, so that
/// waits end on time. A thread may have several.
///
/// All operations on events are O(1). Scheduling allocates only when more events are pending than ever before, or than
/// [`with_capacity`](Self::with_capacity) has reserved.
///
/// # Example
/// ```
/// use softclock::embed::{LoopTimers, TriggerState};
/// use std::time::Duration;
///
/// let mut timers = LoopTimers::new();
/// timers.schedule_after(Duration::from_micros(50), "send");
/// let minute = timers.schedule_after(Duration::from_secs(60), "give up");
///
/// std::thread::sleep(Duration::from_micros(100)); // or any work
/// timers.check(TriggerState::Application);
/// let due = timers.next_overdue().expect("50 us have passed");
/// assert_eq!(due.value, "send");
/// assert!(timers.next_overdue().is_none());
/// assert_eq!(timers.cancel(minute), Some("give up"));
/// ```
pub struct LoopTimers<T> {
    clock: ThreadClock,
    timers: SoftTimers<T>,
    idle: IdleRule,
    /// Started with the first alarm-safe handler, since they send the thread signals.
    alarms: Option<Alarms>,
    wait: Wait,
    /// The kind of the last check.
    state: TriggerState,
    /// Events that the last check may still fire.
    left: u32,
    /// The time in which the thread could not run.
    run_time: RunTime,
    blocks: u64,
    blocked: Duration,
    _slack: MinimalSlack,
}

/// The wait for which [`LoopTimers::before_wait`] has returned the limit.
#[derive(Clone, Copy, Debug)]
enum Wait {
    None,
    /// A wait that does not block, since an event is due or close.
    Spin,
    Block {
        since: Instant,
        until: Option<Instant>,
    },
}

impl<T> LoopTimers<T> {
    /// Creates timers without events, for the calling thread. The first call in a process takes about 3 ms, to measure
    /// the rate of the processor's counter.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Like [`new`](Self::new), with memory for this number of pending events.
    pub fn with_capacity(capacity: usize) -> Self {
        let clock = ThreadClock::new();
        let start = clock.now();
        let mut idle = IdleRule::new(SPIN_CAP);
        // From here on the thread earns time to spin.
        idle.settle(start);
        Self {
            timers: SoftTimers::with_capacity(start, Duration::MAX, capacity),
            idle,
            alarms: None,
            wait: Wait::None,
            state: TriggerState::Application,
            left: 0,
            run_time: RunTime::new(start, cpu_time_ns()),
            blocks: 0,
            blocked: Duration::ZERO,
            clock,
            _slack: MinimalSlack::of_this_thread(),
        }
    }

    /// Sets the share of its time, 0 to 1, that an idle thread may spin so that events fire on time. The default is
    /// 0.05.
    ///
    /// A blocking wait returns tens of microseconds late, so [`before_wait`](Self::before_wait) lets the loop block
    /// until shortly before an event, and then returns zero until the event is due. With 0, or when the share is used
    /// up, events of an idle thread are as late as the wait. The thread does not spin for events that may be late
    /// ([`FireWindow::roughly`]).
    pub fn set_spin_cap(&mut self, share: f64) {
        self.idle.set_cap(share);
    }

    /// Returns the time of the thread's clock, which is CLOCK_MONOTONIC. Costs about 10 ns, and no system call where
    /// the processor's time stamp counter is reliable.
    #[inline]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Converts an instant of the standard library to one of the thread's clock, such as a deadline that other code
    /// has computed. Both count CLOCK_MONOTONIC; two clocks that are read at the same moment differ by at most about
    /// 1 us. Returns [`Instant::ORIGIN`] for an instant before that.
    ///
    /// # Example
    /// ```
    /// use softclock::FireWindow;
    /// use softclock::embed::LoopTimers;
    /// use std::time::{Duration, Instant};
    ///
    /// let mut timers = LoopTimers::new();
    /// let deadline = Instant::now() + Duration::from_millis(2);
    /// timers.schedule(FireWindow::from(timers.from_std(deadline)), "deadline");
    /// assert_eq!(timers.to_std(timers.from_std(deadline)), deadline);
    /// ```
    #[allow(clippy::wrong_self_convention, reason = "the pair of to_std")]
    pub fn from_std(&self, instant: time::Instant) -> Instant {
        self.clock.from_std(instant)
    }

    /// Converts an instant of the thread's clock to one of the standard library, as precisely as
    /// [`from_std`](Self::from_std) does.
    pub fn to_std(&self, instant: Instant) -> time::Instant {
        self.clock.to_std(instant)
    }

    /// Schedules an event to fire from `window.earliest` on. Never fires early. If an idle thread should not spin for
    /// it, use [`FireWindow::roughly`].
    #[inline]
    pub fn schedule(&mut self, window: FireWindow, value: T) -> TimerKey {
        self.timers.schedule(window, value)
    }

    /// Schedules an event to fire once `delay` has passed. An idle thread wakes up on time for it; for a timeout,
    /// [`schedule`](Self::schedule) one with [`FireWindow::roughly`].
    #[inline]
    pub fn schedule_after(&mut self, delay: Duration, value: T) -> TimerKey {
        self.schedule(FireWindow::from(self.now() + delay), value)
    }

    /// Cancels an event and returns its value, or `None` if it has fired or was cancelled before.
    #[inline]
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        self.timers.cancel(key)
    }

    /// Moves a pending event to another time; its key stays valid. Returns false if it has fired or was cancelled.
    #[inline]
    pub fn reschedule(&mut self, key: TimerKey, earliest: Instant) -> bool {
        self.timers.reschedule(key, earliest)
    }

    /// Returns the value of a pending event, or `None` if it has fired or was cancelled.
    pub fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        self.timers.get_mut(key)
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Returns whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    /// Returns the earliest time at which a check may have work to do; `None` without events.
    pub fn next_due(&self) -> Option<Instant> {
        let alarm = self.alarms.as_ref().map(Alarms::next_due);
        let alarm = alarm.filter(|due| *due != Instant::FAR_FUTURE);
        let timers = self.timers.next_due();
        timers.into_iter().chain(alarm).min()
    }

    /// Passes a trigger state, and returns its time. Take the events that are due by
    /// [`next_overdue`](Self::next_overdue).
    ///
    /// `state` is the reason why the thread is awake, for the statistics. Costs a reading of the clock, about 10 ns,
    /// and a few ns more. Alarm-safe handlers that are due run in this call.
    #[inline]
    pub fn check(&mut self, state: TriggerState) -> Instant {
        // Not all loops wait.
        self.clock.resync_if_due(self.timers.last_check());
        let now = self.clock.now();
        self.check_at(state, now);
        now
    }

    /// Returns the next event that was due at the last [`check`](Self::check), at most 32 events a check. Further
    /// events and those that are not taken wait for the next check, and [`before_wait`](Self::before_wait) returns zero
    /// meanwhile.
    #[inline]
    pub fn next_overdue(&mut self) -> Option<Due<T>> {
        self.left = self.left.checked_sub(1)?;
        let last = self.timers.last_check();
        let due = loop {
            let due = self.timers.next_overdue(self.state, last);
            // Without an event, those that are due may have been sorted only.
            let has_more = self.timers.next_due().is_some_and(|next| next <= last);
            if due.is_some() || !has_more || self.left == 0 {
                break due;
            }
            self.left -= 1;
        };
        if let Some(alarms) = &self.alarms {
            set_plain_next_due(alarms, &self.timers);
        }
        due
    }

    /// Begins a wait: returns the longest time for which the loop may wait for its own events. `None` means no limit,
    /// and zero that it must look without waiting.
    ///
    /// The wait should end at this time as exactly as the loop can ([Waits](super#how-long-to-wait)). It may end
    /// sooner. Call [`after_wait`](Self::after_wait) afterwards.
    pub fn before_wait(&mut self) -> Option<Duration> {
        let now = self.clock.now();
        let (due, is_exact) = (self.next_due(), self.has_exact_event());
        let step = match is_exact {
            true => self.idle.next_step(now, due),
            false => self.idle.next_rough_step(now, due),
        };
        let (until, limit) = match step {
            IdleStep::Spin => {
                self.wait = Wait::Spin;
                return Some(Duration::ZERO);
            }
            IdleStep::Block(time) => (Some(now + time), Some(time)),
            IdleStep::Halt => (None, None),
        };
        self.wait = Wait::Block { since: now, until };
        if let Some(alarms) = &self.alarms {
            // The wait itself ends in time: an alarm would only interrupt it.
            alarms.disarm_for_idle();
        }
        limit
    }

    /// Ends a wait, passes a trigger state of the kind [`Idle`](TriggerState::Idle), and returns its time.
    ///
    /// `found` says whether the wait has found events of the loop. Pass false if it has ended by its time limit, also
    /// by that of a [`WakeTimer`](super::WakeTimer): these waits show how late waits end, and so how long before an
    /// event the next one must end. Without a preceding [`before_wait`](Self::before_wait) it is a check.
    pub fn after_wait(&mut self, found: bool) -> Instant {
        let wait = mem::replace(&mut self.wait, Wait::None);
        // The thread was away: correct the clock before it is read.
        match wait {
            Wait::Block { .. } => self.clock.resync_after_wait(),
            Wait::Spin | Wait::None => {}
        }
        self.clock.resync_if_due(self.timers.last_check());
        let now = self.clock.now();
        match wait {
            Wait::None => {}
            Wait::Spin if found => self.idle.on_found(),
            Wait::Spin => self.idle.settle(now),
            Wait::Block { since, until } => self.on_blocked(now.since(since), until, now, found),
        }
        self.check_at(TriggerState::Idle, now);
        if let Some(alarms) = &self.alarms {
            set_plain_next_due(alarms, &self.timers);
            // The loop may compute for long before its next wait.
            alarms.arm_if_needed(now);
        }
        now
    }

    /// Schedules `handler` to be called every `period`, counted from its preceding call and at least 1 us, at a check
    /// or by a signal. The call is at most `deadline` late, or without a deadline, it is made by the backup timer at
    /// the latest (*Soft Timers*, section 5.9).
    ///
    /// The first call starts the thread's backup timer, which from then on interrupts the thread by a signal: every
    /// tick of the kernel up to every 32 ms of running time. A signal may end a wait of the loop with `EINTR`.
    ///
    /// # Errors
    /// `AlreadyExists` if the thread has alarms already, those of a [`Runtime`](crate::Runtime) or of another
    /// `LoopTimers`; `WouldBlock` if the limit of pending signals is exhausted;
    /// [`TableFull`](crate::alarm::TableFull) as the inner error if the thread has too many of these handlers.
    pub fn schedule_alarm_safe(
        &mut self,
        handler: &'static dyn AlarmSafe,
        period: Duration,
        deadline: Option<Duration>,
    ) -> io::Result<AlarmId> {
        let now = self.now();
        let alarms = self.started_alarms()?;
        let id = alarms.register(handler, period, deadline);
        let id = id.map_err(io::Error::other)?;
        alarms.arm_if_needed(now);
        Ok(id)
    }

    /// Cancels a handler that [`schedule_alarm_safe`](Self::schedule_alarm_safe) has scheduled. Returns whether it was
    /// scheduled.
    pub fn cancel_alarm_safe(&mut self, id: AlarmId) -> bool {
        let alarms = self.alarms.as_ref();
        alarms.is_some_and(|alarms| alarms.unregister(id))
    }

    /// Starts the backup timer, with this longest period; by default it is not running until the first
    /// [alarm-safe handler](Self::schedule_alarm_safe), and the period is 32 ms. `None` turns it off.
    ///
    /// # Errors
    /// Those of [`schedule_alarm_safe`](Self::schedule_alarm_safe).
    pub fn set_backup(&mut self, longest: Option<Duration>) -> io::Result<()> {
        self.started_alarms()?.set_backup(longest);
        Ok(())
    }

    /// Returns all counts and histograms so far. Copies about 100 KB and makes a system call.
    ///
    /// The lateness of an event counts until the check that finds it due.
    ///
    /// # Example
    /// ```
    /// use softclock::embed::LoopTimers;
    /// use std::time::Duration;
    ///
    /// let mut timers = LoopTimers::new();
    /// timers.schedule_after(Duration::from_micros(200), "tick");
    /// std::thread::sleep(Duration::from_millis(1));
    /// timers.after_wait(false);
    /// assert!(timers.next_overdue().is_some());
    /// let lateness = timers.statistics().triggers.lateness();
    /// assert!(lateness.quantile_ns(0.99) > 700_000);
    /// ```
    pub fn statistics(&mut self) -> LoopStatistics {
        self.run_time.sample(self.clock.now(), cpu_time_ns());
        let mut triggers = self.timers.triggers().clone();
        let alarms = self.alarms.as_ref().map(Alarms::stats);
        if let Some(alarms) = &alarms {
            alarms.add_to(&mut triggers);
        }
        LoopStatistics {
            clock: self.clock.source(),
            triggers,
            events: self.timers.counts(),
            pending: self.timers.len(),
            alarms,
            blocks: self.blocks,
            blocked: self.blocked,
            spun: self.idle.spun(),
            not_running: Duration::from_nanos(self.run_time.not_running_ns()),
        }
    }

    #[inline]
    fn check_at(&mut self, state: TriggerState, now: Instant) {
        (self.state, self.left) = (state, EVENTS_PER_CHECK);
        let before = match &self.alarms {
            None => self.timers.last_check(),
            Some(alarms) => check_alarms(alarms, now),
        };
        self.timers.on_trigger_after(before, state, now);
    }

    fn on_blocked(&mut self, time: Duration, until: Option<Instant>, now: Instant, found: bool) {
        self.blocks += 1;
        self.blocked += time;
        self.run_time.blocked(saturating_ns(time));
        // A wait that has ended early, as that of a `WakeTimer` may, does not show how late waits end.
        if let Some(until) = until
            && !found
            && now >= until
        {
            self.idle.on_timed_out(until, now);
        }
    }

    /// Returns whether an idle thread must be on time for some pending event.
    fn has_exact_event(&self) -> bool {
        let alarm = self.alarms.as_ref().map(Alarms::next_due);
        alarm.is_some_and(|due| due != Instant::FAR_FUTURE) || self.timers.has_exact()
    }

    fn started_alarms(&mut self) -> io::Result<&Alarms> {
        let alarms = match self.alarms.take() {
            Some(alarms) => alarms,
            None => Alarms::new(&self.clock)?,
        };
        Ok(self.alarms.insert(alarms))
    }
}

impl<T> Default for LoopTimers<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for LoopTimers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopTimers")
            .field("pending", &self.len())
            .field("next_due", &self.next_due())
            .finish_non_exhaustive()
    }
}

/// Passes a trigger state of the alarms, and returns the time of the preceding one.
fn check_alarms(alarms: &Alarms, now: Instant) -> Instant {
    let before = alarms.on_trigger(now);
    if alarms.run_due(now, EVENTS_PER_CHECK as usize) > 0 {
        alarms.arm_if_needed(now);
    }
    before
}

/// Informs the backup timer of the earliest event that only a check fires, so that it records how late these are.
fn set_plain_next_due<T>(alarms: &Alarms, timers: &SoftTimers<T>) {
    alarms.set_plain_next_due(timers.next_due().unwrap_or(Instant::FAR_FUTURE));
}

/// The initial share of its time that an idle thread may spin.
const SPIN_CAP: f64 = 0.05;

/// Most events fired by one check, so that many due events do not delay the work of the loop for long.
const EVENTS_PER_CHECK: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Without waits as well: the rate of the clock is measured anew from time to time.
    #[test]
    fn checks_correct_the_clock() {
        let mut timers = LoopTimers::<()>::new();
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(25) {
            timers.check(TriggerState::Application);
        }
        assert!(!timers.clock.resync_if_due(timers.timers.last_check()));
    }
}
