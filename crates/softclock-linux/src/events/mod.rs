//! Readiness: which descriptors can be read or written, as the kernel reports it.
//!
//! epoll is the only mechanism so far; io_uring's multishot poll, `poll` and `select` are to stand beside it, one file
//! each, all under this contract:
//!
//! - A descriptor is added once, for everything: reading, writing, closing by the peer, errors. Its [`Token`] comes
//!   back with every event. Adding a descriptor that is ready produces an event.
//! - Events are edges: after one, the next comes only when something has happened since. Who gets one must read (or
//!   write) until EAGAIN or a short count, or remember that there is more. An event may be spurious.
//! - What happens to one descriptor between two waits may arrive as one event. Events of one wait are in no order.
//! - A wait delivers at most [`BATCH`] events; the others stay in the kernel for the next wait.
//! - [`Timeout::Now`] never blocks. [`Timeout::After`] never returns empty-handed too early by the kernel's clock, but
//!   for a signal: a wait that a signal interrupts returns no events at once, and the caller looks at its timers.
//! - Removing a descriptor ends its events for later waits. Closing the last duplicate of a descriptor removes it.
//!   Events of the wait in hand may still name it: tokens should carry a generation.

mod epoll;
mod state;
mod wakeup;

use std::time::Duration;

pub use epoll::Poller;
pub use softclock_core::Readiness;
pub use state::current_state;
pub use wakeup::Wakeup;

/// What an event's descriptor was registered as. The meaning is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

impl Token {
    /// Reserved for a poller's [`Wakeup`].
    pub const WAKEUP: Self = Self(u64::MAX);
}

/// A change of a descriptor's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// As given when the descriptor was added.
    pub token: Token,
    /// The state as the kernel saw it.
    pub readiness: Readiness,
}

/// How long a wait may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Not at all.
    Now,
    /// For this long, to the nanosecond where the kernel can (5.11), else rounded up to a millisecond. The kernel adds
    /// its [timer slack](crate::clock::set_timer_slack_ns).
    After(Duration),
    /// Until something happens.
    Never,
}

/// The most events that one wait delivers.
pub const BATCH: usize = 64;
