//! From a frame to the channel of its endpoint, and from there to a datagram.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ops::Deref;

use softclock_core::Instant;
use softclock_wire::packet::UDP;

use super::absent::Route;
use super::endpoint::{Arrived, Datagram, Memory, Pending, Taken, Waiting};
use super::tcp::{TcpTarget, is_opening};
use super::{Architecture, EndpointId, Stack};
use crate::channel::{Full, Wakeup};
use crate::checksum::Verify;
use crate::demux::{Class, Flow, Transport, classify};
use crate::drops::DropReason;
use crate::ip;
use crate::link::Header;
use crate::routes::{Destination, Routes};
use crate::udp;

/// The channel that the demultiplexer chooses for a frame.
pub(super) enum Target {
    /// The channel of an endpoint.
    Channel(EndpointId),
    /// A connection of TCP, a listener, or TIME-WAIT.
    Tcp(TcpTarget),
    /// The channels of all endpoints that are bound to the port: the destination is a group, or broadcast.
    Channels(Flow),
    /// The control channel.
    Control,
    /// The channel of fragments.
    Fragments,
    /// Another stack with the same addresses, and the frame's way to it.
    Stack(u32, Route),
}

/// The receiver of a frame that waits for eager processing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EagerTarget {
    Udp(EndpointId),
    Tcp(TcpTarget),
}

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Takes a frame that the device has received, at the time `arrived`. Puts it into a channel or drops it; a look at
    /// its headers, and one look-up in the demultiplexer's table ([`Architecture::Bsd`]: none).
    pub fn on_frame(&mut self, now: Instant, arrived: Instant, frame: B, verify: Verify) {
        self.counts.frames_received += 1;
        self.tcp_at(now);
        self.enqueue(
            now,
            Arrived {
                memory: Memory::Frame(frame),
                at: arrived,
                verify,
                is_own: false,
                is_counted: false,
                route: Route::Link,
            },
        );
    }

    pub(super) fn enqueue(&mut self, now: Instant, frame: Arrived<B>) {
        match self.settings.architecture {
            Architecture::Bsd => self.queue(None, frame),
            Architecture::EarlyDemux | Architecture::SoftLrp | Architecture::NiLrp => {
                self.demultiplex(now, frame);
            }
        }
    }

    /// Does the work that runs on the stack's own account. Processes at most `quota` items, in this order: control
    /// packets, fragments, the shared queue of eager architectures, connections with segments that cannot wait for
    /// their owner (SYN, FIN, RST, gaps), segments to connections in TIME-WAIT, and handshakes. Returns their number. A
    /// connection is one item with all segments in its channel; all other items are single packets.
    pub fn process(&mut self, now: Instant, quota: usize) -> usize {
        self.tcp_at(now);
        for done in 0..quota {
            if let Some(frame) = self.control.pop() {
                self.on_control(now, &frame);
            } else if let Some(frame) = self.fragments.pop() {
                self.on_fragment(now, &frame);
            } else if let Some((endpoint, frame)) = self.ip_queue.pop() {
                match endpoint {
                    Some(EagerTarget::Udp(id)) => self.deliver(id, frame),
                    Some(EagerTarget::Tcp(target)) => self.tcp_deliver(now, target, frame),
                    None => self.demultiplex(now, frame),
                }
            } else if self.tcp_process_one(now) {
                // Connections and listeners have channels of their own.
            } else {
                return done;
            }
        }
        quota
    }

    /// Takes the next datagram of an endpoint; `None` if its channel is empty or it is closed. Drops and counts
    /// malformed packets before it, so one call may process a whole channel. In lazy architectures this is where the
    /// protocols run.
    pub fn receive(&mut self, id: EndpointId) -> Option<Datagram<B>> {
        loop {
            let waiting = self.endpoints.get_mut(id.0)?.channel.pop()?;
            if let Some(datagram) = self.finish(id, waiting) {
                return Some(datagram);
            }
        }
    }

    /// Does the work that remains for a packet that an endpoint's receiver takes. Counts the packet.
    pub(super) fn finish(&mut self, id: EndpointId, waiting: Waiting<B>) -> Option<Datagram<B>> {
        let datagram = match waiting {
            Waiting::Datagram(datagram) => Ok(datagram),
            Waiting::Frame(frame) => frame.into_datagram(&self.routes),
        };
        let endpoint = self.endpoints.get_mut(id.0)?;
        match datagram {
            Ok(datagram) => {
                endpoint.counts.received += 1;
                endpoint.counts.received_bytes += datagram.payload().len() as u64;
                self.counts.datagrams_received += 1;
                Some(datagram)
            }
            Err(reason) => {
                endpoint.count(reason);
                self.drops.count(reason);
                None
            }
        }
    }

    /// Takes the next packet out of an endpoint's channel, without the work of [`receive`](Self::receive).
    pub fn take_pending(&mut self, id: EndpointId) -> Option<Pending<B>> {
        let waiting = self.endpoints.get_mut(id.0)?.channel.pop()?;
        Some(Pending(waiting))
    }

    /// Counts a packet that was taken by [`take_pending`](Self::take_pending) and then dropped.
    pub fn count_drop(&mut self, id: EndpointId, reason: DropReason) {
        self.drops.count(reason);
        if let Some(endpoint) = self.endpoints.get_mut(id.0) {
            endpoint.count(reason);
        }
    }

    /// Puts a frame into the shared queue before eager processing.
    pub(super) fn queue(&mut self, endpoint: Option<EagerTarget>, frame: Arrived<B>) {
        let bytes = frame.memory.bytes().len();
        let is_counted = frame.is_counted;
        if self.ip_queue.push((endpoint, frame), bytes).is_err() {
            match endpoint {
                Some(EagerTarget::Udp(id)) => self.count_drop(id, DropReason::IpQueueFull),
                _ => self.drops.count(DropReason::IpQueueFull),
            }
            if !is_counted {
                self.counts.demux_drops += 1;
            }
        }
    }

    /// Finds the channel of a frame and puts it there.
    pub(super) fn demultiplex(&mut self, now: Instant, frame: Arrived<B>) {
        let verdict = self.verdict(now, &frame);
        self.put(now, verdict, frame);
    }

    /// Puts a frame into the channel that was found for it.
    pub(super) fn put(
        &mut self,
        now: Instant,
        verdict: Result<Target, DropReason>,
        mut frame: Arrived<B>,
    ) {
        self.count_verdict(&verdict, &mut frame);
        let is_eager = self.settings.architecture == Architecture::Bsd;
        match verdict {
            Ok(Target::Channel(id)) => self.accept(id, frame),
            Ok(Target::Tcp(target)) => self.tcp_accept_frame(now, target, frame),
            Ok(Target::Channels(flow)) => self.accept_for_all(&flow, frame),
            Ok(Target::Stack(other, route)) => {
                frame.route = route;
                self.hand_over(other, frame);
            }
            Ok(Target::Control) if is_eager => self.on_control(now, &frame),
            Ok(Target::Fragments) if is_eager => self.on_fragment(now, &frame),
            Ok(Target::Control) => {
                let bytes = frame.memory.bytes().len();
                if self.control.push(frame, bytes).is_err() {
                    self.drops.count(DropReason::ControlFull);
                }
            }
            Ok(Target::Fragments) => {
                let bytes = frame.memory.bytes().len();
                if self.fragments.push(frame, bytes).is_err() {
                    self.drops.count(DropReason::FragmentsFull);
                }
            }
            Err(reason) => self.drops.count(reason),
        }
    }

    /// Counts the verdict on a frame of the device, once. That on a frame for another stack is counted there.
    fn count_verdict(&mut self, verdict: &Result<Target, DropReason>, frame: &mut Arrived<B>) {
        let counts = &mut self.counts;
        let counter = match verdict {
            _ if frame.is_counted => return,
            Ok(Target::Stack(..)) => return,
            Ok(Target::Channel(_) | Target::Tcp(_) | Target::Channels(_)) => {
                &mut counts.to_channels
            }
            Ok(Target::Control) => &mut counts.to_control,
            Ok(Target::Fragments) => &mut counts.to_fragments,
            Err(_) => &mut counts.demux_drops,
        };
        *counter += 1;
        frame.is_counted = true;
    }

    pub(super) fn verdict(
        &mut self,
        now: Instant,
        arrived: &Arrived<B>,
    ) -> Result<Target, DropReason> {
        let frame = arrived.memory.bytes();
        let (header, _) = Header::parse(frame)?;
        let is_group = header.destination.is_group();
        if header.destination != self.settings.link_address && !is_group {
            return Err(DropReason::OtherHost);
        }
        let class = classify(frame)?;
        if arrived.route == Route::Link && self.has_no_link() && !is_tcp(&class) {
            return Ok(Target::Stack(0, Route::Common));
        }
        let flow = match class {
            Class::Flow(flow) => flow,
            Class::Fragment => return Ok(Target::Fragments),
            Class::Control(_) => return Ok(Target::Control),
        };
        match self.routes.classify(flow.local.0) {
            // A packet to a single host has no business in a frame to several (RFC 1122, 3.3.6).
            Destination::Ours if is_group => Err(DropReason::NotOurAddress),
            Destination::Ours if flow.transport == Transport::Tcp => {
                self.tcp_verdict(now, &flow, arrived)
            }
            Destination::Ours => {
                let found = self.table.find(&flow).map(EndpointId);
                let endpoint = found.filter(|&id| {
                    let endpoint = self.endpoints.get(id.0);
                    endpoint.is_some_and(|endpoint| endpoint.accepts(flow.remote))
                });
                match endpoint {
                    Some(id) => Ok(Target::Channel(id)),
                    // The control channel answers. A flood to closed ports must not fill it.
                    None if self.may_report(now) => Ok(Target::Control),
                    None => Err(DropReason::PortUnreachable),
                }
            }
            Destination::Group | Destination::Broadcast if flow.transport == Transport::Udp => {
                Ok(Target::Channels(flow))
            }
            _ => Err(DropReason::NotOurAddress),
        }
    }

    fn tcp_verdict(
        &mut self,
        now: Instant,
        flow: &Flow,
        arrived: &Arrived<B>,
    ) -> Result<Target, DropReason> {
        // Before the hash: a connection that this stack has taken for one that is absent stays here.
        if let Some(target) = self.tcp_connection_of(flow) {
            return Ok(Target::Tcp(target));
        }
        let is_opening = || is_opening(arrived.memory.bytes());
        if let Some((other, route)) = self.elsewhere(now, flow, arrived.route, is_opening)? {
            return Ok(Target::Stack(other, route));
        }
        match self.tcp_listener_of(flow) {
            Some(target) => Ok(Target::Tcp(target)),
            // The control channel answers by a reset. A flood to closed ports must not fill it.
            None if self.tcp_may_refuse(now) => Ok(Target::Control),
            None => Err(DropReason::PortUnreachable),
        }
    }

    /// Gives a demultiplexed frame to its endpoint, or to the shared queue before eager processing. Discards it first
    /// if the endpoint has no room, except in [`Architecture::Bsd`].
    fn accept(&mut self, id: EndpointId, frame: Arrived<B>) {
        if !self.is_discarded(id, frame.memory.bytes().len()) {
            self.pass(id, frame);
        }
    }

    /// Whether a frame of this length is discarded before any work, since the endpoint has no room for it. Counts it
    /// then.
    fn is_discarded(&mut self, id: EndpointId, bytes: usize) -> bool {
        if self.settings.architecture == Architecture::Bsd {
            return false;
        }
        let Some(endpoint) = self.endpoints.get_mut(id.0) else {
            return false;
        };
        let is_behind = !endpoint.channel.has_room(bytes);
        if is_behind {
            endpoint.count(DropReason::ChannelFull);
            self.drops.count(DropReason::ChannelFull);
        }
        is_behind
    }

    /// Gives a frame to an endpoint that has room for it.
    fn pass(&mut self, id: EndpointId, frame: Arrived<B>) {
        match self.settings.architecture {
            Architecture::Bsd => self.deliver(id, frame),
            Architecture::EarlyDemux => self.queue(Some(EagerTarget::Udp(id)), frame),
            Architecture::SoftLrp | Architecture::NiLrp => {
                let bytes = frame.memory.bytes().len();
                self.push(id, Waiting::Frame(frame), bytes, DropReason::ChannelFull);
            }
        }
    }

    /// Gives a copy of a frame to each endpoint that is bound to its port, and the frame itself to the last. Makes no
    /// copy for an endpoint without room, so that a flood to a group costs no more than its copies that are received.
    fn accept_for_all(&mut self, flow: &Flow, frame: Arrived<B>) {
        let mut ids = Vec::new();
        self.table
            .find_all_bound(flow, |id| ids.push(EndpointId(id)));
        ids.retain(|&id| {
            let endpoint = self.endpoints.get(id.0);
            endpoint.is_some_and(|endpoint| endpoint.accepts(flow.remote))
        });
        if ids.is_empty() {
            // No answer: an error about a packet to a group is never sent (RFC 1122, 3.2.2).
            self.drops.count(DropReason::PortUnreachable);
            return;
        }
        let bytes = frame.memory.bytes().len();
        ids.retain(|&id| !self.is_discarded(id, bytes));
        let Some(last) = ids.pop() else {
            return;
        };
        for id in ids {
            let copy = frame.copied();
            self.pass(id, copy);
        }
        self.pass(last, frame);
    }

    /// Processes a frame eagerly, and gives the datagram to its endpoint.
    fn deliver(&mut self, id: EndpointId, frame: Arrived<B>) {
        let bytes = frame.memory.bytes().len();
        match frame.into_datagram(&self.routes) {
            Ok(datagram) => self.push_datagram(id, datagram, bytes),
            Err(reason) => self.count_drop(id, reason),
        }
    }

    /// Gives a datagram that is processed to an endpoint. `bytes` is the length of its packet.
    pub(super) fn push_datagram(&mut self, id: EndpointId, datagram: Datagram<B>, bytes: usize) {
        let waiting = Waiting::Datagram(datagram);
        self.push(id, waiting, bytes, DropReason::SocketFull);
    }

    /// Puts an entry into the channel of an endpoint, and lists the endpoint if its receiver waits.
    fn push(&mut self, id: EndpointId, waiting: Waiting<B>, bytes: usize, if_full: DropReason) {
        let Some(endpoint) = self.endpoints.get_mut(id.0) else {
            self.drops.count(DropReason::Closed);
            return;
        };
        match endpoint.channel.push(waiting, bytes) {
            Ok(Wakeup::Needed) => self.wake(id),
            Ok(Wakeup::NotNeeded) => {}
            Err(Full(_)) => {
                endpoint.count(if_full);
                self.drops.count(if_full);
            }
        }
    }

    /// Refuses a source that no host on the link can have; see [`check_source`].
    pub(super) fn check_source(&self, source: IpAddr, is_own: bool) -> Result<(), DropReason> {
        check_source(&self.routes, source, is_own)
    }

    /// The endpoints that a datagram goes to after reassembly.
    pub(super) fn receivers(&self, flow: &Flow) -> Vec<EndpointId> {
        let mut ids = Vec::new();
        match self.routes.classify(flow.local.0) {
            Destination::Ours => ids.extend(self.table.find(flow).map(EndpointId)),
            Destination::Group | Destination::Broadcast => {
                self.table
                    .find_all_bound(flow, |id| ids.push(EndpointId(id)));
            }
            Destination::Other => {}
        }
        ids.retain(|&id| {
            let endpoint = self.endpoints.get(id.0);
            endpoint.is_some_and(|endpoint| endpoint.accepts(flow.remote))
        });
        ids
    }
}

