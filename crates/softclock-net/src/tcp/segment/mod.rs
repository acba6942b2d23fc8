//! Segments: the header, its options, and the payload (RFC 9293, 3.1); from bytes by [`parse`], to bytes by [`emit`].

mod emit;
mod parse;
mod reply;

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

pub use emit::{emit, emit_offloaded, header_bytes};
pub use parse::parse;
pub use reply::Reply;

use super::seq::Seq;

/// A segment of TCP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// The fields of fixed size.
    pub header: Header,
    /// The options that this stack understands.
    pub options: Options,
    /// The bytes behind the options.
    pub payload: &'a [u8],
}

impl Segment<'_> {
    /// The sequence numbers that the segment takes: its bytes, and one each for SYN and FIN (SEG.LEN).
    pub fn sequence_length(&self) -> u32 {
        let flags = self.header.flags;
        let controls = [Flags::SYN, Flags::FIN].map(|flag| u32::from(flags.contains(flag)));
        self.payload.len() as u32 + controls.iter().sum::<u32>()
    }
}

/// The fields of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The port of the sender.
    pub source_port: u16,
    /// The port of the receiver.
    pub destination_port: u16,
    /// The position of the first byte, or of SYN (SEG.SEQ).
    pub sequence: Seq,
    /// The position that the sender expects next, if [`Flags::ACK`] is set (SEG.ACK).
    pub acknowledgment: Seq,
    /// The control bits.
    pub flags: Flags,
    /// The window, in units that the handshake has agreed on (SEG.WND, unscaled).
    pub window: u16,
    /// The urgent pointer (RFC 6093).
    pub urgent: u16,
}

/// The control bits of a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u16);

impl Flags {
    /// No more bytes follow.
    pub const FIN: Self = Self(1);
    /// The first segment, which names the initial sequence number.
    pub const SYN: Self = Self(1 << 1);
    /// The connection does not exist, or is aborted.
    pub const RST: Self = Self(1 << 2);
    /// The sender has no more bytes at present.
    pub const PSH: Self = Self(1 << 3);
    /// The acknowledgment field is valid.
    pub const ACK: Self = Self(1 << 4);
    /// The urgent pointer is valid.
    pub const URG: Self = Self(1 << 5);
    /// A packet arrived with congestion experienced (RFC 3168).
    pub const ECE: Self = Self(1 << 6);
    /// The sender has reduced its window after ECE (RFC 3168).
    pub const CWR: Self = Self(1 << 7);
    /// The third bit of the counter of AccECN (RFC 9768), formerly NS.
    pub const AE: Self = Self(1 << 8);

    /// No flags.
    pub const fn empty() -> Self {
        Self(0)
    }

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE"];
        let mut list = f.debug_set();
        for (bit, name) in names.iter().enumerate() {
            if self.contains(Self(1 << bit)) {
                list.entry(&format_args!("{name}"));
            }
        }
        list.finish()
    }
}

/// The options of a segment that this stack understands. Others are skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The longest payload that the sender takes, in bytes (RFC 9293, 3.7.1); only with SYN.
    pub mss: Option<u16>,
    /// The shift of the sender's windows (RFC 7323, 2); only with SYN.
    pub window_scale: Option<u8>,
    /// Whether the sender understands selective acknowledgments (RFC 2018, 2); only with SYN.
    pub is_sack_permitted: bool,
    /// The times of the sender (RFC 7323, 3).
    pub timestamps: Option<Timestamps>,
    /// The ranges that have arrived beyond the acknowledgment (RFC 2018, 3; RFC 2883).
    pub sack: SackBlocks,
}

/// The option of time stamps (RFC 7323, 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timestamps {
    /// The clock of the sender (TSval).
    pub value: u32,
    /// The newest value from the other end that is in order (TSecr).
    pub echo: u32,
}

/// A range of sequence numbers: `start` included, `end` excluded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SackBlock {
    /// The first position.
    pub start: Seq,
    /// The position behind the last.
    pub end: Seq,
}

/// At most four ranges, as many as the header has room for.
#[derive(Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [SackBlock; Self::MOST],
    length: u8,
}

impl SackBlocks {
    /// The most ranges. With time stamps, a header has room for three.
    pub const MOST: usize = 4;

    /// Appends a range; returns whether there was room.
    pub fn push(&mut self, block: SackBlock) -> bool {
        let place = self.blocks.get_mut(usize::from(self.length));
        let has_room = place.is_some();
        if let Some(place) = place {
            *place = block;
            self.length += 1;
        }
        has_room
    }

    /// Keeps at most this many ranges.
    pub fn truncate(&mut self, most: usize) {
        self.length = self.length.min(most as u8);
    }

    /// The ranges, in the order of the header.
    pub fn as_slice(&self) -> &[SackBlock] {
        self.blocks
            .get(..usize::from(self.length))
            .unwrap_or_default()
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The length of a header without options.
pub const HEADER_BYTES: usize = 20;

/// The most bytes of options that a header has room for.
pub const MOST_OPTION_BYTES: usize = 40;

/// The numbers of the options that this stack understands.
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
}

#[cfg(test)]
mod tests;
