//! What the policies have in common: the events that they answer.
//!
//! A rule decides as if each look took everything. [`Signalling`](super::Signalling) adds the looks that are due at
//! once: after an interrupt, after a look that left packets, and after interrupts became enabled.

use super::automatic::Automatic;
use super::clocked::Clocked;
use super::hybrid::Hybrid;
use super::interrupt::Interrupt;
use super::load::Load;
use super::poll::Poll;
use super::soft_poll::SoftPoll;
use super::{Interrupts, Look, Next, Policy};
use crate::Instant;

/// The answers of a policy.
pub(super) trait Rule {
    fn on_interrupt(&mut self, now: Instant) -> Next;
    fn on_look(&mut self, looked: &Looked, load: &Load) -> Next;
    /// `wakes_at` is in the future.
    fn before_wait(&mut self, now: Instant, wakes_at: Option<Instant>, load: &Load) -> Next;
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

#[derive(Clone, Debug)]
pub(super) enum Machine {
    Interrupt(Interrupt),
    Poll(Poll),
    Clocked(Clocked),
    Hybrid(Hybrid),
    SoftPoll(SoftPoll),
    Automatic(Automatic),
}

impl Machine {
    pub(super) fn new(policy: Policy, now: Instant) -> Self {
        match policy {
            Policy::Interrupt => Self::Interrupt(Interrupt),
            Policy::Poll => Self::Poll(Poll),
            Policy::Clocked(period) => Self::Clocked(Clocked::new(period, now)),
            Policy::Hybrid => Self::Hybrid(Hybrid),
            Policy::SoftPoll { quota, bound } => Self::SoftPoll(SoftPoll::new(quota, bound, now)),
            Policy::Automatic { bound, wakeups } => {
                Self::Automatic(Automatic::new(bound, wakeups, now))
            }
        }
    }

    pub(super) fn rule(&mut self) -> &mut dyn Rule {
        match self {
            Self::Interrupt(rule) => rule,
            Self::Poll(rule) => rule,
            Self::Clocked(rule) => rule,
            Self::Hybrid(rule) => rule,
            Self::SoftPoll(rule) => rule,
            Self::Automatic(rule) => rule,
        }
    }
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
