//! Segments of connections as frames.

use alloc::vec::Vec;
use core::ops::Deref;

use softclock_core::Instant;
use softclock_wire::packet::TCP;

use crate::checksum::Addresses;
use crate::demux::Flow;
use crate::drops::DropReason;
use crate::stack::Stack;
use crate::stack::output::Outgoing;
use crate::stack::slots::SlotId;
use crate::tcp::segment::{self, Flags, Reply};

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Asks the connections that can send for a segment each, in turn, until there is a frame for the link.
    pub(in crate::stack) fn tcp_send_next(&mut self) {
        let now = self.tcp.latest;
        while self.leaving.is_empty()
            && let Some(id) = self.tcp.ready.pop_front()
        {
            if let Some(endpoint) = self.tcp.connections.get_mut(id) {
                endpoint.is_ready = false;
            }
            match self.tcp_send_one(now, id) {
                // Behind all others that have something to send.
                true => self.tcp.mark_ready(id),
                false => self.tcp_settle(now, id),
            }
        }
    }

    /// Sends all that a connection may send now.
    pub(super) fn tcp_flush(&mut self, now: Instant, id: SlotId) {
        while self.tcp_send_one(now, id) {}
    }

    /// Sends one segment of a connection. Returns whether it had one.
    fn tcp_send_one(&mut self, now: Instant, id: SlotId) -> bool {
        let Some(endpoint) = self.tcp.connections.get_mut(id) else {
            return false;
        };
        let connection = &mut endpoint.connection;
        let Some(sent) = connection.poll_transmit(now) else {
            return false;
        };
        self.tcp.tally.on_sent(connection, sent.cause);
        let flow = *connection.flow();
        let settings = connection.settings();
        let ecn = if sent.is_ecn_capable { ECN_CAPABLE } else { 0 };
        let outgoing = Outgoing {
            hop_limit: settings.hop_limit,
            traffic_class: settings.dscp << 2 | ecn,
            ..outgoing(&flow)
        };
        let bytes = segment::header_bytes(&sent.options) + sent.length as usize;
        let mut frame = self.begin(&outgoing, bytes);
        if let Some(endpoint) = self.tcp.connections.get(id) {
            let payload = |out: &mut Vec<u8>| endpoint.connection.copy_payload(&sent, out);
            let addresses = outgoing.addresses;
            segment::emit(addresses, &sent.header, &sent.options, payload, &mut frame);
        }
        self.tcp_transmit(now, &outgoing, frame);
        true
    }

    /// Sends a segment that no connection keeps.
    pub(super) fn tcp_reply(&mut self, now: Instant, reply: &Reply) {
        if self.leaving.len() >= self.settings.send_queue {
            self.drops.count(DropReason::SendQueueFull);
            return;
        }
        let is_reset = reply.header.flags.contains(Flags::RST);
        self.tcp.tally.counts.resets_sent += u64::from(is_reset);
        let outgoing = outgoing(&reply.flow);
        let mut frame = self.begin(&outgoing, segment::header_bytes(&reply.options));
        let addresses = outgoing.addresses;
        segment::emit(addresses, &reply.header, &reply.options, |_| {}, &mut frame);
        self.tcp_transmit(now, &outgoing, frame);
    }

    fn tcp_transmit(&mut self, now: Instant, outgoing: &Outgoing, frame: Vec<u8>) {
        self.tcp.tally.counts.segments_sent += 1;
        if self.transmit(now, outgoing, frame, None).is_err() {
            self.drops.count(DropReason::NoRoute);
        }
    }
}

fn outgoing(flow: &Flow) -> Outgoing {
    let addresses = Addresses {
        source: flow.local.0,
        destination: flow.remote.0,
    };
    Outgoing {
        // Path MTU discovery (RFC 1191).
        may_fragment: false,
        ..Outgoing::new(addresses, TCP)
    }
}

/// ECT(0) (RFC 3168, 5).
const ECN_CAPABLE: u8 = 2;
