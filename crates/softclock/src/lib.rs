//! softclock is an async runtime for Linux network servers whose timers are exact to microseconds and cost
//! nanoseconds.
//!
//! A busy server returns from a system call or finishes a task every few microseconds. softclock calls such a moment
//! a *trigger state*: at each of them the runtime compares the clock with the time of the earliest pending event, and
//! runs the event if it is due. The check costs a few nanoseconds. A signal for each event would interrupt the server
//! instead and cost microseconds, which at an event every 20 us is most of its throughput (see `docs/measurements` in
//! the repository). The technique is that of *Soft Timers* (Aron and Druschel, TOCS 2000).
//!
//! This pays off for a server that sends packets at an even rate ([`net::Pacing`]), for timeouts and retries far
//! below a millisecond, and for periodic work beside a saturated loop.
//!
//! # Example
//! A server that answers each message 50 us after it arrived, and a client:
//! ```
//! use softclock::net::{TcpListener, TcpStream};
//! use std::time::Duration;
//!
//! # fn main() -> std::io::Result<()> {
//! softclock::Runtime::new()?.block_on(async {
//!     let listener = TcpListener::bind(([127, 0, 0, 1], 0))?;
//!     let address = listener.local_addr()?;
//!     softclock::spawn_local(async move {
//!         let (stream, _) = listener.accept().await?;
//!         let mut buffer = [0; 1024];
//!         let length = stream.read(&mut buffer).await?;
//!         softclock::sleep(Duration::from_micros(50)).await;
//!         stream.write_all(&buffer[..length]).await
//!     });
//!
//!     let stream = TcpStream::connect(address).await?;
//!     stream.write_all(b"hello").await?;
//!     let mut answer = [0; 5];
//!     stream.read_exact(&mut answer).await?;
//!     assert_eq!(&answer, b"hello");
//!     std::io::Result::Ok(())
//! })
//! # }
//! ```
//!
//! # Overview
//! - [`Runtime`] and [`Builder`]: the event loop of one thread; [`spawn_local`] starts a task on it, and a [`JoinSet`]
//!   holds many.
//! - [`sleep`], [`timeout`] and [`interval`]: timers for tasks ([`time`]).
//! - [`schedule_soft_event`]: a function to be called at a trigger state, without waking a task.
//! - [`net`]: TCP, UDP and Unix sockets. [`net::Pacing`] spreads the bytes of a stream evenly over time.
//! - [`Remote`]: runs a closure or a task on a runtime from another thread. [`spawn_blocking`](fn@spawn_blocking) does
//!   the reverse: it runs a call that blocks on a helper thread.
//! - [`fs`]: reads files without blocking the loop; [`output`] writes files, pipes and terminals off the loop.
//! - [`signal`] and [`Descriptor`]: signals and other descriptors as events of the loop.
//! - [`events`]: explicit event delivery for a thread that has its own loop and needs no runtime.
//! - [`embed`]: soft timers for such a thread, by any mechanism.
//! - [`alarm`]: handlers with a guaranteed bound on their lateness, which may run inside a signal handler.
//! - [`statistics`]: counts of trigger states and histograms of lateness, to see how well timers do in your program.
//!
//! The operations of the paper are [`measure_resolution`], [`measure_time`], [`schedule_soft_event`] and
//! [`interrupt_clock_resolution`].
//!
//! # Threads
//! A runtime runs on the thread that created it, and so do its tasks and sockets; they are not `Send`. A server for
//! several processors starts one thread with one runtime per processor, whose listeners share a port
//! ([`net::ListenOptions`]). The example program `threads.rs` shows this.
//!
//! # Outside a runtime
//! A thread is inside a runtime while it runs [`Runtime::block_on`] or [`Runtime::turn`]; elsewhere, [`try_remote`]
//! returns `None`. One rule holds for calls that need a runtime and are made elsewhere: those that can return an
//! [`io::Error`](std::io::Error) do so, all others panic, and the message is the same. Futures that are polled
//! elsewhere follow it, too. [`yield_now`], [`spawn_blocking`](fn@spawn_blocking), [`net::lookup_host`], [`fs`],
//! [`output`], [`events`] and the handles of tasks need no runtime and work on any executor.
//!
//! # Panics and ends of tasks
//! A task that panics ends alone: its [`JoinHandle`] continues the panic or returns it as a [`JoinError`], as
//! [`JoinSet`] and [`RemoteHandle`] do. A panic in the future of `block_on`, in a closure that was
//! [posted](Remote::post) or deferred, and in the handler of a soft event comes out of `block_on`.
//!
//! Dropping a future gives up its wait, as [`timeout`] and `select!` do. Each async function states the loss under
//! *Cancel safety*. Tasks are not dropped with their handles: they are
//! [aborted](JoinHandle::abort_handle), or belong to a [`JoinSet`].
//!
//! # Other crates
//! Channels, locks and `select!` are those of tokio, futures and others: they need no support by the runtime.
//! [docs/interoperability.md][interoperability] lists the crates that work unchanged, those that do not, and their
//! replacements.
//!
//! [interoperability]: https://github.com/softclock/softclock/blob/main/docs/interoperability.md
//!
//! # How late events are
//! Events never fire early. In a busy thread they fire at the next trigger state, usually some microseconds late. An
//! idle thread blocks until shortly before the next event and spins for the rest, up to 5 % of its time
//! ([`Builder::spin_cap`]).
//!
//! There is no upper bound in general. In the kernel, a timer interrupt limits the lateness of events, but a process
//! cannot interrupt itself to run arbitrary code, which may have been interrupted inside the memory allocator. A
//! computation of many microseconds therefore delays events, unless it calls [`trigger`] now and then. Only handlers
//! that are safe to run in a signal handler ([`AlarmSafe`]) have a bound, enforced by the backup timer and by
//! deadlines: see [`schedule_alarm_safe`].
//!
//! # Features
//! - `futures-io`: implements the traits of the crate `futures-io` for streams.
//! - `hyper`: implements the `rt` traits of the crate `hyper` for streams, timers and the executor.
//! - `tokio-io`: implements `AsyncRead` and `AsyncWrite` of the crate `tokio` for streams.
#![forbid(unsafe_code)]

