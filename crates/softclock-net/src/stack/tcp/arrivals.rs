//! The channel of a connection, which takes no memory while it is empty and the owner waits.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::channel::{Channel, ChannelLimits, Full};
use crate::stack::endpoint::Arrived;

/// The segments that have arrived for a connection and are not processed.
#[derive(Debug)]
pub(super) struct Arrivals<B>(Option<Box<Channel<Arrived<B>>>>);

impl<B> Arrivals<B> {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// Appends a segment, if the limits allow it. They are the same for all connections of a stack.
    pub(super) fn push(
        &mut self,
        limits: ChannelLimits,
        spare: &mut SpareChannels<B>,
        frame: Arrived<B>,
        bytes: usize,
    ) -> Result<(), Full<Arrived<B>>> {
        let channel = self.0.get_or_insert_with(|| spare.take(limits));
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

    #[cfg(test)]
    pub(super) const fn has_storage(&self) -> bool {
        self.0.is_some()
    }

    /// Gives the memory back, if no segment waits.
    pub(super) fn release(&mut self, spare: &mut SpareChannels<B>) {
        if self.is_empty()
            && let Some(channel) = self.0.take()
        {
            spare.give_back(channel);
        }
    }
}

/// Empty channels of connections whose owners wait, for those that get segments next: few, as each is in use from the
/// arrival of a segment to the next wait of the owner.
#[derive(Debug)]
#[expect(clippy::vec_box, reason = "the boxes are what is used again")]
pub(super) struct SpareChannels<B>(Vec<Box<Channel<Arrived<B>>>>);

impl<B> SpareChannels<B> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    fn take(&mut self, limits: ChannelLimits) -> Box<Channel<Arrived<B>>> {
        (self.0.pop()).unwrap_or_else(|| Box::new(Channel::new(limits)))
    }

    fn give_back(&mut self, mut channel: Box<Channel<Arrived<B>>>) {
        if self.0.len() < MOST_SPARE {
            // Gives storage back that a burst has left.
            channel.wait();
            self.0.push(channel);
        }
    }
}

/// As many as a batch of segments may need.
const MOST_SPARE: usize = 64;
