//! softclock: a network I/O runtime for Linux servers in which time is software.
//!
//! Timers fire at *trigger states*: moments at which the program is awake anyway, such as the end of a system
//! call that the runtime makes. A check there costs a few nanoseconds, so timers of ten microseconds cost a busy
//! server next to nothing, where a signal or a timer descriptor for each would stop it (Aron, Druschel: *Soft
//! Timers*, TOCS 2000).
//!
//! - [`runtime`]: one [`Runtime`] a thread: its loop, tasks, soft events, mailbox.
//! - [`time`]: [`sleep`], [`timeout`], [`interval`] with microsecond precision.
//! - [`net`]: TCP and UDP sockets, each call of which is a trigger state.
//! - [`signal`]: signals as events of the loop.
//! - [`events`]: `declare_interest` and `get_next_event`, for a thread that owns its loop and needs no runtime.
//! - [`alarm`]: handlers that a signal may call, and so with a bound on their lateness.
//! - [`output`]: files, pipes and terminals written to without waiting, off the loop.
//! - [`Descriptor`]: other descriptors as events of the loop.
//! - [`spawn_blocking`](fn@spawn_blocking): helper threads for calls that wait.
//!
//! The paper's operations are [`measure_resolution`], [`measure_time`], [`schedule_soft_event`] and
//! [`interrupt_clock_resolution`].
//!
//! # What bounds the lateness of an event
//! In the kernel, a timer interrupt bounds it. A process cannot interrupt itself to run just any code: the
//! interruption may land inside the allocator. So events and sleeping tasks fire at the next trigger state: code that
//! computes for long calls [`trigger`]. Only handlers that promised to be safe there
//! ([`AlarmSafe`]) are bounded by the backup timer and by deadlines: see [`schedule_alarm_safe`].
//!
//! # Example
//! ```
//! use std::time::Duration;
//!
//! # fn main() -> std::io::Result<()> {
//! softclock::Runtime::new()?.block_on(async {
//!     let task = softclock::spawn_local(async {
//!         softclock::sleep(Duration::from_micros(50)).await;
//!         "50 us later"
//!     });
//!     assert_eq!(task.await, "50 us later");
//! });
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod alarm;
mod blocking;
mod descriptor;
pub mod events;
pub mod fs;
#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
pub mod hyper;
pub mod net;
pub mod runtime;
pub mod signal;
pub mod time;

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

pub use alarm::{AlarmId, AlarmSafe, TableFull};
pub use blocking::spawn_blocking;
pub use descriptor::Descriptor;
pub use runtime::{
    Builder, EventContext, GiveWay, JoinHandle, Mechanism, PostError, Remote, Runtime, SoftEvent,
    Statistics, UnknownMechanism,
};
pub use softclock_core::{FireWindow, Histogram, Instant, Rate, TriggerState, TriggerTrace};
pub use softclock_linux::output;
pub use time::{Elapsed, Interval, Sleep, Timeout, interval, sleep, sleep_until, timeout};

use runtime::inner::Inner;
use runtime::soft_events::RESOLUTION_HZ;
use softclock_core::Clock;

/// Starts a task on this thread. It runs when the running one has returned.
///
/// # Panics
/// Outside a runtime.
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    Inner::with_current(|runtime| runtime.spawn(future))
}

/// Lets the other ready tasks run.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The time by the runtime's clock: CLOCK_MONOTONIC, at the cost of reading a register where that can be trusted.
///
/// # Panics
/// Outside a runtime.
pub fn now() -> Instant {
    Inner::with_current(|runtime| runtime.clock.now())
}

/// A trigger state of the application's own: fires what is due. For computations that make no call of ours for
/// longer than events may be late. Costs a reading of the clock, some 10 ns, and a few ns more when nothing is due.
///
/// # Panics
/// Outside a runtime.
pub fn trigger() {
    Inner::with_current(|runtime| runtime.trigger(TriggerState::Application));
}

/// Makes a system call, or anything else that is worth one, and passes a trigger state.
///
/// # Panics
/// Outside a runtime.
pub fn system_call<R>(call: impl FnOnce() -> R) -> R {
    let result = call();
    Inner::with_current(|runtime| runtime.trigger(TriggerState::SystemCall));
    result
}

/// The resolution of the measurement clock, in Hz: a tick is a microsecond (*Soft Timers*, section 3).
pub const fn measure_resolution() -> u64 {
    RESOLUTION_HZ
}

/// The current time in ticks of the measurement clock (*Soft Timers*, section 3).
///
/// # Panics
/// Outside a runtime.
pub fn measure_time() -> u64 {
    now().tick()
}

