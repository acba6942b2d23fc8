//! The channel of a connection, which takes no memory while it is empty and the owner waits.

use alloc::boxed::Box;

use crate::channel::{Channel, Full, Limits};
use crate::stack::endpoint::Arrived;

/// The segments that have arrived for a connection and are not processed.
#[derive(Debug)]
pub(super) struct Arrivals<B>(Option<Box<Channel<Arrived<B>>>>);

impl<B> Arrivals<B> {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// Appends a segment, if the limits allow it.
    pub(super) fn push(
        &mut self,
        limits: Limits,
        frame: Arrived<B>,
        bytes: usize,
    ) -> Result<(), Full<Arrived<B>>> {
        let channel = self.0.get_or_insert_with(|| Box::new(Channel::new(limits)));
        // The wake-up depends on what the segment carries, so the channel's own is not used.
        channel.push(frame, bytes).map(|_| ())
    }

    pub(super) fn pop(&mut self) -> Option<Arrived<B>> {
        self.0.as_mut()?.pop()
    }

    pub(super) fn front(&self) -> Option<&Arrived<B>> {
        self.0.as_ref()?.front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|channel| channel.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |channel| channel.len())
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |channel| channel.bytes())
    }

    /// Gives the memory back, if no segment waits.
    pub(super) fn release(&mut self) {
        if self.is_empty() {
            self.0 = None;
        }
    }
}