pub mod alarm;
mod blocking;
mod descriptor;
pub mod embed;
pub mod events;
pub mod fs;
#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
pub mod hyper;
pub mod net;
pub mod runtime;
pub mod signal;
pub mod signalling;
pub mod time;
#[cfg(feature = "tokio-io")]
mod tokio_io;

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

pub use alarm::{AlarmId, AlarmSafe, TableFull};
pub use blocking::spawn_blocking;
pub use descriptor::{Descriptor, Direction, Transfer};
pub use runtime::{
    AbortHandle, Builder, EventContext, GiveWay, JoinError, JoinHandle, JoinSet, Mechanism,
    PostError, Remote, RemoteHandle, Runtime, SoftEvent, Statistics, UnknownMechanism, remote,
    try_remote,
};
pub use softclock_core::units::UnitError;
pub use softclock_core::{FireWindow, Histogram, Instant, Rate, TriggerState, TriggerTrace};
pub use softclock_linux::busy_poll::BusyPoll;
pub use softclock_linux::output;
pub use time::{Elapsed, Interval, Sleep, Timeout, interval, sleep, sleep_until, timeout};

use runtime::inner::Inner;
use runtime::soft_events::RESOLUTION_HZ;
use softclock_core::Clock;

/// Starts a task on this thread. It first runs after the running task has returned or waits.
///
/// Dropping the handle does not end the task: see [`JoinHandle::abort`] and [`JoinSet`]. A panic ends the task only,
/// and continues where the handle is awaited.
///
/// # Example
/// ```
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let task = softclock::spawn_local(async { 6 * 7 });
///     assert_eq!(task.await, 42);
/// });
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// If called outside a runtime.
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    Inner::with_current(|runtime| runtime.spawn(future))
}

/// Lets other ready tasks run before this one continues. Works on any executor, also outside a runtime.
///
/// # Cancel safety
/// If the future is dropped, nothing is lost.
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

/// Returns the time of the runtime's clock, which is CLOCK_MONOTONIC. It costs no system call where the processor's
/// time stamp counter is reliable.
///
/// # Panics
/// If called outside a runtime.
pub fn now() -> Instant {
    Inner::with_current(|runtime| runtime.clock.now())
}

/// Passes a trigger state: runs events that are due.
///
/// Call this in computations that make no call of this crate for longer than events may be late. Costs a reading of
/// the clock and some 10 ns if no event is due.
///
/// # Panics
/// If called outside a runtime.
pub fn trigger() {
    Inner::with_current(|runtime| runtime.trigger(TriggerState::Application));
}

/// Calls `call`, which should make a system call, and then passes a trigger state.
///
/// # Panics
/// If called outside a runtime.
pub fn system_call<R>(call: impl FnOnce() -> R) -> R {
    let result = call();
    Inner::with_current(|runtime| runtime.trigger(TriggerState::SystemCall));
    result
}

/// Returns the resolution of the measurement clock in Hz: 1 000 000, since a tick is a microsecond (*Soft Timers*,
/// section 3).
pub const fn measure_resolution() -> u64 {
    RESOLUTION_HZ
}

/// Returns the current time in ticks of the measurement clock (*Soft Timers*, section 3).
///
/// # Panics
/// If called outside a runtime.
pub fn measure_time() -> u64 {
    now().tick()
}

