//! The state of a thread's runtime, and access to it from code on that thread.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};

use slab::Slab;
use softclock_core::{Clock, Due, IdleRule, Instant, SoftTimers, TriggerState};
use softclock_linux::alarm::Alarms;
use softclock_linux::busy_poll::BusyPoll;
use softclock_linux::clock::{MinimalSlack, RunTime, ThreadClock, cpu_time_ns};
use softclock_linux::readiness::{AheadTimer, Poller, Wakeup};

use super::Builder;
use super::active::{ActiveTasks, Runnable, TaskId};
use super::each_turn::{EachTurn, TurnEnd};
use super::far_timer::FarTimer;
use super::kernel_events::KernelEvents;
use super::mailbox::Mailbox;
use super::ready::Ready;
use super::soft_events::{PendingEvent, Transmit};
use super::sources::Sources;
use super::statistics::{PacingCounts, TurnCounts};
use super::timeouts::Timeouts;
use super::turn_buffers::TurnBuffers;

/// The state of one runtime.
///
/// Each part has its own `RefCell`, borrowed as briefly as possible and never while code of the user runs: a waker, a
/// handler, a task or a destructor.
pub(crate) struct Inner {
    pub(crate) clock: ThreadClock,
    pub(crate) timers: RefCell<SoftTimers<PendingEvent>>,
    /// Whether a trigger state is firing events. A trigger state within it fires none.
    firing: Cell<bool>,
    /// Whether tasks are being woken because their own time has come.
    pub(super) wakes_are_due: Cell<bool>,
    /// Alarm-safe handlers, and the timers that interrupt the thread for them.
    pub(crate) alarms: Alarms,
    /// Woken tasks. Each is queued at most once.
    pub(crate) ready: RefCell<Ready<Runnable>>,
    /// The task that runs, or ran last; `None` while the future of `block_on` runs.
    pub(super) running: Cell<Option<TaskId>>,
    /// The running task if it gives way, so that it is queued behind others when it is woken.
    pub(super) gives_way: Cell<Option<TaskId>>,
    /// The tasks that have not ended.
    pub(crate) active: RefCell<ActiveTasks>,
    /// Closures to be run after the running task has returned.
    pub(crate) deferred: RefCell<VecDeque<Box<dyn FnOnce()>>>,
    /// Work to be done once behind the tasks of this turn.
    pub(crate) turn_end: RefCell<Vec<Rc<dyn TurnEnd>>>,
    pub(crate) sources: RefCell<Sources>,
    pub(crate) poller: RefCell<Poller>,
    pub(crate) wakeup: Wakeup,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) idle: RefCell<IdleRule>,
    pub(crate) spinning: Cell<bool>,
    pub(crate) far_timer: RefCell<FarTimer>,
    /// For threads with regular waits.
    pub(super) ahead_timer: Option<RefCell<AheadTimer>>,
    pub(crate) timeouts: Timeouts,
    /// The time of the last check of the kernel for events.
    pub(crate) looked: Cell<Instant>,
    /// Whether that check may have left events.
    pub(super) may_have_left: Cell<bool>,
    /// Whether the next turn checks the kernel, however recent the last check is.
    pub(super) must_look: Cell<bool>,
    pub(super) kernel_events: KernelEvents,
    /// Number of calls on sockets that the running task may make before it must let others run.
    pub(crate) call_budget: Cell<u32>,
    /// A buffer for callers without initialised memory, and for gathering small writes. Taken while in use.
    pub(crate) buffer: Cell<Vec<u8>>,
    /// The time in which the thread could not run.
    pub(crate) run_time: RefCell<RunTime>,
    pub(crate) counts: TurnCounts,
    pub(crate) pacing: PacingCounts,
    /// The paced streams whose next piece waits to be released. They belong to the runtime, as those that wait for an
    /// event do.
    pub(crate) unreleased: RefCell<Slab<Rc<dyn Transmit>>>,
    pub(crate) each_turn: RefCell<Vec<Rc<dyn EachTurn>>>,
    /// Whether `before_wait` of [`each_turn`](Self::each_turn) was called without a following `after_wait`.
    pub(super) is_waiting: Cell<bool>,
    /// The start of a wait of the loop around this one; `None` while there is none.
    pub(super) outer_wait: Cell<Option<Instant>>,
    /// Memory for the events of a turn. Taken while in use.
    pub(super) turn_buffers: Cell<TurnBuffers>,
    /// Whether the runtime's sockets are in memory.
    #[cfg(feature = "memory-net")]
    pub(crate) is_in_memory: bool,
    /// State shared by the sockets of this runtime, of a type that only the `net` module knows.
    pub(crate) common: OnceCell<Box<dyn Any>>,
    /// Otherwise the kernel may end waits up to 50 us late.
    _slack: MinimalSlack,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
    /// The id of the current runtime's mailbox, or 0 outside a runtime. Cheaper to read than `CURRENT`.
    static CURRENT_ID: Cell<u64> = const { Cell::new(0) };
    /// The runtime that the thread has, also while it is not inside it. A thread has at most one.
    static OWN: RefCell<Weak<Inner>> = const { RefCell::new(Weak::new()) };
}

