//! Soft events: handlers that cost a procedure call at a trigger state.
//!
//! A trigger state may be reached inside a socket call of a running task, with whatever that task has
//! borrowed. A handler is therefore given an [`EventContext`]: it may schedule, cancel, wake and try a
//! nonblocking send; what needs more waits for the end of the task ([`EventContext::defer`]). Handlers run
//! one at a time: a trigger state reached inside one fires nothing.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use softclock_core::time::TICK_NS;
use softclock_core::{Due, FireWindow, Instant, SoftTimers, TimerKey};

use super::inner::Inner;

/// What waits in the timing wheel.
#[derive(Debug)]
pub(crate) enum PendingEvent {
    /// Wakes a task.
    Wake(Waker),
    /// Ends a timeout, once the events from before then were handled.
    Expire(Waker),
    /// Calls a handler.
    Call(Rc<Handler>),
    /// Sends the next piece of a paced stream.
    Transmit(Rc<dyn Transmit>),
}

// As many bytes as a cache line has, the links of the wheel included.
const _: () = assert!(SoftTimers::<PendingEvent>::NODE_BYTES == 64);

/// A paced stream, to the runtime.
pub(crate) trait Transmit: fmt::Debug {
    /// Sends what may go by `now`. Is called from within a trigger state, so it passes none.
    fn on_due(self: Rc<Self>, now: Instant);
}

impl PendingEvent {
    /// Whether the tasks that it wakes have waited for this time, and not for something that a handler has found.
    fn is_time_of_tasks(&self) -> bool {
        match self {
            Self::Wake(_) | Self::Expire(_) | Self::Transmit(_) => true,
            Self::Call(_) => false,
        }
    }
}

pub(crate) struct Handler {
    /// The number of the runtime that has the key.
    runtime: u64,
    function: RefCell<Function>,
    key: Cell<Option<TimerKey>>,
}

type Function = Box<dyn FnMut(&mut EventContext<'_>)>;

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler")
            .field("key", &self.key.get())
            .finish_non_exhaustive()
    }
}

/// A scheduled soft event. Dropping it leaves the event scheduled.
#[derive(Clone, Debug)]
pub struct SoftEvent {
    handler: Rc<Handler>,
}

impl SoftEvent {
    /// Takes the event back; false if it is not pending: fired, cancelled or running just now. O(1).
    pub fn cancel(&self) -> bool {
        let Some(key) = self.handler.key.take() else {
            return false;
        };
        let cancelled = Inner::with_id(self.handler.runtime, |runtime| {
            // Bound to a name, so that it is dropped after the borrow has ended.
            let cancelled = runtime.timers.borrow_mut().cancel(key);
            cancelled.is_some()
        });
        cancelled.unwrap_or(false)
    }

    /// Has the handler run within `window` instead of when it would have, or again if it has run; false where its
    /// runtime is not this thread's. Allocates nothing, O(1).
    ///
    /// Within its own handler, it counts for less than [`EventContext::reschedule_within`].
    pub fn reschedule_within(&self, window: FireWindow) -> bool {
        self.cancel();
        let handler = &self.handler;
        let scheduled = Inner::with_id(handler.runtime, |runtime| {
            runtime.schedule_event(window, handler);
        });
        scheduled.is_some()
    }

    /// Whether the event is still to fire.
    pub fn is_pending(&self) -> bool {
        self.handler.key.get().is_some()
    }
}

/// What a handler may do (see the module's documentation), and when it runs.
pub struct EventContext<'a> {
    runtime: &'a Inner,
    now: Instant,
    due: Instant,
    again: Option<FireWindow>,
}

impl EventContext<'_> {
    /// The time of the trigger state.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// When the event was due.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// How late the handler runs.
    pub fn lateness(&self) -> Duration {
        self.now.since(self.due)
    }

    /// Schedules this same handler `ticks` ticks from now, when it has returned. Allocates nothing.
    pub fn reschedule(&mut self, ticks: u64) {
        let earliest = self.now.add_ns(ticks.saturating_mul(TICK_NS));
        self.reschedule_within(FireWindow::from(earliest));
    }

    /// Schedules this same handler within `window`, when it has returned. Allocates nothing.
    pub fn reschedule_within(&mut self, window: FireWindow) {
        self.again = Some(window);
    }

    /// Schedules another handler.
    pub fn schedule(
        &self,
        window: FireWindow,
        handler: impl FnMut(&mut EventContext<'_>) + 'static,
    ) -> SoftEvent {
        self.runtime.schedule_handler(window, Box::new(handler))
    }

    /// Cancels an event; false if it was not pending.
    pub fn cancel(&self, event: &SoftEvent) -> bool {
        event.cancel()
    }

    /// Wakes a task. It runs after those that are ready already, as if woken by another task.
    pub fn wake(&self, waker: &Waker) {
        waker.wake_by_ref();
    }

    /// Runs `f` when the running task, if there is one, has returned: free of its borrows. At most 1024 closures wait;
    /// one more is given back.
    pub fn defer<F: FnOnce() + 'static>(&self, f: F) -> Result<(), F> {
        let mut deferred = self.runtime.deferred.borrow_mut();
        if deferred.len() == DEFERRED {
            return Err(f);
        }
        deferred.push(Box::new(f));
        Ok(())
    }
}

impl fmt::Debug for EventContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventContext")
            .field("now", &self.now)
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Schedules `function` within `window`.
    pub(crate) fn schedule_handler(&self, window: FireWindow, function: Function) -> SoftEvent {
        let handler = Rc::new(Handler {
            runtime: self.mailbox.id(),
            function: RefCell::new(function),
            key: Cell::new(None),
        });
        self.schedule_event(window, &handler);
        SoftEvent { handler }
    }

    /// Calls or wakes what is due.
    #[inline]
    pub(crate) fn deliver(&self, due: Due<PendingEvent>, now: Instant) {
        self.wakes_are_due.set(due.value.is_time_of_tasks());
        match due.value {
            PendingEvent::Wake(waker) => waker.wake(),
            PendingEvent::Expire(waker) => self.timeouts.on_due(waker),
            PendingEvent::Call(handler) => self.call(handler, due.due, now),
            PendingEvent::Transmit(stream) => stream.on_due(now),
        }
    }

    #[inline]
    fn call(&self, handler: Rc<Handler>, due: Instant, now: Instant) {
        handler.key.set(None);
        let mut context = EventContext {
            runtime: self,
            now,
            due,
            again: None,
        };
        (handler.function.borrow_mut())(&mut context);
        if let Some(window) = context.again {
            // The handler may have scheduled itself by its `SoftEvent`, too.
            if let Some(key) = handler.key.take() {
                drop(self.timers.borrow_mut().cancel(key));
            }
            self.schedule_event(window, &handler);
        }
    }

    #[inline]
    fn schedule_event(&self, window: FireWindow, handler: &Rc<Handler>) {
        let event = PendingEvent::Call(handler.clone());
        let key = self.timers.borrow_mut().schedule(window, event);
        handler.key.set(Some(key));
    }
}

/// The number of ticks of the measurement clock in a second.
pub(crate) const RESOLUTION_HZ: u64 = SoftTimers::<PendingEvent>::measure_resolution();

/// Closures that may wait for the end of a task.
const DEFERRED: usize = 1024;
