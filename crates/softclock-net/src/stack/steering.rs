//! Several stacks with the same addresses, each in a thread of its own: the hash of a flow names the stack that has the
//! connection, so that all its segments go there, whichever stack receives them.
//!
//! One of the stacks has the link. Each stack hands the segments of others over by [`next_handed`](Stack::next_handed),
//! and takes its own by [`on_handed`](Stack::on_handed). The others send by the stack with the link: their
//! [frames](Stack::next_link_frame) have no link addresses, and it completes them in [`forward`](Stack::forward). A
//! stack with a queue of its own ([`set_sends`](Stack::set_sends)) sends by it to neighbors whose link addresses it
//! knows. It may also receive frames of the link, such as those of its queue, by [`on_frame`](Stack::on_frame), and
//! then hands all but segments of TCP to the stack with the link.

use alloc::vec::Vec;
use core::ops::Deref;

use softclock_core::Instant;

use super::absent::Route;
use super::endpoint::{Arrived, Memory};
use super::output::{Outgoing, SendError};
use super::{Frame, Stack, TcpSettings};
use crate::checksum::Verify;
use crate::demux::{Flow, HashKey, Transport, hash_of};
use crate::drops::DropReason;
use crate::icmp::ErrorMessage;
use crate::ip;
use crate::link::Header;
use crate::routes::{Destination, NextHop};

/// The division of TCP's flows among several stacks.
///
/// ```
/// use softclock_net::demux::{Flow, HashKey, Transport};
/// use softclock_net::stack::Steering;
///
/// let key = HashKey([1, 2]); // In earnest: random, secret, and the same for all.
/// let flow = Flow {
///     transport: Transport::Tcp,
///     remote: ("192.0.2.7".parse().unwrap(), 40_000),
///     local: ("192.0.2.1".parse().unwrap(), 80),
/// };
/// let stack = Steering::new(key, 4, 0).stack_of(&flow);
/// assert!(stack < 4);
/// assert_eq!(Steering::new(key, 4, 3).stack_of(&flow), stack);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Steering {
    key: HashKey,
    stacks: u32,
    own: u32,
}

/// A frame for another stack.
#[derive(Debug)]
pub struct Handed<B>(pub(super) Arrived<B>);

/// A copy of a frame for another stack, in memory of its own.
#[derive(Debug)]
pub struct HandedFrame {
    bytes: Vec<u8>,
    at: Instant,
    verify: Verify,
    is_own: bool,
    is_counted: bool,
    route: Route,
}

impl Steering {
    /// The part of the stack with the number `own`, of this number of stacks. Number 0 has the link.
    pub const fn new(key: HashKey, stacks: u32, own: u32) -> Self {
        let stacks = if stacks == 0 { 1 } else { stacks };
        Self { key, stacks, own }
    }

    /// The part of another stack.
    #[must_use]
    pub const fn of_stack(self, own: u32) -> Self {
        Self { own, ..self }
    }

    /// The number of the stack that has the connection of this flow.
    pub fn stack_of(&self, flow: &Flow) -> u32 {
        let hash = hash_of(flow, self.key) >> 32;
        ((hash * u64::from(self.stacks)) >> 32) as u32
    }

    /// The number of stacks, at least 1.
    pub const fn stacks(&self) -> u32 {
        self.stacks
    }

    /// The number of this stack.
    pub(super) const fn own(&self) -> u32 {
        self.own
    }

    /// Whether this stack has the connection.
    pub(super) fn is_own(&self, flow: &Flow) -> bool {
        self.stack_of(flow) == self.own
    }

    /// Whether another stack has the link.
    pub(super) const fn has_no_link(&self) -> bool {
        self.own != 0
    }
}

impl<B: Deref<Target = [u8]>> Handed<B> {
    /// Whether the frame is for the stack with the link because it is no segment of TCP.
    pub const fn is_common(&self) -> bool {
        matches!(self.0.route, Route::Common)
    }

    /// Copies the frame.
    pub fn copied(&self) -> HandedFrame {
        let frame = &self.0;
        HandedFrame {
            bytes: frame.memory.bytes().into(),
            at: frame.at,
            verify: frame.verify,
            is_own: frame.is_own,
            is_counted: frame.is_counted,
            route: frame.route,
        }
    }
}