impl Inner {
    /// Creates the runtime of this thread.
    pub(crate) fn new(builder: &Builder) -> io::Result<Rc<Self>> {
        // A runtime that is itself in a variable of the thread ends before those that were used first.
        CURRENT.with_borrow(|_| ());
        OWN.with_borrow(|_| ());
        let runtime = Rc::new(Self::build(builder)?);
        OWN.set(Rc::downgrade(&runtime));
        Ok(runtime)
    }

    fn build(builder: &Builder) -> io::Result<Self> {
        let clock = ThreadClock::new();
        let mut poller = match builder.events {
            Some(mechanism) => Poller::with_mechanism(mechanism)?,
            None => Poller::new()?,
        };
        if builder.busy_poll != BusyPoll::OFF {
            poller.set_busy_poll(builder.busy_poll).map_err(|error| {
                let mechanism = poller.mechanism();
                io::Error::new(
                    error.kind(),
                    format!("{mechanism} cannot busy-poll network devices: {error}; epoll and io_uring can, on Linux 6.9 or later"),
                )
            })?;
        }
        let wakeup = Wakeup::new(&mut poller)?;
        let far_timer = FarTimer::new(&mut poller)?;
        let ahead_timer = match builder.has_regular_waits {
            true => AheadTimer::new()?,
            false => None,
        };
        let alarms = Alarms::new(&clock).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::Error::new(error.kind(), ONE_A_THREAD),
            _ => error,
        })?;
        let timers = SoftTimers::new(clock.now(), alarms.longest_backup());
        let run_time = RunTime::new(clock.now(), cpu_time_ns());
        let kernel_events = KernelEvents::new(builder.signalling, clock.now());
        Ok(Self {
            clock,
            timers: RefCell::new(timers),
            firing: Cell::new(false),
            wakes_are_due: Cell::new(false),
            alarms,
            ready: RefCell::default(),
            running: Cell::default(),
            gives_way: Cell::default(),
            active: RefCell::default(),
            deferred: RefCell::default(),
            turn_end: RefCell::default(),
            sources: RefCell::new(Sources::new()),
            poller: RefCell::new(poller),
            mailbox: Arc::new(Mailbox::new(wakeup.clone())),
            wakeup,
            idle: RefCell::new(IdleRule::new(builder.spin_cap)),
            spinning: Cell::new(false),
            far_timer: RefCell::new(far_timer),
            ahead_timer: ahead_timer.map(RefCell::new),
            timeouts: Timeouts::new(),
            looked: Cell::new(Instant::ORIGIN),
            may_have_left: Cell::default(),
            must_look: Cell::default(),
            kernel_events,
            call_budget: Cell::new(CALLS_PER_POLL),
            buffer: Cell::default(),
            run_time: RefCell::new(run_time),
            counts: TurnCounts::default(),
            pacing: PacingCounts::default(),
            unreleased: RefCell::default(),
            each_turn: RefCell::default(),
            is_waiting: Cell::default(),
            outer_wait: Cell::default(),
            turn_buffers: Cell::default(),
            #[cfg(feature = "memory-net")]
            is_in_memory: builder.is_in_memory,
            common: OnceCell::new(),
            _slack: MinimalSlack::of_this_thread(),
        })
    }

    /// Makes `self` the thread's current runtime until the guard is dropped.
    ///
    /// # Panics
    /// If the thread is already inside a runtime.
    pub(crate) fn enter(self: &Rc<Self>) -> EnterGuard {
        CURRENT.with_borrow_mut(|current| {
            assert!(
                current.is_none(),
                "a runtime is already running on this thread"
            );
            *current = Some(self.clone());
        });
        CURRENT_ID.set(self.mailbox.id());
        EnterGuard
    }

    /// Calls `f` with the thread's current runtime.
    ///
    /// # Panics
    /// If called outside a runtime.
    pub(crate) fn with_current<R>(f: impl FnOnce(&Rc<Self>) -> R) -> R {
        CURRENT.with_borrow(|current| f(current.as_ref().expect(OUTSIDE)))
    }

    /// Returns the thread's current runtime, or an error outside a runtime.
    pub(crate) fn current() -> io::Result<Rc<Self>> {
        CURRENT
            .with_borrow(Clone::clone)
            .ok_or_else(|| io::Error::other(OUTSIDE))
    }

    /// Calls `f` with the thread's current runtime if it has this id.
    pub(crate) fn with_id<R>(id: u64, f: impl FnOnce(&Rc<Self>) -> R) -> Option<R> {
        if CURRENT_ID.get() != id {
            return None;
        }
        CURRENT.with_borrow(|current| current.as_ref().map(f))
    }

    /// Calls `f` with the runtime that the thread has, if it has this id; also outside of it, as in the code of a loop
    /// around it.
    pub(crate) fn with_own<R>(id: u64, f: impl FnOnce(&Rc<Self>) -> R) -> Option<R> {
        if CURRENT_ID.get() == id {
            return Self::with_id(id, f);
        }
        let own = Self::own()?;
        (own.mailbox.id() == id).then(|| f(&own))
    }

    /// The runtime that the thread has, also while it is not inside it.
    pub(crate) fn own() -> Option<Rc<Self>> {
        OWN.try_with(|own| own.borrow().upgrade()).ok()?
    }

    /// Passes a trigger state: fires events that are due.
    #[inline]
    pub(crate) fn trigger(&self, state: TriggerState) {
        // A handler made a call: its trigger state must not run handlers recursively.
        if self.firing.get() {
            return;
        }
        let now = self.clock.now();
        let before = self.alarms.on_trigger(now);
        let due = self.timers.borrow_mut().check_after(before, state, now);
        if due.is_some() || self.alarms.next_due() <= now {
            self.fire(state, now, due);
        }
    }

    /// Fires up to [`EVENTS_PER_TRIGGER`] due events, leaving others to the next trigger state.
    #[inline(never)]
    fn fire(&self, state: TriggerState, now: Instant, first: Option<Due<PendingEvent>>) {
        self.firing.set(true);
        // Resets the flags even if a handler panics.
        let _guard = Firing(self);
        if self.alarms.run_due(now, EVENTS_PER_TRIGGER) > 0 {
            self.alarms.arm_if_needed(now);
        }
        // Alarm-safe handlers ran first, since they may have a deadline.
        self.deliver_due(state, now, first);
        // The backup timer must see the events that are still pending, not those just fired.
        let plain = self.timers.borrow().next_due();
        self.alarms
            .set_plain_next_due(plain.unwrap_or(Instant::FAR_FUTURE));
    }

    #[inline]
    fn deliver_due(&self, state: TriggerState, now: Instant, first: Option<Due<PendingEvent>>) {
        let mut next = first;
        for _ in 1..EVENTS_PER_TRIGGER {
            let Some(due) = next else { return };
            self.deliver(due, now);
            next = self.timers.borrow_mut().next_overdue(state, now);
        }
        if let Some(due) = next {
            self.deliver(due, now);
        }
    }

    /// Returns the earliest time at which a check may have work to do.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let alarm = self.alarms.next_due();
        match self.timers.borrow().next_due() {
            Some(due) => Some(due.min(alarm)),
            None => (alarm != Instant::FAR_FUTURE).then_some(alarm),
        }
    }

    /// Returns whether an idle thread must be on time for some pending event.
    pub(crate) fn has_exact_event(&self) -> bool {
        self.alarms.next_due() != Instant::FAR_FUTURE || self.timers.borrow().has_exact()
    }

    /// Queues a woken task: ahead of others if its own time has come, such as the end of its sleep. A task that a
    /// handler wakes, such as a reader of a device, is ordinary work.
    pub(crate) fn on_woken(&self, task: Runnable) {
        let mut ready = self.ready.borrow_mut();
        if self.wakes_are_due.get() {
            ready.push_due(task);
        } else if self.gives_way.get() == Some(*task.metadata()) {
            ready.push_late(task);
        } else {
            ready.push(task);
        }
    }

    /// Takes one call from the running task's allowance. Returns false if none is left, and the task must let the
    /// others run first.
    pub(crate) fn take_call(&self) -> bool {
        let left = self.call_budget.get();
        self.call_budget.set(left.saturating_sub(1));
        left > 0
    }

    /// Takes one call from the allowance for an operation that is ready without a call, or else has the task run
    /// again after the others. Without this, a loop over a future that is always ready would starve all other tasks.
    pub(crate) fn poll_allowance(&self, cx: &Context<'_>) -> Poll<()> {
        match self.take_call() {
            true => Poll::Ready(()),
            false => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Charges the bytes that a call has moved to the same allowance, since copying them takes time, too.
    pub(crate) fn take_bytes(&self, bytes: usize) {
        let calls = u32::try_from(bytes / BYTES_PER_CALL).unwrap_or(u32::MAX);
        self.call_budget
            .set(self.call_budget.get().saturating_sub(calls));
    }
}

/// Like [`Inner::poll_allowance`], for the current runtime. Ready at once outside a runtime.
pub(crate) async fn allowance() {
    poll_fn(|cx| match is_entered() {
        true => Inner::with_current(|runtime| runtime.poll_allowance(cx)),
        false => Poll::Ready(()),
    })
    .await;
}

/// Returns whether this thread is inside a runtime.
pub(crate) fn is_entered() -> bool {
    CURRENT_ID.get() != 0
}

pub(crate) struct EnterGuard;

impl Drop for EnterGuard {
    fn drop(&mut self) {
        CURRENT_ID.set(0);
        // Dropped outside the borrow, since the destructor may use the current runtime.
        let _inner = CURRENT.take();
    }
}

struct Firing<'a>(&'a Inner);

impl Drop for Firing<'_> {
    fn drop(&mut self) {
        self.0.firing.set(false);
        self.0.wakes_are_due.set(false);
    }
}

const ONE_A_THREAD: &str = "this thread already has a softclock runtime";

const OUTSIDE: &str =
    "outside a softclock runtime: call this from within Runtime::block_on, on its thread";

/// Most events fired at one trigger state, so that many due events do not delay a socket call for long.
const EVENTS_PER_TRIGGER: usize = 32;

/// Most socket calls that a task may make in one poll.
pub(crate) const CALLS_PER_POLL: u32 = 128;

/// Bytes that count as one call: 256 KiB per poll in total, about 50 us of copying.
const BYTES_PER_CALL: usize = 2048;