impl<B> From<Option<Datagram<B>>> for Taken<B> {
    fn from(datagram: Option<Datagram<B>>) -> Self {
        datagram.map_or(Self::Other, Self::Datagram)
    }
}

impl<B: Deref<Target = [u8]>> Arrived<B> {
    /// The work of IP and UDP for a datagram in one frame.
    pub(super) fn into_datagram(self, routes: &Routes) -> Result<Datagram<B>, DropReason> {
        let (_, packet) = Header::parse(self.memory.bytes())?;
        let packet = ip::parse(packet)?;
        check_source(routes, packet.addresses.source, self.is_own)?;
        if packet.protocol != UDP {
            return Err(DropReason::Protocol);
        }
        let datagram = udp::parse(packet.addresses, packet.payload, self.verify)?;
        let start = Header::BYTES + packet.header_bytes + udp::HEADER_BYTES;
        Ok(Datagram {
            source: SocketAddr::new(packet.addresses.source, datagram.source_port),
            destination: packet.addresses.destination,
            ecn: packet.traffic_class & 3,
            arrived: self.at,
            payload: start..start + datagram.payload.len(),
            memory: self.memory,
        })
    }
}

fn is_tcp(class: &Class) -> bool {
    matches!(class, Class::Flow(flow) if flow.transport == Transport::Tcp)
}

/// Refuses packets from the link that name one of the stack's own addresses, or a broadcast address, as their source.
pub(super) fn check_source(
    routes: &Routes,
    source: IpAddr,
    is_own: bool,
) -> Result<(), DropReason> {
    match routes.classify(source) {
        Destination::Other => Ok(()),
        Destination::Ours if is_own => Ok(()),
        // A host that looks whether its address is free has none yet (RFC 4862, 5.4.2).
        _ if source.is_unspecified() => Ok(()),
        _ => Err(DropReason::IpSource),
    }
}
