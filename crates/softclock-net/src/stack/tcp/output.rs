//! Segments of connections as frames.

use alloc::vec::Vec;
use core::ops::Deref;

use softclock_core::Instant;
use softclock_wire::packet::{Offload, PartialChecksum, SegmentKind, Segmentation, TCP};

use super::Listed;
use crate::checksum::Addresses;
use crate::demux::Flow;
use crate::drops::DropReason;
use crate::stack::output::Outgoing;
use crate::stack::slots::SlotId;
use crate::stack::{Frame, Stack};
use crate::tcp::connection;
use crate::tcp::segment::{self, Flags, Reply};

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Asks the connections that can send for a segment each, in turn, until there is a frame for the link.
    pub(in crate::stack) fn tcp_send_next(&mut self) {
        let now = self.tcp.latest;
        while self.leaving.is_empty()
            && let Some(id) = self.tcp.ready.pop_front()
        {
            if let Some(endpoint) = self.tcp.connections.get_mut(id) {
                endpoint.listed.remove(Listed::READY);
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

    /// Sends the segments that a connection may send now, as far as there is room for frames. One that is not
    /// synchronized sends none: its SYN would open a connection at the peer that this end has given up.
    pub(super) fn tcp_send_written(&mut self, now: Instant, id: SlotId) {
        let endpoint = self.tcp.connections.get(id);
        if !endpoint.is_some_and(|endpoint| endpoint.connection.state().is_synchronized()) {
            return;
        }
        while self.leaving.len() < self.settings.send_queue && self.tcp_send_one(now, id) {}
    }

    /// Sends one segment of a connection, or those that the device cuts out of one frame. Returns whether it had one.
    fn tcp_send_one(&mut self, now: Instant, id: SlotId) -> bool {
        self.tcp_follow_path(now, id);
        let offloads = self.settings.offloads_tcp;
        let Some(endpoint) = self.tcp.connections.get_mut(id) else {
            return false;
        };
        let connection = &mut endpoint.connection;
        let tally = &mut self.tcp.tally;
        if !offloads {
            let Some(sent) = tally.observe(connection, |connection| connection.poll_transmit(now))
            else {
                return false;
            };
            self.tcp_emit(now, id, &sent, None);
            return true;
        }
        let Some(train) = tally.observe(connection, |connection| {
            connection.poll_transmit_train(now, MOST_TRAIN_BYTES)
        }) else {
            return false;
        };
        let more = u64::from(train.segments - 1);
        tally.counts.segments_sent += more;
        if let Some(cause) = train.segment.cause {
            tally.counts.note_retransmitted(cause, more);
        }
        let cut = (train.segments > 1).then_some(train.segment_bytes as u16);
        self.tcp_emit(now, id, &train.segment, Some(cut));
        if let Some(next) = &train.next {
            self.tcp_emit(now, id, next, Some(None));
        }
        true
    }

    /// Shortens the segments of a connection if its path has become narrower. A router reports that about a segment of
    /// one connection, and all others to the same host must learn of it (RFC 8201, 5.2): their longer segments would
    /// not leave, so no router would report them. A SYN is too short for that, and what it offers stays.
    fn tcp_follow_path(&mut self, now: Instant, id: SlotId) {
        let Some(endpoint) = self.tcp.connections.get(id) else {
            return;
        };
        let connection = &endpoint.connection;
        let mtu = self.mtu_of(now, connection.flow().remote.0);
        if mtu >= connection.mtu().into() || !connection.state().is_synchronized() {
            return;
        }
        if let Some(endpoint) = self.tcp.connections.get_mut(id) {
            // The caller sends what it may.
            let _ = endpoint.connection.on_path_mtu(mtu as u32);
        }
    }

    /// Sends a segment of a connection. With `offload` the device completes its checksum, and cuts it into segments
    /// with so many bytes of payload, if a number is given.
    fn tcp_emit(
        &mut self,
        now: Instant,
        id: SlotId,
        sent: &connection::Outgoing,
        offload: Option<Option<u16>>,
    ) {
        let Some(endpoint) = self.tcp.connections.get(id) else {
            return;
        };
        if let Some(cause) = sent.cause {
            self.tcp.tally.counts.note_retransmitted(cause, 1);
        }
        let flow = *endpoint.connection.flow();
        let service = endpoint.connection.settings().service();
        let ecn = if sent.is_ecn_capable { ECN_CAPABLE } else { 0 };
        let outgoing = Outgoing {
            hop_limit: service.hop_limit,
            traffic_class: service.dscp << 2 | ecn,
            ..outgoing(&flow)
        };
        let header_bytes = segment::header_bytes(&sent.options);
        let mut bytes = self.begin(&outgoing, header_bytes + sent.length as usize);
        let start = bytes.len();
        let addresses = outgoing.addresses;
        if let Some(endpoint) = self.tcp.connections.get(id) {
            let payload = |out: &mut Vec<u8>| endpoint.connection.copy_payload(sent, out);
            let (header, options) = (&sent.header, &sent.options);
            match offload {
                None => segment::emit(addresses, header, options, payload, &mut bytes),
                Some(_) => {
                    segment::emit_offloaded(addresses, header, options, payload, &mut bytes);
                }
            }
        }
        let offload = offload.map(|cut| offload_of(&addresses, start, header_bytes, cut));
        let offload = offload.unwrap_or(Offload::NONE);
        self.tcp_transmit(now, &outgoing, Frame { bytes, offload });
    }

    /// Sends a segment that no connection keeps.
    pub(super) fn tcp_reply(&mut self, now: Instant, reply: &Reply) {
        if self.leaving.len() >= self.settings.send_queue {
            self.drops.count(DropReason::SendQueueFull);
            return;
        }
        let is_reset = reply.header.flags.contains(Flags::RST);
        self.tcp.tally.counts.resets_sent += u64::from(is_reset);
        let outgoing = Outgoing {
            hop_limit: reply.service.hop_limit,
            traffic_class: reply.service.dscp << 2,
            ..outgoing(&reply.flow)
        };
        let mut frame = self.begin(&outgoing, segment::header_bytes(&reply.options));
        let addresses = outgoing.addresses;
        segment::emit(addresses, &reply.header, &reply.options, |_| {}, &mut frame);
        self.tcp_transmit(now, &outgoing, frame.into());
    }

    fn tcp_transmit(&mut self, now: Instant, outgoing: &Outgoing, frame: Frame) {
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

/// The work that is left to the device for a segment whose header begins at `start` and has `header_bytes` bytes.
fn offload_of(
    addresses: &Addresses,
    start: usize,
    header_bytes: usize,
    cut: Option<u16>,
) -> Offload {
    let segmentation = cut.map(|segment_bytes| Segmentation {
        kind: match addresses.source.is_ipv4() {
            true => SegmentKind::Tcp4,
            false => SegmentKind::Tcp6,
        },
        has_ecn: false,
        header_bytes: (start + header_bytes) as u16,
        segment_bytes,
    });
    Offload {
        checksum: Some(PartialChecksum {
            start: start as u16,
            offset: CHECKSUM_OFFSET,
        }),
        segmentation,
    }
}

/// The payload of the longest packet of IP, less the longest headers.
const MOST_TRAIN_BYTES: u32 = 65_535 - 40 - 60;

/// The place of the checksum in the header of TCP.
const CHECKSUM_OFFSET: u16 = 16;

/// ECT(0) (RFC 3168, 5).
const ECN_CAPABLE: u8 = 2;
