//! Readiness: which descriptors can be read or written, as the kernel reports it.
//!
//! [`Poller`] waits by one of four mechanisms, each in a file of its own: `io_uring`, `epoll`, and, to compare with,
//! `poll` and `select`. All keep this contract:
//!
//! - A descriptor is added once, for everything: reading, writing, closing by the peer, errors. Its [`Token`] comes
//!   back with every event. Adding a descriptor that is ready produces an event.
//! - Events are edges: after one, the next comes only when something has happened since. Who gets one must read (or
//!   write) until EAGAIN or a short count and then say so by [`Poller::rearm`], or remember that there is more. An
//!   event may be spurious. So may be its end: the same state may be reported again after a `rearm`.
//! - What happens to one descriptor between two waits may arrive as one event. Events of one wait are in no order.
//! - A wait delivers at most [`BATCH`] events; the others stay in the kernel for the next wait.
//! - [`Timeout::Now`] never blocks. [`Timeout::After`] never returns empty-handed too early by the kernel's clock, but
//!   for a signal: a wait that a signal interrupts, a stop of the process included, returns no events at once,
//!   whether or not some are ready: the caller checks its timers, and waits again with [`Timeout::Now`] before it
//!   concludes that nothing has arrived.
//! - Removing a descriptor ends its events for later waits. Events of the wait in hand may still name it: tokens should
//!   carry a generation. Before a descriptor is closed it is removed, by [`Poller::remove_closing`] if it has no
//!   duplicates: io_uring would keep its file open.
//! - A mechanism that does not work here says so when the poller is made.

mod armed;
mod epoll;
mod io_uring;
mod mechanism;
mod poll;
mod poll_bits;
mod poller;
mod registrations;
mod select;
mod state;
mod wait_timer;
mod wakeup;

use std::time::Duration;

pub(crate) use io_uring::IoUring;
pub use mechanism::{Mechanism, UnknownMechanism};
pub use poller::Poller;
pub use softclock_core::Readiness;
pub use state::current_state;
pub use wait_timer::WaitTimer;
pub use wakeup::Wakeup;

/// What an event's descriptor was registered as. The meaning is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

impl Token {
    /// Reserved for a poller's [`Wakeup`].
    pub const WAKEUP: Self = Self(u64::MAX);
    /// Reserved for a poller's [`WaitTimer`].
    pub const TIMER: Self = Self(u64::MAX - 1);
}

/// A change of a descriptor's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyEvent {
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

impl Timeout {
    /// As the kernel takes it, which for ever is nothing.
    fn timespec(self) -> Option<libc::timespec> {
        match self {
            Self::Now => Some(timespec(Duration::ZERO)),
            Self::After(time) => Some(timespec(time)),
            Self::Never => None,
        }
    }
}

fn timespec(time: Duration) -> libc::timespec {
    let time = time.min(LONGEST);
    libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// The kernel takes 63 bits of nanoseconds; a century is for ever.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The most events that one wait delivers.
pub const BATCH: usize = 64;
