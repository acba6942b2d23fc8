//! The idle rule across queues.

use super::Next;
use crate::Instant;

/// Whether a thread without work may wait, and until when.
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
    /// Joins the waits of two drivers of a thread: both must agree, and the earlier look ends the wait.
    ///
    /// ```
    /// use softclock_core::Instant;
    /// use softclock_core::signalling::Wait;
    ///
    /// let [early, late] = [3_000, 9_000].map(|ns| Wait::Until(Instant::from_ns(ns)));
    /// assert_eq!(late.and(early), early);
    /// assert_eq!(early.and(Wait::UntilInterrupt), early);
    /// assert_eq!(early.and(Wait::Refused), Wait::Refused);
    /// ```
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Refused, _) | (_, Self::Refused) => Self::Refused,
            (Self::Until(one), Self::Until(another)) => Self::Until(one.min(another)),
            (until @ Self::Until(_), Self::UntilInterrupt) | (Self::UntilInterrupt, until) => until,
        }
    }

    /// Joins the results of [`before_wait`](super::Signalling::before_wait) for all queues of a thread: the thread may
    /// wait only if all queues agree, and until the earliest look.
    ///
    /// If the wait is refused, look at the queues that are due and ask all of them again. If the thread then has work,
    /// call [`after_wait`](super::Signalling::after_wait) for all of them, since some have enabled interrupts.
    pub fn of(now: Instant, queues: impl IntoIterator<Item = Next>) -> Self {
        let looks = queues.into_iter().filter_map(|next| next.look);
        match looks.min() {
            None => Self::UntilInterrupt,
            Some(look) if look <= now => Self::Refused,
            Some(look) => Self::Until(look),
        }
    }
}
