//! Soft events: handlers that cost a function call at a trigger state.
//!
//! A trigger state may be reached inside a socket call of a running task, which may have borrowed any of its data. A
//! handler therefore gets an [`EventContext`]: it may schedule, cancel, wake and try a nonblocking send, and it can
//! postpone other work to the end of the task ([`EventContext::defer`]). Handlers run one at a time: a trigger state
//! reached inside a handler fires nothing.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use softclock_core::time::TICK_NS;
use softclock_core::{Due, FireWindow, Instant, SoftTimers, TimerKey};

use super::inner::Inner;

/// An event in the timing wheel.
#[derive(Debug)]
pub(crate) enum PendingEvent {
    /// Wakes a task.
    Wake(Waker),
    /// Ends a timeout after the events from before it were handled.
    Expire(Waker),
    /// Calls a handler.
    Call(Rc<Handler>),
    /// Sends the next piece of a paced stream.
    Transmit(Rc<dyn Transmit>),
}

// One cache line, including the links of the wheel.
const _: () = assert!(SoftTimers::<PendingEvent>::NODE_BYTES == 64);

/// The runtime's view of a paced stream.
pub(crate) trait Transmit: fmt::Debug {
    /// Sends the data that is due by `now`. It is called within a trigger state, so it must not pass one.
    fn on_due(self: Rc<Self>, now: Instant);
}

impl PendingEvent {
    /// Returns whether the tasks that this event wakes have waited for this time itself, not for something that a
    /// handler has found.
    fn is_time_of_tasks(&self) -> bool {
        match self {
            Self::Wake(_) | Self::Expire(_) | Self::Transmit(_) => true,
            Self::Call(_) => false,
        }
    }
}

pub(crate) struct Handler {
    /// The id of the runtime that has the key.
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
///
/// # Example
/// ```
/// use softclock::FireWindow;
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let minute = Duration::from_secs(60);
///     let event = softclock::schedule_after(minute, |_| println!("idle for a minute"));
///     // On activity, put it off. It need not be exact.
///     event.reschedule_within(FireWindow::roughly(softclock::now() + minute));
///     assert!(event.is_pending());
///     assert!(event.cancel());
///     assert!(!event.is_pending());
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SoftEvent {
    handler: Rc<Handler>,
}

impl SoftEvent {
    /// Cancels the event. Returns false if it is not pending: it has fired, was cancelled, or is running. O(1).
    pub fn cancel(&self) -> bool {
        let Some(key) = self.handler.key.take() else {
            return false;
        };
        let cancelled = Inner::with_own(self.handler.runtime, |runtime| {
            // Bound to a name, to be dropped after the borrow has ended.
            let cancelled = runtime.timers.borrow_mut().cancel(key);
            cancelled.is_some()
        });
        cancelled.unwrap_or(false)
    }

    /// Moves the event to `window`, or schedules it again if it is not pending. Returns false if its runtime has ended.
    /// O(1), allocates nothing.
    ///
    /// If a handler calls this for its own event, [`EventContext::reschedule_within`] takes precedence.
    pub fn reschedule_within(&self, window: FireWindow) -> bool {
        self.cancel();
        let handler = &self.handler;
        let scheduled = Inner::with_own(handler.runtime, |runtime| {
            runtime.schedule_event(window, handler);
        });
        scheduled.is_some()
    }

    /// Returns whether the event is pending. The end of its runtime drops it.
    pub fn is_pending(&self) -> bool {
        let Some(key) = self.handler.key.get() else {
            return false;
        };
        let pending = Inner::with_own(self.handler.runtime, |runtime| {
            runtime.timers.borrow_mut().get_mut(key).is_some()
        });
        pending == Some(true)
    }
}

/// The argument of a soft event's handler: the time, and the operations that a handler may use.
///
/// A handler may run inside a socket call of a task, while that task holds borrows. Work that touches the data of
/// tasks must wait until the task has returned ([`defer`](Self::defer)).
///
/// # Example
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let done = Rc::new(Cell::new(false));
///     let handler_done = done.clone();
///     softclock::schedule_soft_event(50, move |context| {
///         assert!(context.lateness() > Duration::ZERO);
///         let done = handler_done.clone();
///         if context.defer(move || done.set(true)).is_err() {
///             context.reschedule(50); // too many closures are waiting
///         }
///     });
///     while !done.get() {
///         softclock::sleep(Duration::from_micros(50)).await;
///     }
/// });
/// # Ok(())
/// # }
/// ```
pub struct EventContext<'a> {
    runtime: &'a Inner,
    now: Instant,
    due: Instant,
    again: Option<FireWindow>,
}

impl EventContext<'_> {
    /// Returns the time of the trigger state.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the time at which the event was due.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Returns how late the handler runs.
    pub fn lateness(&self) -> Duration {
        self.now.since(self.due)
    }

    /// Schedules this handler again, `ticks` ticks from now, after it has returned. Allocates nothing.
    pub fn reschedule(&mut self, ticks: u64) {
        let earliest = self.now.add_ns(ticks.saturating_mul(TICK_NS));
        self.reschedule_within(FireWindow::from(earliest));
    }

    /// Schedules this handler again, for `window`, after it has returned. Allocates nothing.
    pub fn reschedule_within(&mut self, window: FireWindow) {
        self.again = Some(window);
    }

    /// Schedules another handler. Allocates, as [`schedule_soft_event`](crate::schedule_soft_event) does.
    pub fn schedule(
        &self,
        window: FireWindow,
        handler: impl FnMut(&mut EventContext<'_>) + 'static,
    ) -> SoftEvent {
        self.runtime.schedule_handler(window, Box::new(handler))
    }

    /// Cancels an event. Returns false if it was not pending.
    pub fn cancel(&self, event: &SoftEvent) -> bool {
        event.cancel()
    }

    /// Wakes a task. It runs after tasks that are already ready, as if another task had woken it.
    pub fn wake(&self, waker: &Waker) {
        waker.wake_by_ref();
    }

    /// Runs `f` after the running task, if any, has returned and its borrows have ended. At most 1024 closures may
    /// wait; beyond that, `f` is returned as an error.
    pub fn defer<F: FnOnce() + 'static>(&self, f: F) -> Result<(), F> {
        let mut deferred = self.runtime.deferred.borrow_mut();
        if deferred.len() == DEFERRED {
            return Err(f);
        }
        deferred.push_back(Box::new(f));
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
    /// Schedules `function` for `window`.
    pub(crate) fn schedule_handler(&self, window: FireWindow, function: Function) -> SoftEvent {
        let handler = Rc::new(Handler {
            runtime: self.mailbox.id(),
            function: RefCell::new(function),
            key: Cell::new(None),
        });
        self.schedule_event(window, &handler);
        SoftEvent { handler }
    }

    /// Delivers a due event: wakes its task, calls its handler, or sends on its stream.
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
        // Not pending while it runs, so that the handler can schedule itself.
        handler.key.set(None);
        let mut context = EventContext {
            runtime: self,
            now,
            due,
            again: None,
        };
        (handler.function.borrow_mut())(&mut context);
        if let Some(window) = context.again {
            // The handler may also have scheduled itself through its `SoftEvent`.
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

/// Ticks of the measurement clock per second.
pub(crate) const RESOLUTION_HZ: u64 = SoftTimers::<PendingEvent>::measure_resolution();

/// Most closures that wait for the end of a task.
const DEFERRED: usize = 1024;
