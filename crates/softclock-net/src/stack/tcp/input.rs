//! From a frame to the channel of its connection, and from there to the protocol.

use alloc::vec::Vec;
use core::ops::{Deref, Range};

use softclock_core::Instant;
use softclock_wire::packet::TCP;

use super::glance::Glance;
use super::{Interest, Listed, TcpEndpoint};
use crate::channel::Full;
use crate::checksum::{Addresses, Verify};
use crate::demux::{Flow, Transport};
use crate::drops::DropReason;
use crate::ip;
use crate::link::Header as LinkHeader;
use crate::stack::absent::Route;
use crate::stack::endpoint::{Arrived, Memory};
use crate::stack::input::{EagerTarget, check_source};
use crate::stack::slots::SlotId;
use crate::stack::{Architecture, Stack};
use crate::tcp::connection::{Arrival, Events};
use crate::tcp::payload::Payload;
use crate::tcp::segment::{self, Flags, Header, Options, Reply};
use crate::tcp::settings::Settings;
use crate::tcp::state::State;

/// The place that the demultiplexer finds for a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::stack) enum TcpTarget {
    Connection(SlotId),
    Listener(SlotId),
    TimeWait,
}

/// A segment that was parsed, and the place of its payload in the frame.
pub(super) struct Parsed {
    pub(super) flow: Flow,
    pub(super) header: Header,
    pub(super) options: Options,
    pub(super) payload: Range<usize>,
    is_marked: bool,
}

impl Parsed {
    pub(super) fn of<B: Deref<Target = [u8]>>(frame: &Arrived<B>) -> Result<Self, DropReason> {
        let (_, packet) = LinkHeader::parse(frame.memory.bytes())?;
        let packet = ip::parse(packet)?;
        if packet.protocol != TCP {
            return Err(DropReason::Protocol);
        }
        let segment = segment::parse(packet.addresses, packet.payload, frame.verify)?;
        let end = LinkHeader::BYTES + packet.header_bytes + packet.payload.len();
        Ok(Self {
            flow: flow(packet.addresses, &segment.header),
            header: segment.header,
            options: segment.options,
            payload: end - segment.payload.len()..end,
            is_marked: packet.traffic_class & 3 == CONGESTION_EXPERIENCED,
        })
    }

    /// The segment, with its payload.
    pub(super) fn segment<'a>(&self, frame: &'a [u8]) -> segment::Segment<'a> {
        segment::Segment {
            header: self.header,
            options: self.options,
            payload: frame.get(self.payload.clone()).unwrap_or_default(),
        }
    }
}

