//! Checks of each segment that a stack sends.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use super::application::byte_at;
use crate::checksum::Verify;
use crate::ip;
use crate::link::Header as LinkHeader;
use crate::tcp::segment::{self, Flags, Segment};
use crate::tcp::seq::Seq;

/// What was seen of one direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    /// The number of the SYN.
    initial: Option<Seq>,
    /// The place behind the last byte or FIN sent.
    end: Seq,
    fin: Option<Seq>,
    /// The shift of the windows that it states, unless the peer has not offered any.
    scale: Option<u8>,
    /// The rightmost edge of the windows that it has offered. The latest may be less by less than the unit of the scale.
    edge: Option<Seq>,
    acknowledged: Option<Seq>,
    /// A reset by a host that knows nothing of the connection: without an acknowledgment, at the number behind its SYN.
    was_refused: bool,
    has_reset: bool,
}

/// The segments of all connections of two hosts, by the port of the first host.
#[derive(Default)]
pub(super) struct Wire {
    connections: BTreeMap<u16, [Half; 2]>,
    pub(super) segments: u64,
}

impl Wire {
    /// Checks a frame that a host sends. `streams` are those of the connection with this port.
    pub(super) fn on_sent(
        &mut self,
        from: usize,
        frame: &[u8],
        streams: impl Fn(u16) -> Option<[(u64, u64); 2]>,
    ) {
        let packet = ip::parse(&frame[LinkHeader::BYTES..]).expect("a valid packet");
        let segment = segment::parse(packet.addresses, packet.payload, Verify::Yes);
        let segment = segment.expect("a valid segment");
        self.segments += 1;
        let header = &segment.header;
        let port = [header.source_port, header.destination_port][from];
        let halves = self.connections.entry(port).or_default();
        let (own, peer) = match halves {
            [first, second] if from == 0 => (first, &*second),
            [first, second] => (second, &*first),
        };
        if header.flags.contains(Flags::RST) {
            let is_first = own
                .initial
                .is_none_or(|initial| header.sequence == initial + 1);
            own.has_reset = true;
            own.was_refused |= is_first && !header.flags.contains(Flags::ACK);
            return;
        }
        // Late copies of segments may begin a second connection with other numbers when this one is over.
        if own.has_reset || peer.has_reset || own.is_closed_by(peer) {
            return;
        }
        if header.flags.contains(Flags::SYN) {
            own.on_syn(&segment);
            return;
        }
        let (stream, length) = streams(port).expect("a known connection")[from];
        own.on_sequence(&segment, (stream, length));
        own.on_acknowledgment(&segment, peer);
    }

    /// Whether the second host has refused a connection as one that it does not know.
    pub(super) fn was_refused(&self, port: u16) -> bool {
        let halves = self.connections.get(&port);
        halves.is_some_and(|[_, second]| second.was_refused)
    }
}

/// A segment in a line of text. `None`: the frame has none.
pub(super) fn describe(frame: &[u8]) -> Option<String> {
    let packet = ip::parse(frame.get(LinkHeader::BYTES..)?).ok()?;
    let segment = segment::parse(packet.addresses, packet.payload, Verify::Yes).ok()?;
    let header = segment.header;
    Some(format!(
        "{} > {} {:?} seq {} len {} ack {} win {} {:?}",
        header.source_port,
        header.destination_port,
        header.flags,
        header.sequence.0,
        segment.payload.len(),
        header.acknowledgment.0,
        header.window,
        segment.options,
    ))
}

impl Half {
    /// Whether both ends have closed their halves, and the peer has acknowledged this end's FIN.
    fn is_closed_by(&self, peer: &Self) -> bool {
        let is_acked = |fin: Seq| peer.acknowledged.is_some_and(|at| fin.is_at_or_before(at));
        peer.fin.is_some() && self.fin.is_some_and(is_acked)
    }

    fn on_syn(&mut self, segment: &Segment<'_>) {
        let initial = segment.header.sequence;
        assert!(
            self.initial.is_none_or(|before| before == initial),
            "another ISN: {initial:?} in {self:?}"
        );
        assert!(segment.payload.is_empty());
        self.initial = Some(initial);
        if self.end == Seq(0) {
            self.end = initial + 1;
        }
        self.scale = segment.options.window_scale;
    }

    /// Each byte is that of its place, also when it is sent again; FIN keeps its place.
    fn on_sequence(&mut self, segment: &Segment<'_>, (stream, length): (u64, u64)) {
        let header = &segment.header;
        let initial = self.initial.expect("SYN comes first");
        // A keep-alive probe repeats the number before.
        let is_probe = header.sequence + 1 == self.end && segment.payload.is_empty();
        let place = u64::from(header.sequence.since(initial + 1));
        assert!(
            place <= length + 1 || (is_probe && length == 0),
            "beyond the stream: {place}"
        );
        for (place, &byte) in (place..).zip(segment.payload) {
            assert!(place < length, "sent beyond the stream: {place}");
            assert_eq!(byte, byte_at(stream, place), "sent at {place}");
        }
        let end = header.sequence + segment.sequence_length();
        if header.flags.contains(Flags::FIN) {
            assert!(self.fin.is_none_or(|fin| fin == end), "FIN moves");
            let has_all = u64::from(end.since(initial + 2)) == length;
            assert!(has_all, "FIN before the last byte: {}", end.since(initial));
            self.fin = Some(end);
        }
        self.end = self.end.max(end);
    }

    /// Acknowledges nothing that was not sent; neither the acknowledgment nor the right edge of the window moves back.
    fn on_acknowledgment(&mut self, segment: &Segment<'_>, peer: &Self) {
        let header = &segment.header;
        assert!(header.flags.contains(Flags::ACK));
        let acknowledgment = header.acknowledgment;
        if peer.initial.is_some() {
            assert!(
                acknowledgment.is_at_or_before(peer.end),
                "acknowledges the future"
            );
        }
        if let Some(before) = self.acknowledged {
            assert!(before.is_at_or_before(acknowledgment), "acknowledges less");
        }
        self.acknowledged = Some(acknowledgment);
        let shift = match (self.scale, peer.scale) {
            (Some(own), Some(_)) => own,
            _ => 0,
        };
        let edge = acknowledgment + (u32::from(header.window) << shift);
        if let Some(before) = self.edge {
            assert!(
                before.is_before(edge + (1 << shift)),
                "the window shrinks by {} of {}",
                before.since(edge),
                u32::from(header.window) << shift,
            );
        }
        self.edge = Some(self.edge.map_or(edge, |before| before.max(edge)));
        for block in segment.options.sack.as_slice() {
            assert!(block.start.is_before(block.end), "an empty block");
            assert!(block.end.is_at_or_before(peer.end), "reports the future");
        }
    }
}
