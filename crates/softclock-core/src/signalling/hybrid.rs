//! An interrupt begins a series of looks, without interrupts, which ends when a look leaves nothing (Mogul and
//! Ramakrishnan: *Eliminating Receive Livelock in an Interrupt-Driven Kernel*, 1996; Linux's `napi_complete_done`).
//!
//! The thread's other work runs between the looks, so that it is not starved. Between series, a busy thread has
//! interrupts: unlike soft polling, this policy polls only if packets come faster than they are taken.

use super::Next;
use super::load::Load;
use super::rule::{Looked, Rule};
use crate::Instant;

#[derive(Clone, Debug)]
pub(super) struct Hybrid;

impl Rule for Hybrid {
    fn on_interrupt(&mut self, now: Instant) -> Next {
        Next::masked_until(now)
    }

    fn on_look(&mut self, looked: &Looked, _load: &Load) -> Next {
        match looked.look.has_more {
            true => Next::masked_until(looked.now),
            false => Next::INTERRUPTED,
        }
    }

    fn before_wait(&mut self, _now: Instant, _wakes_at: Option<Instant>, _load: &Load) -> Next {
        Next::INTERRUPTED
    }

    fn after_wait(&mut self, _now: Instant) -> Next {
        Next::INTERRUPTED
    }
}
