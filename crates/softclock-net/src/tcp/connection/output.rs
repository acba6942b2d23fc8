//! Segments to send: one at a time.

use alloc::vec::Vec;
use core::ops::Deref;

use softclock_core::Instant;

use super::{Connection, Open, Phase};
use crate::tcp::receive::AckNeed;
use crate::tcp::segment::{Flags, Header, Options, SackBlocks, Timestamps, header_bytes};
use crate::tcp::send::{RetransmissionCause, Transmit, TransmitKind};
use crate::tcp::state::State;

/// A segment to send. [`Connection::copy_payload`] appends its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The header.
    pub header: Header,
    /// The options.
    pub options: Options,
    /// The length of the payload.
    pub length: u32,
    /// Whether the packet may be marked instead of dropped: ECT(0) (RFC 3168, 6.1.5: new data only).
    pub is_ecn_capable: bool,
    /// Why it is sent again, if it was sent before.
    pub cause: Option<RetransmissionCause>,
}

impl Outgoing {
    pub(super) const fn without_payload(header: Header, options: Options) -> Self {
        Self {
            header,
            options,
            length: 0,
            is_ecn_capable: false,
            cause: None,
        }
    }
}

impl<B: Deref<Target = [u8]>> Connection<B> {
    /// The next segment to send now. `None` also if one waits for its time: see [`next_timeout`](Self::next_timeout).
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            return self.poll_syn(now);
        }
        if self.state == State::Closed {
            return None;
        }
        let timestamp = self.timestamp(now);
        let header = self.header(Flags::ACK);
        let may_send = self.state != State::TimeWait;
        let Phase::Open(open) = &mut self.phase else {
            return None;
        };
        let is_ack_due = open.receiver.ack_need() == AckNeed::Now;
        // Selective acknowledgments do not fit beside a full segment, so they go ahead of data.
        if is_ack_due && open.receiver.has_gap() {
            return Some(open.acknowledgment(header, timestamp));
        }
        if may_send && let Some(transmit) = open.sender.poll_transmit(now) {
            return Some(open.data(header, timestamp, &transmit));
        }
        if core::mem::take(&mut open.flags.is_probe_due) {
            return Some(open.keep_alive(header, timestamp));
        }
        let is_due = is_ack_due || (may_send && open.receiver.window_update_is_due());
        is_due.then(|| open.acknowledgment(header, timestamp))
    }

    /// Appends the payload of a segment that [`poll_transmit`](Self::poll_transmit) has just returned.
    pub fn copy_payload(&self, segment: &Outgoing, out: &mut Vec<u8>) {
        if let Phase::Open(open) = &self.phase {
            let seq = segment.header.sequence;
            open.sender.copy_payload(seq, segment.length, out);
        }
    }

    /// The longest payload to send, before the options of the segment.
    pub(super) fn send_mss(&self, peer_mss: u16) -> u16 {
        let own = self.settings.offer(self.mtu.into(), self.is_v4()).mss;
        peer_mss.min(own)
    }
}

impl<B: Deref<Target = [u8]>> Open<B> {
    /// A segment with data, FIN, or a byte beyond the window.
    fn data(&mut self, header: Header, timestamp: u32, transmit: &Transmit) -> Outgoing {
        let mut outgoing = self.segment(header, timestamp, transmit.length);
        outgoing.header.sequence = transmit.seq;
        outgoing.length = transmit.length;
        outgoing.cause = transmit.cause;
        let flags = &mut outgoing.header.flags;
        if transmit.push {
            *flags |= Flags::PSH;
        }
        if transmit.fin {
            *flags |= Flags::FIN;
        }
        if transmit.kind == TransmitKind::New && transmit.length > 0 && self.flags.has_ecn {
            outgoing.is_ecn_capable = true;
        }
        if transmit.cwr {
            *flags |= Flags::CWR;
        }
        outgoing
    }

    /// A segment without data.
    fn acknowledgment(&mut self, header: Header, timestamp: u32) -> Outgoing {
        let mut outgoing = self.segment(header, timestamp, 0);
        outgoing.header.sequence = self.sender.next();
        if let Some(left) = self.extra_acks.checked_sub(1) {
            self.extra_acks = left;
            self.receiver.request_ack();
        }
        outgoing
    }

    /// An acknowledgment with the number of a byte that the peer has: it must answer (RFC 9293, 3.8.4).
    fn keep_alive(&mut self, header: Header, timestamp: u32) -> Outgoing {
        let mut outgoing = self.segment(header, timestamp, 0);
        outgoing.header.sequence = self.sender.next() - 1;
        outgoing
    }

    /// The parts that all segments of an open connection share. Counts as the acknowledgment of all that has arrived.
    fn segment(&mut self, header: Header, timestamp: u32, length: u32) -> Outgoing {
        let timestamps = self.paws().map(|paws| Timestamps {
            value: timestamp,
            echo: paws.recent(),
        });
        let mut options = Options {
            timestamps,
            ..Options::default()
        };
        // The longest payload leaves room for time stamps. The peer's MSS bounds the sum of options and payload
        // (RFC 9293, 3.7.1), so selective acknowledgments have the place of bytes that are missing in the payload.
        let room = u32::from(self.sender.mss()) + header_bytes(&options) as u32;
        if self.flags.has_sack && header_bytes(&options) as u32 + length + ONE_BLOCK_BYTES <= room {
            options.sack = self.sack_blocks(&options, room - length);
        }
        let mut flags = header.flags;
        if self.flags.must_echo_ecn {
            flags |= Flags::ECE;
        }
        let header = Header {
            acknowledgment: self.receiver.next(),
            window: self.receiver.advertise(),
            flags,
            ..header
        };
        self.receiver.on_ack_sent();
        Outgoing::without_payload(header, options)
    }

    /// As many ranges as fit into `room` bytes of header.
    fn sack_blocks(&mut self, options: &Options, room: u32) -> SackBlocks {
        let mut blocks = self.receiver.sack_blocks();
        let bytes = |blocks: SackBlocks| {
            header_bytes(&Options {
                sack: blocks,
                ..*options
            }) as u32
        };
        while !blocks.as_slice().is_empty() && bytes(blocks) > room {
            blocks.truncate(blocks.as_slice().len() - 1);
        }
        blocks
    }
}

/// One range of selective acknowledgment, aligned.
const ONE_BLOCK_BYTES: u32 = 12;
