//! Endpoints whose frames the network interface demultiplexes into rings ([`Architecture::NiLrp`]).
//!
//! [`Architecture::NiLrp`]: super::Architecture::NiLrp

use core::ops::Deref;

use softclock_core::Instant;

use super::absent::Route;
use super::endpoint::{Arrived, Datagram, Memory, Ring, RingFrame, Taken, Waiting};
use super::input::Target;
use super::{EndpointId, Stack};
use crate::drops::DropReason;

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Takes the next packet of an endpoint whose frames the network interface demultiplexes
    /// ([`NiLrp`](super::Architecture::NiLrp)), and does the protocols' work for it. `ring` takes the next frame out of
    /// the endpoint's ring, if there is one.
    ///
    /// The endpoint's channel in the stack has the packets that did not come in one frame to the endpoint alone: those
    /// to a group, those from the stack itself, and those put together from fragments. Channel and ring take turns
    /// while both have packets, so neither can keep the other waiting.
    ///
    /// A frame in the ring is demultiplexed again, since the interface may have put it there just before the ring
    /// became this endpoint's, and since it looks neither at link addresses nor at the remote endpoint. A frame that
    /// belongs elsewhere is handled as by [`on_frame`](Self::on_frame).
    ///
    /// Handles at most one packet.
    pub fn receive_next(
        &mut self,
        now: Instant,
        id: EndpointId,
        ring: impl FnOnce() -> Option<RingFrame<B>>,
    ) -> Taken<B> {
        let Some(endpoint) = self.endpoints.get_mut(id.0) else {
            return Taken::Nothing;
        };
        let is_channel_next = endpoint.is_channel_next;
        if is_channel_next && let Some(waiting) = endpoint.channel.pop() {
            endpoint.is_channel_next = false;
            return self.finish(id, waiting).into();
        }
        if let Some(frame) = ring() {
            endpoint.is_channel_next = true;
            return self.on_ring_frame(now, id, frame).into();
        }
        match endpoint.channel.pop() {
            Some(waiting) => self.finish(id, waiting).into(),
            None => Taken::Nothing,
        }
    }

    /// Handles a frame from the ring of an endpoint, and returns its datagram.
    fn on_ring_frame(
        &mut self,
        now: Instant,
        id: EndpointId,
        frame: RingFrame<B>,
    ) -> Option<Datagram<B>> {
        self.counts.frames_received += 1;
        let frame = Arrived {
            memory: Memory::Frame(frame.bytes),
            at: frame.arrived,
            verify: frame.verify,
            is_own: false,
            is_counted: false,
            route: Route::Direct,
        };
        match self.verdict(now, &frame) {
            Ok(Target::Channel(found)) if found == id => {
                self.counts.to_channels += 1;
                self.finish(id, Waiting::Frame(frame))
            }
            verdict => {
                self.put(now, verdict, frame);
                None
            }
        }
    }

    /// Counts frames that the network interface discarded since this ring was full: early discard.
    pub fn on_discards(&mut self, ring: Ring, frames: u64) {
        let counts = &mut self.counts;
        counts.frames_received += frames;
        let (counter, reason) = match ring {
            Ring::Endpoint(_) | Ring::Segments => {
                (&mut counts.to_channels, DropReason::ChannelFull)
            }
            Ring::Control => (&mut counts.to_control, DropReason::ControlFull),
            Ring::Fragments => (&mut counts.to_fragments, DropReason::FragmentsFull),
        };
        *counter += frames;
        self.drops.count_many(reason, frames);
        if let Ring::Endpoint(id) = ring
            && let Some(endpoint) = self.endpoints.get_mut(id.0)
        {
            endpoint.counts.drops.count_many(reason, frames);
        }
    }

    /// Counts frames that were in the ring of an endpoint or a listener when it was closed.
    pub fn on_ring_closed(&mut self, frames: u64) {
        self.counts.frames_received += frames;
        self.counts.to_channels += frames;
        self.drops.count_many(DropReason::Closed, frames);
    }
}
