//! Soft timers for a thread that has its own loop: no runtime, no tasks.
//!
//! A program that has an event loop already, by epoll, mio or a GUI, adds a [`LoopTimers`] to it. The loop passes a
//! *trigger state* ([`LoopTimers::check`]) wherever it is awake anyway, such as after a system call, and takes the
//! events that are due ([`LoopTimers::next_overdue`]). A check that finds nothing due costs a reading of the clock,
//! about 10 ns, and a few ns more. Before each wait the loop asks how long it may wait
//! ([`LoopTimers::before_wait`]), and afterwards says that it has waited ([`LoopTimers::after_wait`]).
//!
//! # Example
//! A loop around the event queue of [`events`](crate::events), which sends a datagram every 100 us and receives them:
//!
//! ```
#![doc = include_str!("../../examples/timers_events.rs")]
//! ```
//!
//! The same loop with mio is the example program `timers_mio.rs`. With `epoll_wait`, whose waits a descriptor ends:
//!
//! ```
#![doc = include_str!("../../examples/timers_epoll.rs")]
//! ```
//!
//! # How long to wait
//! [`before_wait`](LoopTimers::before_wait) returns an `Option<Duration>`, the argument of `mio::Poll::poll` and
//! [`get_next_event`](crate::events::EventQueue::get_next_event). Not every wait is as exact:
//!
//! - `epoll_pwait2`, `ppoll`, `pselect` and the waits of [`events`](crate::events) take nanoseconds.
//! - `epoll_wait` and `poll` take milliseconds, and so do the waits of mio and libuv, which use them. [`timeout_ms`]
//!   rounds up, so events are up to 1 ms late. For events on time, register a [`WakeTimer`] with the loop: a
//!   descriptor that becomes readable when the wait should end.
//! - A timeout in nanoseconds may be rounded up all the same: `rustix::event::epoll::wait` calls `epoll_pwait2` only
//!   with the feature `linux_5_11` of rustix.
//!
//! If events are hundreds of microseconds late ([`statistics`](LoopTimers::statistics)), the wait is not exact.
//!
//! # Instants
//! Events and clocks take this crate's [`Instant`], in nanoseconds of CLOCK_MONOTONIC. [`LoopTimers::from_std`] and
//! [`LoopTimers::to_std`] convert from and to [`std::time::Instant`].
//!
//! # Pacing
//! [`SendQueue`] sends the data of a socket evenly. For other cases, [`RateClock`] computes when to send the packets of
//! one flow, and [`ByteClock`] those of several classes on a link. Both take the time as an argument, which
//! [`check`](LoopTimers::check) returns. A flow that sends every 100 us, and every 50 us to catch up after a late
//! event:
//!
//! ```
//! use softclock::TriggerState;
//! use softclock::embed::{LoopTimers, RateClock};
//! use softclock::FireWindow;
//! use std::time::Duration;
//!
//! let us = Duration::from_micros;
//! let mut timers = LoopTimers::new();
//! let mut flow = RateClock::new(us(100), us(50));
//! let mut sent = 0;
//! timers.schedule(FireWindow::from(flow.next_send(timers.now())), ());
//! while sent < 10 {
//!     std::thread::sleep(timers.before_wait().expect("an event is pending"));
//!     let now = timers.after_wait(false);
//!     while timers.next_overdue().is_some() {
//!         // More than one after a late event: otherwise the flow would fall behind for good.
//!         for _ in 0..flow.due(now) {
//!             sent += 1; // send a packet here
//!             flow.on_transmit(now);
//!         }
//!         timers.schedule(FireWindow::from(flow.next_send(now)), ());
//!     }
//! }
//! assert!(flow.is_in_train());
//! ```
//!
//! # Signals
//! A `LoopTimers` sends the thread no signal unless the program [asks](LoopTimers::schedule_alarm_safe) for handlers
//! that run in one. Without them, events have no upper bound on their lateness: they wait for the next check.

mod send_queue;
mod statistics;
mod timers;
mod wait;

pub use send_queue::{QueueFull, SendOptions, SendQueue};
pub use softclock_core::pacing::{
    ByteClock, ClassId, ClassOptions, ClassStatistics, Dequeued, DropReason, RateClock,
};
pub use softclock_core::{
    Due, EventCounts, FireWindow, Histogram, Instant, StateStatistics, TimerKey, TriggerState,
    TriggerStatistics,
};
pub use softclock_linux::clock::ClockSource;
pub use statistics::LoopStatistics;
pub use timers::LoopTimers;
pub use wait::{WakeTimer, timeout_ms};