/// The flow of a segment that has arrived.
pub(super) const fn flow(addresses: Addresses, header: &Header) -> Flow {
    Flow {
        transport: Transport::Tcp,
        remote: (addresses.source, header.source_port),
        local: (addresses.destination, header.destination_port),
    }
}

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Finds the connection of a segment for one of the stack's addresses, or its rest in TIME-WAIT.
    pub(in crate::stack) fn tcp_connection_of(&self, flow: &Flow) -> Option<TcpTarget> {
        if let Some(id) = self.table.find_connected(flow) {
            return Some(TcpTarget::Connection(id));
        }
        let is_old = self.tcp.time_wait.contains(flow);
        is_old.then_some(TcpTarget::TimeWait)
    }

    /// Finds the listener for a segment of no connection.
    pub(in crate::stack) fn tcp_listener_of(&self, flow: &Flow) -> Option<TcpTarget> {
        self.table.find_bound(flow).map(TcpTarget::Listener)
    }

    /// Whether a handshake of the flow has begun at a listener of this stack.
    pub(in crate::stack) fn has_half_open(&self, flow: &Flow) -> bool {
        let listener = self.table.find_bound(flow);
        let listening = listener.and_then(|id| self.tcp.listeners.get(id));
        listening.is_some_and(|listening| listening.listener.has_half_open(flow))
    }

    /// Takes a segment that was demultiplexed. Lazily, it waits in a channel; else it is processed here
    /// ([`Architecture::Bsd`]), or by [`process`](Self::process).
    pub(in crate::stack) fn tcp_accept_frame(
        &mut self,
        now: Instant,
        target: TcpTarget,
        frame: Arrived<B>,
    ) {
        match self.settings.architecture {
            Architecture::Bsd => self.tcp_deliver(now, target, frame),
            Architecture::EarlyDemux => {
                if let TcpTarget::Listener(id) = target
                    && self.listener_discards(now, id, &frame)
                {
                    self.drops.count(DropReason::ChannelFull);
                    self.tcp.tally.counts.handshakes_discarded += 1;
                    return;
                }
                self.queue(Some(EagerTarget::Tcp(target)), frame);
            }
            Architecture::SoftLrp | Architecture::NiLrp => match target {
                TcpTarget::Connection(id) => self.tcp_enqueue(id, frame),
                TcpTarget::Listener(id) => self.listener_enqueue(id, frame),
                TcpTarget::TimeWait => {
                    let bytes = frame.memory.bytes().len();
                    if let Err(Full(_)) = self.tcp.old.push(frame, bytes) {
                        self.drops.count(DropReason::ChannelFull);
                    }
                }
            },
        }
    }

    /// Processes a segment.
    pub(in crate::stack) fn tcp_deliver(
        &mut self,
        now: Instant,
        target: TcpTarget,
        frame: Arrived<B>,
    ) {
        match target {
            TcpTarget::Connection(id) => {
                self.tcp_on_frame(now, id, frame);
                self.tcp_settle(now, id);
            }
            TcpTarget::Listener(id) => self.listener_on_frame(now, id, frame),
            TcpTarget::TimeWait => self.time_wait_on_frame(now, frame),
        }
    }

    /// Puts a segment into the channel of its connection. Its header decides whether the owner processes it, or the
    /// stack does at once.
    fn tcp_enqueue(&mut self, id: SlotId, frame: Arrived<B>) {
        let settings = &self.settings.tcp;
        let Some(endpoint) = self.tcp.connections.get_mut(id) else {
            self.drops.count(DropReason::Closed);
            return;
        };
        let bytes = frame.memory.bytes().len();
        let glance = Glance::of(frame.memory.bytes());
        let has_data = glance.is_some_and(|glance| glance.length > 0);
        // Beyond the memory for all, a connection may hold little that its owner does not read. Its peer sends again.
        // What it has to send does not count: the acknowledgments that free it come with data.
        let is_over = has_data && self.tcp.memory >= settings.memory;
        if is_over && !endpoint.may_hold_more(glance, settings.least_memory) {
            self.drops.count(DropReason::TcpMemory);
            return;
        }
        let was_empty = endpoint.channel.is_empty();
        let at = frame.at;
        let channel = &mut endpoint.channel;
        let pushed = channel.push(settings.channel, &mut self.tcp.spare, frame, bytes);
        if pushed.is_err() {
            self.drops.count(DropReason::ChannelFull);
            return;
        }
        endpoint.memory += bytes as u32;
        self.tcp.memory += bytes;
        let is_prompt = glance.is_none_or(|glance| endpoint.is_prompt(&glance, was_empty));
        if has_data && endpoint.owner.waits_for(Interest::READABLE) {
            // The owner reads, and so processes this segment and all others on its own account.
            self.tcp.wake(id, Interest::READABLE);
        } else if is_prompt {
            self.tcp.mark_prompt(id);
        }
        if was_empty {
            self.tcp_await_owner(at, id);
        }
    }

    /// Processes all segments that wait in the channel of a connection.
    pub(super) fn tcp_drain(&mut self, now: Instant, id: SlotId) {
        while let Some(endpoint) = self.tcp.connections.get_mut(id)
            && let Some(frame) = endpoint.channel.pop()
        {
            self.tcp_on_frame(now, id, frame);
        }
        self.tcp_on_owner();
        self.tcp_settle(now, id);
    }

    /// Processes one segment of a connection. The caller settles.
    fn tcp_on_frame(&mut self, now: Instant, id: SlotId, frame: Arrived<B>) {
        let parsed = match Parsed::of(&frame) {
            Ok(parsed) => parsed,
            Err(reason) => return self.drops.count(reason),
        };
        let checked = check_source(&self.routes, parsed.flow.remote.0, frame.is_own);
        if let Err(reason) = checked {
            return self.drops.count(reason);
        }
        self.tcp_on_parsed(now, id, &parsed, frame);
    }

    pub(super) fn tcp_on_parsed(
        &mut self,
        now: Instant,
        id: SlotId,
        parsed: &Parsed,
        frame: Arrived<B>,
    ) {
        let Some(endpoint) = self.tcp.connections.get_mut(id) else {
            return self.drops.count(DropReason::Closed);
        };
        let arrival = Arrival {
            now,
            arrived: frame.at,
            is_marked: parsed.is_marked,
        };
        let payload = match frame.memory {
            Memory::Frame(memory) => Payload::new(memory, parsed.payload.clone()),
            Memory::Copy(bytes) => {
                Payload::copied(bytes.get(parsed.payload.clone()).unwrap_or_default())
            }
        };
        let tally = &mut self.tcp.tally;
        tally.counts.segments_received += 1;
        tally.counts.sack_blocks += parsed.options.sack.as_slice().len() as u64;
        let connection = &mut endpoint.connection;
        let may_receive = connection.state().may_receive();
        let challenges = self.tcp.shared.challenges();
        let events = tally.observe(connection, |connection| {
            let segment = (&parsed.header, &parsed.options);
            connection.on_segment(arrival, segment, payload, challenges)
        });
        if may_receive && !connection.state().may_receive() {
            // Tasks may wait for the peer's FIN behind bytes that are not read.
            self.tcp.wake_for_end(id);
        }
        self.tcp_apply(now, id, events);
    }

    /// Carries out what has happened to a connection.
    pub(super) fn tcp_apply(&mut self, now: Instant, id: SlotId, events: Events) {
        if let Some(reason) = events.dropped {
            self.drops.count(reason);
        }
        if let Some(reply) = events.reply {
            let endpoint = self.tcp.connections.get(id);
            let settings = endpoint.map(|endpoint| endpoint.connection.settings());
            let service = settings.map_or(reply.service, Settings::service);
            self.tcp_reply(now, &reply.with_service(service));
        }
        if events.may_send {
            self.tcp.mark_ready(id);
        }
        let event = Interest {
            readable: events.is_readable,
            writable: events.is_writable,
        };
        if event != Interest::default() {
            self.tcp.wake(id, event);
        }
        if events.is_over {
            self.tcp.wake_for_end(id);
            self.tcp_end(now, id);
        }
    }

    /// Ends a connection: frees its flow, or puts it into TIME-WAIT, and gives its channel back. Segments in the
    /// channel are demultiplexed again: behind the last acknowledgment there may be the SYN of the next connection, and
    /// others are answered by a reset.
    fn tcp_end(&mut self, now: Instant, id: SlotId) {
        // The last acknowledgment leaves before the flow belongs to others.
        self.tcp_flush(now, id);
        let Some(endpoint) = self.tcp.connections.get_mut(id) else {
            return;
        };
        let flow = *endpoint.connection.flow();
        if self.table.find_connected(&flow) == Some(id) {
            self.table.disconnect(&flow);
        }
        let rest: Vec<_> = core::iter::from_fn(|| endpoint.channel.pop()).collect();
        endpoint.channel.release(&mut self.tcp.spare);
        if let Some(last) = endpoint.connection.last_state() {
            self.tcp.time_wait.insert(now, flow, last);
        }
        let has_failed = endpoint.connection.has_error();
        self.tcp.tally.counts.failed += u64::from(has_failed);
        // A connection that was reset before it was accepted is not worth accepting.
        if let Some(listener) = endpoint.listener.filter(|_| has_failed)
            && let Some(listening) = self.tcp.listeners.get_mut(listener)
        {
            listening.listener.forget(&id);
            endpoint.listener = None;
            self.tcp_remove(id);
        } else if endpoint.connection.is_orphan() {
            self.tcp.orphans -= 1;
            self.tcp_remove(id);
        }
        for frame in rest {
            self.demultiplex(now, frame);
        }
    }

    /// Forgets a connection whose flow is free.
    pub(super) fn tcp_remove(&mut self, id: SlotId) {
        if let Some(mut endpoint) = self.tcp.connections.remove(id) {
            self.tcp.tally.remove(endpoint.connection.state());
            (self.tcp.timers).cancel(&mut endpoint.timer, endpoint.band);
            self.tcp.memory -= endpoint.memory as usize;
            if endpoint.listed.contains(Listed::STARVED) {
                self.tcp.starved.retain(|&other| other != id);
            }
            self.tcp.feed();
            let waiting = endpoint.channel.len() as u64;
            self.drops.count_many(DropReason::Closed, waiting);
        }
    }

    /// Brings timers and memory up to date after work on a connection.
    pub(super) fn tcp_settle(&mut self, now: Instant, id: SlotId) {
        self.tcp.account(id);
        self.tcp_arm(now, id);
    }

    /// Does one piece of the work for connections that runs on the stack's account. Returns whether there was one.
    pub(in crate::stack) fn tcp_process_one(&mut self, now: Instant) -> bool {
        if let Some(id) = self.tcp.prompt.pop_front() {
            if let Some(endpoint) = self.tcp.connections.get_mut(id) {
                endpoint.listed.remove(Listed::PROMPT);
            }
            self.tcp_drain(now, id);
            return true;
        }
        if let Some(frame) = self.tcp.old.pop() {
            self.time_wait_on_frame(now, frame);
            return true;
        }
        self.listeners_process_one(now)
    }

    /// Answers a segment without connection and listener by a reset (RFC 9293, 3.10.7.1). The demultiplexer has taken
    /// a token of the rate limit. Returns the reason for which the segment is dropped.
    pub(in crate::stack) fn tcp_on_closed_port(
        &mut self,
        now: Instant,
        packet: &ip::Packet<'_>,
        (verify, is_to_group): (Verify, bool),
    ) -> DropReason {
        let segment = match segment::parse(packet.addresses, packet.payload, verify) {
            Ok(segment) => segment,
            Err(reason) => return reason,
        };
        let flow = flow(packet.addresses, &segment.header);
        if let Some(reply) = Reply::reset(flow, &segment).filter(|_| !is_to_group) {
            self.tcp_reply(now, &reply);
        }
        DropReason::PortUnreachable
    }

    /// Whether the rate limit allows a reset.
    pub(in crate::stack) fn tcp_may_refuse(&mut self, now: Instant) -> bool {
        self.tcp.reset_rate.take(now)
    }

    /// Takes a segment that was put together from fragments, as a frame of its own.
    pub(in crate::stack) fn tcp_on_reassembled(
        &mut self,
        now: Instant,
        at: Instant,
        packet: &ip::Packet<'_>,
    ) {
        let link = self.settings.link_address;
        let header = LinkHeader {
            destination: link,
            source: link,
            ether_type: match packet.addresses.source.is_ipv4() {
                true => softclock_wire::packet::IPV4,
                false => softclock_wire::packet::IPV6,
            },
        };
        let mut bytes = header.to_bytes().to_vec();
        ip::write_header_of_reassembled(packet, &mut bytes);
        bytes.extend_from_slice(packet.payload);
        self.demultiplex(
            now,
            Arrived {
                memory: Memory::Copy(bytes),
                at,
                verify: Verify::Yes,
                is_own: false,
                is_counted: true,
                route: Route::Direct,
            },
        );
    }
}

