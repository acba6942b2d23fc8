//! Encodes packets in the format pcapng: a section with one interface, in little-endian order.

use alloc::vec::Vec;

use softclock_core::Instant;

use super::LinkType;
use super::pcapng::{
    END_OF_OPTIONS, ENHANCED_PACKET, INTERFACE_DESCRIPTION, SECTION_HEADER, TIME_RESOLUTION,
};

/// Encodes a capture in the format pcapng, with timestamps in nanoseconds.
///
/// The encoder writes no files: it appends whole blocks to a buffer of its caller, which holds nothing else. A capture
/// that is cut off after any block is readable.
///
/// # Example
/// ```
/// use softclock_core::Instant;
/// use softclock_wire::capture::{Decoded, Decoder, Encoder, Heading, LinkType, Record};
///
/// let mut capture = Vec::new();
/// let encoder = Encoder::begin(&mut capture, "eth0", LinkType::ETHERNET, 60);
/// let header = capture.len();
/// encoder.packet(&mut capture, &Record {
///     at: Instant::from_ns(1_700_000_000_000_000_000),
///     heading: Heading::Inbound,
///     original_bytes: 1500,
///     data: &[7; 1500],
///     missed: 0,
///     comment: Some("dropped: channel_full"),
/// });
///
/// let mut decoder = Decoder::new();
/// let mut rest = &capture[..];
/// let packet = loop {
///     match decoder.decode(rest)? {
///         Decoded::Packet(packet, _) => break packet,
///         Decoded::Other(used) => rest = &rest[used..],
///         Decoded::More(_) => unreachable!("the capture is whole"),
///     }
/// };
/// assert_eq!((packet.data, packet.original_bytes), (&[7; 60][..], 1500));
/// # Ok::<(), softclock_wire::capture::CaptureError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Encoder {
    snap_bytes: u32,
}

/// A packet to encode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The time at which the packet arrived or was sent, as Unix time.
    pub at: Instant,
    /// Whether the interface received or sent the packet.
    pub heading: Heading,
    /// The length that the packet had on the link.
    pub original_bytes: u32,
    /// The bytes of the packet. The encoder cuts them to the longest length of the capture.
    pub data: &'a [u8],
    /// The packets that the capture lacks between the record before and this one.
    pub missed: u64,
    /// A note for the reader. The encoder cuts it to 64 KiB.
    pub comment: Option<&'a str>,
}

/// Whether an interface received or sent a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heading {
    /// The interface received the packet.
    Inbound,
    /// The interface sent the packet.
    Outbound,
}

impl Encoder {
    /// Begins a capture of the interface `name`: appends the section header and the description of the interface. Of
    /// each packet, at most the first `snap_bytes` are captured, 1 to [`MOST_SNAP_BYTES`].
    pub fn begin(output: &mut Vec<u8>, name: &str, link: LinkType, snap_bytes: u32) -> Self {
        let snap_bytes = snap_bytes.clamp(1, MOST_SNAP_BYTES);
        block(output, u32::from_le_bytes(SECTION_HEADER), |body| {
            body.extend(BYTE_ORDER.to_le_bytes());
            // Version 1.0; the length of the section is unknown.
            body.extend(1_u16.to_le_bytes());
            body.extend(0_u16.to_le_bytes());
            body.extend(u64::MAX.to_le_bytes());
            option(body, APPLICATION, b"softclock");
            option(body, END_OF_OPTIONS, b"");
        });
        block(output, INTERFACE_DESCRIPTION, |body| {
            body.extend(link.0.to_le_bytes());
            body.extend(0_u16.to_le_bytes());
            body.extend(snap_bytes.to_le_bytes());
            option(body, INTERFACE_NAME, cut(name).as_bytes());
            option(body, TIME_RESOLUTION, &[NANOSECONDS]);
            option(body, END_OF_OPTIONS, b"");
        });
        Self { snap_bytes }
    }

    /// The most bytes of a packet that are captured.
    pub const fn snap_bytes(&self) -> u32 {
        self.snap_bytes
    }

    /// Appends the block of a packet. Its length depends on the packet: up to 66 bytes more than the captured bytes and
    /// the comment.
    pub fn packet(&self, output: &mut Vec<u8>, record: &Record<'_>) {
        let captured = record.data.len().min(self.snap_bytes as usize);
        block(output, ENHANCED_PACKET, |body| {
            let ticks = record.at.as_ns();
            body.extend(0_u32.to_le_bytes());
            body.extend(((ticks >> 32) as u32).to_le_bytes());
            body.extend((ticks as u32).to_le_bytes());
            body.extend((captured as u32).to_le_bytes());
            body.extend(record.original_bytes.to_le_bytes());
            body.extend(&record.data[..captured]);
            pad(body);
            let heading: u32 = match record.heading {
                Heading::Inbound => 1,
                Heading::Outbound => 2,
            };
            option(body, FLAGS, &heading.to_le_bytes());
            if record.missed > 0 {
                option(body, DROP_COUNT, &record.missed.to_le_bytes());
            }
            if let Some(comment) = record.comment {
                option(body, COMMENT, cut(comment).as_bytes());
            }
            option(body, END_OF_OPTIONS, b"");
        });
    }
}

/// The most bytes of a packet that an [`Encoder`] captures: as many as libpcap reads.
pub const MOST_SNAP_BYTES: u32 = 262_144;

/// The length of the whole blocks among the first `bytes` bytes of `blocks`, which an [`Encoder`] has appended from
/// there on. Tells where to cut a capture that could not be written to its end.
///
/// ```
/// use softclock_wire::capture::{Encoder, LinkType, whole_blocks};
///
/// let mut capture = Vec::new();
/// Encoder::begin(&mut capture, "eth0", LinkType::ETHERNET, 65_535);
/// let all = capture.len();
/// assert_eq!(whole_blocks(&capture, all), all);
/// assert!(whole_blocks(&capture, all - 1) < all - 1, "the last block is not whole");
/// ```
pub fn whole_blocks(blocks: &[u8], bytes: usize) -> usize {
    let mut whole = 0;
    while let Some(header) = blocks.get(whole..).and_then(<[u8]>::first_chunk::<8>) {
        let [.., a, b, c, d] = *header;
        let end = whole + u32::from_le_bytes([a, b, c, d]) as usize;
        if end > bytes || end == whole {
            break;
        }
        whole = end;
    }
    whole
}

/// Appends a block, whose length is before and after its body.
fn block(output: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = output.len();
    debug_assert!(start.is_multiple_of(4), "the output has whole blocks only");
    output.extend(kind.to_le_bytes());
    output.extend([0; 4]);
    body(output);
    let length = ((output.len() + 4 - start) as u32).to_le_bytes();
    output[start + 4..start + 8].copy_from_slice(&length);
    output.extend(length);
}

/// Appends an option of at most 65535 bytes.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

/// Fills up to a multiple of four bytes. The output has whole blocks before, whose lengths are such multiples, too.
fn pad(output: &mut Vec<u8>) {
    output.resize(output.len().next_multiple_of(4), 0);
}

/// The beginning of a text that fits into an option.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(u16::MAX.into());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The magic number that shows the order of bytes.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// The exponent of the unit of timestamps, 10^-9 s.
const NANOSECONDS: u8 = 9;

// Codes of options, each of its kind of block.
const COMMENT: u16 = 1;
const APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const FLAGS: u16 = 2;
const DROP_COUNT: u16 = 4;
