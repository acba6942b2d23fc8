//! The events of a timer thread, which other threads schedule and cancel.
//!
//! One lock protects the events. Each operation under it is O(1), and no waker is woken, cloned or dropped under it.
//! Scheduling an event before all others sets the kernel timer under the lock, one system call.

use std::fmt;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use softclock_core::{FireWindow, Instant, SoftTimers, TimerKey, TriggerState};

use super::alarm::Alarm;
use super::now;

/// A sender whose datagrams are due: see [`SendTimer`](crate::pacing::SendTimer).
pub trait SendJob: Send + Sync {
    /// Sends the datagrams that are due. Does not block if the [`Outlet`](crate::pacing::Outlet) does not.
    fn run(self: Arc<Self>);
}

pub(super) enum Event {
    Wake(Waker),
    Run(Arc<dyn SendJob>),
}

pub(super) struct Shared {
    state: Mutex<State>,
    alarm: Alarm,
}

struct State {
    timers: SoftTimers<Event>,
    /// The time at which the thread wakes up by itself: the origin while it runs.
    armed: Instant,
    closed: bool,
}

impl Shared {
    pub(super) fn new(start: Instant) -> io::Result<Self> {
        let state = State {
            timers: SoftTimers::new(start, BACKUP_PERIOD),
            armed: Instant::ORIGIN,
            closed: false,
        };
        Ok(Self {
            state: Mutex::new(state),
            alarm: Alarm::new()?,
        })
    }

    pub(super) fn schedule(&self, at: Instant, event: Event) -> TimerKey {
        self.change(|timers| timers.schedule(FireWindow::from(at), event))
    }

    /// Moves a pending event to `at`. Returns false if it has fired.
    pub(super) fn reschedule(&self, key: TimerKey, at: Instant) -> bool {
        self.change(|timers| timers.reschedule(key, at))
    }

    /// Cancels a pending event. Returns false if it has fired.
    pub(super) fn cancel(&self, key: TimerKey) -> bool {
        let event = self.lock().timers.cancel(key);
        event.is_some()
    }

    pub(super) fn replace_waker(&self, key: TimerKey, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut state = self.lock();
        let Some(event) = state.timers.get_mut(key) else {
            return false;
        };
        let former = mem::replace(event, Event::Wake(waker));
        drop(state);
        drop(former);
        true
    }

    /// Ends the thread once it has fired the events that it has taken.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.alarm.set(Instant::ORIGIN);
    }

    /// Waits until events are due, and moves up to [`BATCH`] of them to `batch`. Returns false if the thread is to end.
    pub(super) fn wait(&self, batch: &mut Vec<Event>) -> bool {
        loop {
            let mut state = self.lock();
            if state.closed {
                return false;
            }
            let now = now();
            state.take_due(now, batch);
            if !batch.is_empty() {
                // The thread looks again before it waits, so nothing has to wake it until then.
                state.armed = Instant::ORIGIN;
                return true;
            }
            let next = state.timers.next_due().unwrap_or(Instant::FAR_FUTURE);
            if next <= now {
                // The wheel has moved events between its levels, and has more to move.
                continue;
            }
            state.armed = next;
            self.alarm.set(next);
            drop(state);
            self.alarm.wait();
        }
    }

    /// Fires an event, without the lock. A panic of a waker ends here, since other tasks depend on the thread.
    pub(super) fn fire(&self, event: Event) {
        let fired = catch_unwind(AssertUnwindSafe(|| match event {
            Event::Wake(waker) => waker.wake(),
            Event::Run(job) => job.run(),
        }));
        // The panic hook has reported it.
        drop(fired);
    }

    /// Changes the events, and sets the kernel timer if one of them is now earlier than all were, or if the thread would
    /// wake up in vain before long.
    fn change<R>(&self, change: impl FnOnce(&mut SoftTimers<Event>) -> R) -> R {
        let now = now();
        let mut state = self.lock();
        let timers = &mut state.timers;
        // A trigger state: it moves the wheel to the present, since the thread may have slept for long. Events that
        // are due are left to the thread, which is about to wake up for them.
        if timers.next_due().is_none_or(|due| now < due) {
            let due = timers.check(TriggerState::Application, now);
            debug_assert!(due.is_none());
        }
        let result = change(timers);
        let next = timers.next_due().unwrap_or(Instant::FAR_FUTURE);
        if next < state.armed || state.would_wake_in_vain(now, next) {
            state.armed = next;
            self.alarm.set(next);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether to set the kernel timer again, because the event that it is set for is gone: if it fires before half of
    /// the time until `next`. So events that are cancelled again and again cost few system calls, and one that is moved
    /// just before its time, as those of paced sockets are, no wake-up.
    fn would_wake_in_vain(&self, now: Instant, next: Instant) -> bool {
        // Otherwise the thread runs, or is about to.
        let is_waiting = self.armed > now;
        is_waiting && next.since(now) / 2 > self.armed.since(now)
    }

    fn take_due(&mut self, now: Instant, batch: &mut Vec<Event>) {
        let mut due = self.timers.check(TriggerState::Idle, now);
        while let Some(event) = due {
            batch.push(event.value);
            if batch.len() == BATCH {
                break;
            }
            due = self.timers.next_overdue(TriggerState::Idle, now);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// The most events that the thread takes under the lock at a time.
pub(super) const BATCH: usize = 64;

/// The longest interval between two checks for which the statistics of the facility are made. The thread is woken for
/// each event, and needs no backup.
const BACKUP_PERIOD: Duration = Duration::from_millis(32);