impl<B: Deref<Target = [u8]>> super::Tcp<B> {
    fn mark_prompt(&mut self, id: SlotId) {
        if let Some(endpoint) = self.connections.get_mut(id)
            && !endpoint.listed.contains(Listed::PROMPT)
        {
            endpoint.listed.insert(Listed::PROMPT);
            self.prompt.push_back(id);
        }
    }
}

impl<B: Deref<Target = [u8]>> TcpEndpoint<B> {
    /// Whether a segment may be held beside what has arrived and the owner has not read, if that should take `least`
    /// bytes at most. The segment that is expected next may, while the owner reads: without it, those behind a gap
    /// could never be given back.
    fn may_hold_more(&self, glance: Option<Glance>, least: usize) -> bool {
        let connection = &self.connection;
        let next = connection.receive_next();
        let is_next = glance.is_some_and(|glance| glance.seq.is_at_or_before(next));
        (is_next && connection.readable() < least)
            || connection.received_memory_bytes() + self.channel.bytes() < least
    }

    /// Whether a segment must not wait for the owner. Decided by its flags and numbers alone.
    fn is_prompt(&mut self, glance: &Glance, was_empty: bool) -> bool {
        let connection = &self.connection;
        if !connection.state().is_synchronized() || connection.state() == State::TimeWait {
            return true;
        }
        let urgent = Flags::SYN | Flags::FIN | Flags::RST;
        if glance.flags.intersects(urgent) || glance.flags.contains(Flags::ECE) {
            return true;
        }
        if was_empty {
            self.expected = connection.receive_next();
        }
        let is_in_order = glance.seq == self.expected;
        self.expected = glance.seq + glance.length;
        // Loss: the peer waits for a duplicate acknowledgment, or has sent one.
        let is_duplicate = glance.length == 0 && connection.is_duplicate(glance.acknowledgment);
        // What fills a gap is acknowledged at once (RFC 5681, 4.2).
        let is_filling = glance.length > 0 && connection.has_gap();
        // Data that waits to be sent, or an owner that waits for room.
        let is_awaited =
            self.owner.waits_for(Interest::WRITABLE) || connection.waits_for_acknowledgment();
        !is_in_order || is_duplicate || is_filling || is_awaited || connection.is_orphan()
    }
}

/// The codepoint of a packet that was marked on its way (RFC 3168, 5).
const CONGESTION_EXPERIENCED: u8 = 3;
