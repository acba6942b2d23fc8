//! The interface of all policies: the events that they answer.
//!
//! A rule decides as if each look took everything. [`Signalling`](super::Signalling) adds the looks that are due at
//! once: after an interrupt, after a look that left packets, and after interrupts became enabled.

use super::load::Load;
use super::{Interrupts, Look, Next};
use crate::Instant;

/// The answers of a policy.
pub(super) trait Rule {
    fn on_interrupt(&mut self, now: Instant) -> Next;
    fn on_look(&mut self, looked: &Looked, load: &Load) -> Next;
    /// `wakes_at` is in the future.
    fn before_wait(&mut self, now: Instant, wakes_at: Option<Instant>, load: &Load) -> Next;
    /// Interrupts were enabled.
    fn after_wait(&mut self, now: Instant) -> Next;
}

/// A look, with its circumstances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    pub(super) now: Instant,
    pub(super) look: Look,
    /// Whether interrupts were enabled when it was made.
    pub(super) was: Interrupts,
    /// The time of the look before.
    pub(super) before: Instant,
    /// How late it was, if it was made when its time had come, and interrupts were masked since the look before.
    pub(super) late_ns: Option<u64>,
}

impl Next {
    /// Interrupts, and no look without one.
    pub(super) const INTERRUPTED: Self = Self {
        interrupts: Interrupts::Enabled,
        look: None,
    };

    /// No interrupts, and a look from `at` on.
    pub(super) const fn masked_until(at: Instant) -> Self {
        Self {
            interrupts: Interrupts::Masked,
            look: Some(at),
        }
    }
}