impl HandedFrame {
    /// Whether the verdict on the frame was counted.
    pub const fn is_counted(&self) -> bool {
        self.is_counted
    }
}

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// The next frame for another stack, with the number of that stack. There are none unless
    /// [`Settings::steering`](super::Settings::steering) is set. Call it until it returns `None` after each batch of
    /// frames and after [`process`](Self::process).
    pub fn next_handed(&mut self) -> Option<(u32, Handed<B>)> {
        let (stack, frame) = self.handed.pop()?;
        Some((stack, Handed(frame)))
    }

    /// Counts a frame of [`next_handed`](Self::next_handed) that the other stack has no room for.
    pub fn on_not_handed(&mut self, frame: &Handed<B>) {
        self.count_not_handed(frame.0.is_counted);
    }

    fn count_not_handed(&mut self, is_counted: bool) {
        if !is_counted {
            self.counts.to_channels += 1;
        }
        self.drops.count(DropReason::HandoverFull);
    }

    /// Takes a frame that another stack has handed over, as [`on_frame`](Self::on_frame) does one of the link. The
    /// other stack has counted it as received; its verdict is counted here.
    pub fn on_handed(&mut self, now: Instant, frame: HandedFrame) {
        self.tcp_at(now);
        self.enqueue(
            now,
            Arrived {
                memory: Memory::Copy(frame.bytes),
                at: frame.at,
                verify: frame.verify,
                is_own: frame.is_own,
                is_counted: frame.is_counted,
                route: frame.route,
            },
        );
    }

    /// Sends a packet of another stack: a frame from its [`next_link_frame`](Self::next_link_frame). It is not
    /// fragmented here.
    ///
    /// # Errors
    /// [`SendError::Remote`] if the source is not an address of the stack, and [`SendError::NoRoute`].
    pub fn forward(&mut self, now: Instant, frame: impl Into<Frame>) -> Result<(), SendError> {
        let frame = frame.into();
        let packet = ip::parse(frame.bytes.get(Header::BYTES..).unwrap_or_default());
        let packet = packet.map_err(|_| SendError::Remote)?;
        if !self.is_own(packet.addresses.source) {
            return Err(SendError::Remote);
        }
        let destination = packet.addresses.destination;
        if self.routes.classify(destination) == Destination::Ours {
            let outgoing = Outgoing::new(packet.addresses, packet.protocol);
            self.loop_back(now, frame.bytes, &outgoing);
            return Ok(());
        }
        let hop = self.routes.next_hop(destination);
        self.send_by(now, hop.ok_or(SendError::NoRoute)?, frame);
        Ok(())
    }

    /// Sends a packet by a queue of this stack, if it has one and knows the neighbor; else by the stack with the link.
    pub(super) fn send_up(
        &mut self,
        now: Instant,
        outgoing: &Outgoing,
        frame: Frame,
    ) -> Result<(), SendError> {
        let destination = outgoing.addresses.destination;
        let hop: Option<NextHop> = self.routes.next_hop(destination);
        if hop.is_none() && self.routes.classify(destination) != Destination::Ours {
            return Err(SendError::NoRoute);
        }
        if self.sends
            && let Some(NextHop::Neighbor(neighbor)) = hop
        {
            let (link, asks) = self.hops.find(now, neighbor);
            if asks {
                self.questions.push_back(neighbor);
            }
            if let Some(link) = link {
                self.send_frame(link, frame);
                return Ok(());
            }
        }
        self.queue_frame(frame);
        Ok(())
    }

    /// Whether another stack has the link.
    pub(super) fn has_no_link(&self) -> bool {
        let steering = self.settings.steering.as_ref();
        steering.is_some_and(Steering::has_no_link)
    }

    /// Whether the hash names another stack for a flow.
    pub(super) fn is_named_elsewhere(&self, flow: &Flow) -> bool {
        let steering = self.settings.steering.as_ref();
        steering.is_some_and(|steering| !steering.is_own(flow))
    }

    /// Returns the other stack that has, or may have, the connection which an ICMP error is about. `None` also if too
    /// many searches have begun: the error is handled here then, where it changes nothing.
    pub(super) fn stack_of_error(
        &mut self,
        now: Instant,
        error: &ErrorMessage<'_>,
        route: Route,
    ) -> Option<(u32, Route)> {
        let addresses = error.quoted.addresses;
        let (local, remote) = error.quoted.ports?;
        let is_tcp = error.quoted.protocol == softclock_wire::packet::TCP;
        let flow = Flow {
            transport: Transport::Tcp,
            remote: (addresses.destination, remote),
            local: (addresses.source, local),
        };
        if !is_tcp || self.tcp_connection_of(&flow).is_some() {
            return None;
        }
        self.elsewhere(now, &flow, route, || false).unwrap_or(None)
    }

    /// Keeps a frame for another stack, if there is room.
    pub(super) fn hand_over(&mut self, stack: u32, frame: Arrived<B>) {
        let bytes = frame.memory.bytes().len();
        let is_counted = frame.is_counted;
        if self.handed.push((stack, frame), bytes).is_err() {
            self.count_not_handed(is_counted);
        }
    }
}

impl TcpSettings {
    /// The part of one stack, if this number of stacks share the limits.
    #[must_use]
    pub fn divided(mut self, stacks: usize) -> Self {
        let stacks = stacks.max(1);
        for limit in [
            &mut self.most_connections,
            &mut self.most_orphans,
            &mut self.memory,
            &mut self.shared.half_open,
            &mut self.listen.half_open,
            &mut self.time_wait.most,
        ] {
            *limit = (*limit / stacks).max(1);
        }
        for limit in [
            &mut self.resets_per_second,
            &mut self.shared.challenges.per_second,
        ] {
            *limit = (*limit / stacks as u32).max(1);
        }
        self
    }
}
