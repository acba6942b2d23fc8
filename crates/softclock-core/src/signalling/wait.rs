//! The idle rule across queues.

use super::Next;
use crate::Instant;

/// Whether and until when a thread may wait that has nothing to do.
///
/// # Example
/// ```
/// use softclock_core::Instant;
/// use softclock_core::signalling::{Interrupts, Next, Wait};
///
/// let now = Instant::from_ns(1_000);
/// let interrupted = Next { interrupts: Interrupts::Enabled, look: None };
/// let clocked = Next { interrupts: Interrupts::Masked, look: Some(Instant::from_ns(9_000)) };
/// let unchecked = Next { interrupts: Interrupts::Enabled, look: Some(now) };
///
/// assert_eq!(Wait::of(now, [interrupted, interrupted]), Wait::UntilInterrupt);
/// assert_eq!(Wait::of(now, [interrupted, clocked]), Wait::Until(Instant::from_ns(9_000)));
/// assert_eq!(Wait::of(now, [interrupted, clocked, unchecked]), Wait::Refused);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// A queue must be looked at first.
    Refused,
    /// The thread may wait for an interrupt, up to the time of the earliest look.
    Until(Instant),
    /// The thread may wait for an interrupt without a limit.
    UntilInterrupt,
}

impl Wait {
    /// Joins what [`before_wait`](super::Signalling::before_wait) has returned for each queue of a thread: the thread
    /// may wait only if all queues agree, and the earliest look wins.
    ///
    /// If it is refused, look at the queues that are due and ask all of them again. If the thread then has work, tell
    /// all of them by [`after_wait`](super::Signalling::after_wait), since some have enabled interrupts.
    pub fn of(now: Instant, queues: impl IntoIterator<Item = Next>) -> Self {
        let looks = queues.into_iter().filter_map(|next| next.look);
        match looks.min() {
            None => Self::UntilInterrupt,
            Some(look) if look <= now => Self::Refused,
            Some(look) => Self::Until(look),
        }
    }
}
