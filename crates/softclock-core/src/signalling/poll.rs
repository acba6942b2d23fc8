//! The thread always looks, and never waits: the least latency, for a whole processor.

use super::Next;
use super::load::Load;
use super::rule::{Looked, Rule};
use crate::Instant;

#[derive(Clone, Debug)]
pub(super) struct Poll;

impl Rule for Poll {
    fn on_interrupt(&mut self, now: Instant) -> Next {
        Next::masked_until(now)
    }

    fn on_look(&mut self, looked: &Looked, _load: &Load) -> Next {
        Next::masked_until(looked.now)
    }

    fn before_wait(&mut self, now: Instant, _wakes_at: Option<Instant>, _load: &Load) -> Next {
        Next::masked_until(now)
    }

    fn after_wait(&mut self, now: Instant) -> Next {
        Next::masked_until(now)
    }
}
