//! Each arrival interrupts, also while the thread is busy. Nothing is looked at without an interrupt.

use super::Next;
use super::load::Load;
use super::rule::{Looked, Rule};
use crate::Instant;

#[derive(Clone, Debug)]
pub(super) struct Interrupt;

impl Rule for Interrupt {
    fn on_interrupt(&mut self, _now: Instant) -> Next {
        Next::INTERRUPTED
    }

    fn on_look(&mut self, _looked: &Looked, _load: &Load) -> Next {
        Next::INTERRUPTED
    }

    fn before_wait(&mut self, _now: Instant, _wakes_at: Option<Instant>, _load: &Load) -> Next {
        Next::INTERRUPTED
    }

    fn after_wait(&mut self, _now: Instant) -> Next {
        Next::INTERRUPTED
    }
}
