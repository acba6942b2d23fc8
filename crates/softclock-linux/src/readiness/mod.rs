//! Readiness: waits until descriptors can be read or written.
//!
//! [`Poller`] waits by one of four mechanisms, each in its own file: `io_uring`, `epoll`, and, for comparison, `poll`
//! and `select`. All of them keep this contract:
//!
//! - A descriptor is added once, for all conditions: readable, writable, closed by the peer, error. Its [`Token`] is
//!   returned with every event. Adding a descriptor that is ready produces an event.
//! - Events are edges: a second event for a descriptor comes only after something new has happened to it. The receiver
//!   of an event must read (or write) until EAGAIN or a short count and then call [`Poller::rearm`], or remember that
//!   there is more. Events may be spurious, and a state may be reported once more after a `rearm`.
//! - Several changes of one descriptor between two waits may arrive as one event. The events of one wait have no order.
//! - A wait returns at most [`BATCH`] events; the others stay in the kernel for the next wait.
//! - [`Timeout::Now`] never blocks. [`Timeout::After`] never returns without an event before the time has passed by the
//!   kernel's clock, unless a signal interrupts the wait, or stops and continues the process. An interrupted wait
//!   returns no events at once, even if some are ready. So the caller checks its timers, and waits again with
//!   [`Timeout::Now`] before it concludes that nothing has arrived.
//! - After a descriptor is removed, later waits return no events for it. Events that the last wait returned may still
//!   carry its token, so tokens should contain a generation. A descriptor must be removed before it is closed, because
//!   io_uring would keep its file open; [`Poller::remove_closing`] is the cheap way if it has no duplicates.
//! - If a mechanism does not work on this machine, creating the poller fails, not the first wait.

mod ahead_timer;
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
mod timerfd;
mod wait_timer;
mod wakeup;

use std::time::Duration;

pub use ahead_timer::AheadTimer;
pub(crate) use io_uring::IoUring;
pub use mechanism::{Mechanism, UnknownMechanism};
pub use poller::Poller;
pub use softclock_core::Readiness;
pub use state::current_state;
pub use timerfd::TimerFd;
pub use wait_timer::WaitTimer;
pub use wakeup::Wakeup;

/// Identifies a descriptor in events. The caller chooses it when it adds the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

impl Token {
    /// Reserved for a poller's [`Wakeup`].
    pub const WAKEUP: Self = Self(u64::MAX);
    /// Reserved for a poller's [`WaitTimer`].
    pub const TIMER: Self = Self(u64::MAX - 1);
}

/// A report that a descriptor's state has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyEvent {
    /// The token with which the descriptor was added.
    pub token: Token,
    /// The conditions that the kernel reported.
    pub readiness: Readiness,
}

/// The longest time for which a wait blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// The wait does not block.
    Now,
    /// The wait blocks for this time at most, rounded up to a millisecond on kernels before 5.11. The kernel may add
    /// its [timer slack](crate::clock::set_timer_slack_ns).
    After(Duration),
    /// The wait blocks until there is an event.
    Never,
}

impl Timeout {
    /// Converts to the kernel's form, in which `None` stands for a wait without a time limit.
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

/// The longest time passed to the kernel, which represents times in 63 bits of nanoseconds. Longer ones are cut to
/// this.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The most events that one wait returns.
pub const BATCH: usize = 64;