/// Schedules `handler` to be called at the first trigger state more than `ticks` ticks (microseconds) from now (*Soft
/// Timers*, section 3).
///
/// The handler may run inside a call of a task: see [`EventContext`] for the operations that it may use. Scheduling
/// costs an allocation; a handler that reschedules itself allocates nothing.
///
/// # Example
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let count = Rc::new(Cell::new(0));
///     let counted = count.clone();
///     softclock::schedule_soft_event(100, move |context| {
///         counted.set(counted.get() + 1);
///         if counted.get() < 3 {
///             context.reschedule(100); // again in 100 us
///         }
///     });
///     while count.get() < 3 {
///         softclock::sleep(Duration::from_micros(100)).await;
///     }
/// });
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// If called outside a runtime.
pub fn schedule_soft_event(
    ticks: u64,
    handler: impl FnMut(&mut EventContext<'_>) + 'static,
) -> SoftEvent {
    schedule_within(FireWindow::from(after_ticks(ticks)), handler)
}

/// Like [`schedule_soft_event`], with the delay as a [`Duration`].
///
/// # Panics
/// If called outside a runtime.
pub fn schedule_after(
    delay: Duration,
    handler: impl FnMut(&mut EventContext<'_>) + 'static,
) -> SoftEvent {
    schedule_within(FireWindow::from(now() + delay), handler)
}

/// Like [`schedule_soft_event`], from `window.earliest` on. For handlers with a deadline, see
/// [`schedule_alarm_safe`].
///
/// # Panics
/// If called outside a runtime.
pub fn schedule_within(
    window: FireWindow,
    handler: impl FnMut(&mut EventContext<'_>) + 'static,
) -> SoftEvent {
    Inner::with_current(|runtime| runtime.schedule_handler(window, Box::new(handler)))
}

/// Schedules `handler` to be called every `period`, counted from its preceding call and at least 1 us, at a trigger
/// state or by an alarm. The call is at most `deadline` late, or without a deadline, it is made by the backup timer
/// at the latest (*Soft Timers*, section 5.9).
///
/// # Errors
/// [`TableFull`] if the thread's table of such handlers is full.
///
/// # Panics
/// If called outside a runtime.
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

/// Cancels a handler scheduled by [`schedule_alarm_safe`].
///
/// # Panics
/// If called outside a runtime.
pub fn cancel_alarm_safe(id: AlarmId) {
    Inner::with_current(|runtime| runtime.alarms.unregister(id));
}

/// Sets the longest period of the backup timer, initially 32 ms. `None` turns the timer off, and with it the bound on
/// the lateness of alarm-safe handlers without a deadline; this serves to measure its cost. Makes a system call.
///
/// # Panics
/// If called outside a runtime.
pub fn set_backup(longest: Option<Duration>) {
    Inner::with_current(|runtime| {
        runtime.alarms.set_backup(longest);
        let period = runtime.alarms.longest_backup();
        runtime.timers.borrow_mut().set_backup_period(period);
    });
}

/// Returns the lowest frequency of the backup timer in Hz (*Soft Timers*, section 3), which is the expected minimal
/// resolution of the events that it bounds.
///
/// It is the reciprocal of the timer's longest period plus a tick, in the running time of the thread. The result is 1
/// if the period is longer than a second or the timer is off.
///
/// # Panics
/// If called outside a runtime.
pub fn interrupt_clock_resolution() -> u64 {
    let period = Inner::with_current(|runtime| runtime.alarms.longest_backup());
    u64::try_from(1_000_000_000 / period.as_nanos().max(1))
        .unwrap_or(u64::MAX)
        .max(1)
}

/// Returns all counts and histograms of this thread's runtime. Copies about 100 KB.
///
/// # Panics
/// If called outside a runtime.
pub fn statistics() -> Statistics {
    Inner::with_current(|runtime| runtime.statistics())
}

/// Starts to record the latest `capacity` trigger states, 8 bytes each, for [`take_trigger_trace`]. While recording,
/// a trigger state costs about 2 ns more.
///
/// # Panics
/// If called outside a runtime.
pub fn trace_triggers(capacity: usize) {
    let trace = TriggerTrace::new(capacity);
    Inner::with_current(|runtime| runtime.timers.borrow_mut().set_trace(Some(trace)));
}

/// Returns whether the trace started by [`trace_triggers`] holds as many trigger states as its capacity.
///
/// # Panics
/// If called outside a runtime.
pub fn is_trigger_trace_full() -> bool {
    Inner::with_current(|runtime| {
        let timers = runtime.timers.borrow();
        timers.trace().is_some_and(TriggerTrace::is_full)
    })
}

/// Stops the recording and returns the trace, or `None` if [`trace_triggers`] was not called.
///
/// # Panics
/// If called outside a runtime.
pub fn take_trigger_trace() -> Option<TriggerTrace> {
    Inner::with_current(|runtime| runtime.timers.borrow_mut().set_trace(None))
}

fn after_ticks(ticks: u64) -> Instant {
    let ns = ticks.saturating_mul(1_000_000_000 / RESOLUTION_HZ);
    now().add_ns(ns)
}

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
pub struct Readme;

#[doc = include_str!("../../../README.md")]
#[cfg(doctest)]
pub struct ProjectReadme;
