//! The state of the policy in use.

use super::Policy;
use super::automatic::Automatic;
use super::clocked::Clocked;
use super::hybrid::Hybrid;
use super::interrupt::Interrupt;
use super::poll::Poll;
use super::rule::Rule;
use super::soft_poll::SoftPoll;
use crate::Instant;

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
