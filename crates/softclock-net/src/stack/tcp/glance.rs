//! A look at the header of a segment before it is processed.

use core::net::IpAddr;

use softclock_wire::packet::TCP;

use crate::ip;
use crate::link::Header as LinkHeader;
use crate::tcp::segment::Flags;
use crate::tcp::seq::Seq;

/// The fields of a header that decide how soon a segment must be processed. Not verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glance {
    pub(super) flags: Flags,
    pub(super) seq: Seq,
    pub(super) acknowledgment: Seq,
    pub(super) length: u32,
}

impl Glance {
    /// Reads the fields of a frame that the demultiplexer has classified as a segment of TCP.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(LinkHeader::BYTES..)?;
        let (start, end) = match *packet {
            [first @ 0x40..=0x4f, _, l0, l1, ..] => {
                let total = usize::from(u16::from_be_bytes([l0, l1]));
                (usize::from(first & 15) * 4, total)
            }
            [0x60..=0x6f, _, _, _, l0, l1, TCP, ..] => {
                (40, 40 + usize::from(u16::from_be_bytes([l0, l1])))
            }
            // Extension headers are rare.
            _ => {
                let parsed = ip::parse(packet).ok()?;
                (
                    parsed.header_bytes,
                    parsed.header_bytes + parsed.payload.len(),
                )
            }
        };
        let bytes = packet.get(start..end)?;
        let number = |at: usize| {
            let number = bytes.get(at..at + 4)?.first_chunk()?;
            Some(u32::from_be_bytes(*number))
        };
        let flags = number(12)? >> 16;
        let header_bytes = (flags >> 12) as usize * 4;
        Some(Self {
            flags: Flags((flags & 0x1ff) as u16),
            seq: Seq(number(4)?),
            acknowledgment: Seq(number(8)?),
            length: bytes.len().saturating_sub(header_bytes) as u32,
        })
    }
}

/// The source of a frame, which the demultiplexer has classified as a segment of TCP.
pub(super) fn source_of(frame: &[u8]) -> Option<IpAddr> {
    let packet = frame.get(LinkHeader::BYTES..)?;
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(*packet.get(12..)?.first_chunk::<4>()?)),
        6 => Some(IpAddr::from(*packet.get(8..)?.first_chunk::<16>()?)),
        _ => None,
    }
}

/// Whether a frame, which the demultiplexer has classified as a segment of TCP, opens a connection.
pub(in crate::stack) fn is_opening(frame: &[u8]) -> bool {
    let flags = Glance::of(frame).map(|glance| glance.flags);
    flags.is_some_and(|flags| flags.contains(Flags::SYN) && !flags.contains(Flags::ACK))
}