/// Calls `handler` at the first trigger state more than `ticks` ticks from now (*Soft Timers*, section 3). See
/// [`EventContext`] for what it may do. Costs an allocation; a recurring event reschedules itself for free.
///
/// # Panics
/// Outside a runtime.
pub fn schedule_soft_event(
    ticks: u64,
    handler: impl FnMut(&mut EventContext<'_>) + 'static,
) -> SoftEvent {
    schedule_within(FireWindow::from(after_ticks(ticks)), handler)
}

/// As [`schedule_soft_event`], in everyday units.
///
/// # Panics
/// Outside a runtime.
pub fn schedule_after(
    delay: Duration,
    handler: impl FnMut(&mut EventContext<'_>) + 'static,
) -> SoftEvent {
    schedule_within(FireWindow::from(now() + delay), handler)
}

/// As [`schedule_soft_event`], from `window.earliest` on. For handlers with a deadline, see [`schedule_alarm_safe`].
///
/// # Panics
/// Outside a runtime.
pub fn schedule_within(
    window: FireWindow,
    handler: impl FnMut(&mut EventContext<'_>) + 'static,
) -> SoftEvent {
    Inner::with_current(|runtime| runtime.schedule_handler(window, Box::new(handler)))
}

/// Calls `handler` every `period` (at least 1 us after the call before), at a trigger state, or by an alarm: at the
/// latest `deadline` after it was due if there is one, else at the backup timer (*Soft Timers*, section 5.9).
///
/// # Errors
/// When the thread's table of such handlers is full.
///
/// # Panics
/// Outside a runtime.
pub fn schedule_alarm_safe(
    handler: &'static dyn AlarmSafe,
    period: Duration,
    deadline: Option<Duration>,
) -> Result<AlarmId, TableFull> {
    Inner::with_current(|runtime| {
        let id = runtime.alarms.register(handler, period, deadline)?;
        runtime.alarms.arm_if_needed(runtime.clock.now());
        Ok(id)
    })
}

/// Ends what [`schedule_alarm_safe`] began.
///
/// # Panics
/// Outside a runtime.
pub fn cancel_alarm_safe(id: AlarmId) {
    Inner::with_current(|runtime| runtime.alarms.unregister(id));
}

/// Changes the longest period of the backup timer, 32 ms at first; `None` turns it off, and with it the bound of
/// alarm-safe events without a deadline. What it costs is measured so. A system call.
///
/// # Panics
/// Outside a runtime.
pub fn set_backup(longest: Option<Duration>) {
    Inner::with_current(|runtime| {
        runtime.alarms.set_backup(longest);
        let period = runtime.alarms.longest_backup();
        runtime.timers.borrow_mut().set_backup_period(period);
    });
}

/// The frequency in Hz at which the backup timer fires at least (*Soft Timers*, section 3): the expected minimal
/// resolution of events that it bounds, the reciprocal of its longest period and a tick. It counts the thread's own
/// running time. 1 where that is longer than a second or the timer is off.
///
/// # Panics
/// Outside a runtime.
pub fn interrupt_clock_resolution() -> u64 {
    let period = Inner::with_current(|runtime| runtime.alarms.longest_backup());
    u64::try_from(1_000_000_000 / period.as_nanos().max(1))
        .unwrap_or(u64::MAX)
        .max(1)
}

/// All counts and histograms of this thread's runtime. Copies about 100 KB.
///
/// # Panics
/// Outside a runtime.
pub fn statistics() -> Statistics {
    Inner::with_current(|runtime| runtime.statistics())
}

/// Records the latest `capacity` trigger states from now on, 8 bytes each, for [`take_trigger_trace`]. While it
/// does, a trigger state costs some 2 ns more.
///
/// # Panics
/// Outside a runtime.
pub fn trace_triggers(capacity: usize) {
    let trace = TriggerTrace::new(capacity);
    Inner::with_current(|runtime| runtime.timers.borrow_mut().set_trace(Some(trace)));
}

/// Whether [`trace_triggers`] has recorded as many as it has room for.
///
/// # Panics
/// Outside a runtime.
pub fn is_trigger_trace_full() -> bool {
    Inner::with_current(|runtime| {
        let timers = runtime.timers.borrow();
        timers.trace().is_some_and(TriggerTrace::is_full)
    })
}

/// Ends what [`trace_triggers`] began; `None` if nothing did.
///
/// # Panics
/// Outside a runtime.
pub fn take_trigger_trace() -> Option<TriggerTrace> {
    Inner::with_current(|runtime| runtime.timers.borrow_mut().set_trace(None))
}

fn after_ticks(ticks: u64) -> Instant {
    let ns = ticks.saturating_mul(1_000_000_000 / RESOLUTION_HZ);
    now().add_ns(ns)
}

#[doc = include_str!("../../../README.md")]
#[cfg(doctest)]
pub struct Readme;
