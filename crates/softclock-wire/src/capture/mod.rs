//! Reads packets from captures in the formats pcap and pcapng, in both byte orders, with timestamps of any resolution;
//! writes captures in the format pcapng.
//!
//! The [`Decoder`] reads no files. The caller passes the bytes that it has read, and the decoder returns the packet or
//! other item at their beginning, so a file of any size is decoded in the memory of one block. No input causes a panic.
//! An error ends the decoding, because these formats have no markers by which to find the next packet.
//!
//! In pcapng, the decoder reads section headers, interface descriptions, and enhanced, simple and obsolete packet
//! blocks, and skips other blocks. In pcap, it reads the variants with microseconds and with nanoseconds.
//!
//! The [`Encoder`] appends packets to a buffer, as blocks of pcapng.
//!
//! [`Directions`] finds out the direction of each packet on the captured link.
//!
//! # Example
//! ```
//! use softclock_wire::capture::{Decoded, Decoder};
//!
//! // A pcap file in little-endian order, with one packet of 3 bytes.
//! let mut file: Vec<u8> = Vec::new();
//! for number in [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65_535, 1] {
//!     file.extend(number.to_le_bytes()); // magic, version 2.4, two unused fields, longest packet, Ethernet
//! }
//! for number in [10_u32, 500, 3, 60] {
//!     file.extend(number.to_le_bytes()); // seconds, microseconds, captured length, original length
//! }
//! file.extend([1, 2, 3]);
//!
//! let mut decoder = Decoder::new();
//! let mut rest = &file[..];
//! let mut lengths = Vec::new();
//! loop {
//!     match decoder.decode(rest)? {
//!         Decoded::Packet(packet, used) => {
//!             lengths.push((packet.data.len(), packet.original_bytes));
//!             rest = &rest[used..];
//!         }
//!         Decoded::Other(used) => rest = &rest[used..],
//!         // A program would read more of its file here.
//!         Decoded::More(_) => break,
//!     }
//! }
//! assert_eq!(lengths, [(3, 60)]);
//! # Ok::<(), softclock_wire::capture::CaptureError>(())
//! ```

mod direction;
mod encoder;
mod link;
mod pcap;
mod pcapng;

use core::fmt;

use softclock_core::Instant;

pub use direction::{Direction, Directions, Station};
pub use encoder::{Encoder, Heading, MOST_SNAP_BYTES, Record, whole_blocks};
pub use link::LinkType;

use pcap::Pcap;
use pcapng::Pcapng;

/// A packet of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The time at which the packet was captured, on the time scale of the capture, usually Unix time. Times before the
    /// scale's origin count as the origin. `None` for simple packet blocks of pcapng, which have no timestamp.
    pub at: Option<Instant>,
    /// The length that the packet had on the link.
    pub original_bytes: u32,
    /// The captured bytes of the packet, often only the first ones.
    pub data: &'a [u8],
    /// The type of the link, which determines the packet's first header.
    pub link: LinkType,
}

/// The item at the beginning of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded<'a> {
    /// A packet, and the number of input bytes that it takes.
    Packet(Packet<'a>, usize),
    /// A number of input bytes without a packet.
    Other(usize),
    /// An incomplete item. Decoding it needs at least this many bytes of input, more than there are.
    More(usize),
}

/// The reason why a capture cannot be decoded, or not any further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CaptureError {
    /// The input begins with the magic number of neither format.
    NotACapture,
    /// The input begins with the magic number of a compressed file.
    Compressed,
    /// The input has an unknown version of its format: major and minor number.
    Version(u16, u16),
    /// The length of a block, record or packet is impossible or above [`MOST_BLOCK_BYTES`]: the file is damaged.
    Length(u32),
    /// The lengths before and after a block differ: the file is damaged.
    Trailer(u32, u32),
    /// A packet belongs to an interface, given by its number, that the section does not describe.
    Interface(u32),
    /// A section describes more interfaces than [`MOST_INTERFACES`].
    TooManyInterfaces,
}

/// Decodes one capture; see the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    format: Option<Format>,
}

#[derive(Clone, Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl Decoder {
    /// Creates a decoder at the beginning of a capture.
    pub const fn new() -> Self {
        Self { format: None }
    }

    /// Decodes the item at the beginning of `input`, which must continue after the bytes that the call before has
    /// taken. Costs some nanoseconds per packet, and does not copy it.
    ///
    /// # Errors
    /// Returns an error if the capture is damaged here, or not a capture. Decoding cannot continue after it.
    #[inline]
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, CaptureError> {
        match &mut self.format {
            Some(Format::Pcap(pcap)) => pcap.decode(input),
            Some(Format::Pcapng(pcapng)) => pcapng.decode(input),
            None => self.begin(input),
        }
    }

    /// Finds out the format from the magic number, and decodes the first item.
    fn begin<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, CaptureError> {
        let Some(magic) = input.first_chunk::<4>() else {
            return Ok(Decoded::More(4));
        };
        if *magic == pcapng::SECTION_HEADER {
            self.format = Some(Format::Pcapng(Pcapng::new()));
            return self.decode(input);
        }
        if COMPRESSED.iter().any(|begin| magic.starts_with(begin)) {
            return Err(CaptureError::Compressed);
        }
        let Some(header) = input.first_chunk::<{ pcap::HEADER_BYTES }>() else {
            // Reports an input that is not a capture before it has a full header.
            pcap::order_and_unit(*magic)?;
            return Ok(Decoded::More(pcap::HEADER_BYTES));
        };
        self.format = Some(Format::Pcap(Pcap::new(header)?));
        Ok(Decoded::Other(pcap::HEADER_BYTES))
    }
}

/// A byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// Reads the number at this offset, which the caller has checked.
    #[inline]
    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = bytes[at..]
            .first_chunk()
            .expect("callers looked at the length");
        match self {
            Self::Little => u32::from_le_bytes(*bytes),
            Self::Big => u32::from_be_bytes(*bytes),
        }
    }

    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = bytes[at..]
            .first_chunk()
            .expect("callers looked at the length");
        match self {
            Self::Little => u16::from_le_bytes(*bytes),
            Self::Big => u16::from_be_bytes(*bytes),
        }
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACapture => f.write_str("neither a pcap nor a pcapng file"),
            Self::Compressed => f.write_str("a compressed file; decompress it first"),
            Self::Version(major, minor) => write!(f, "version {major}.{minor} is not known"),
            Self::Length(bytes) => write!(f, "damaged: a block cannot have {bytes} bytes"),
            Self::Trailer(before, after) => {
                write!(
                    f,
                    "damaged: a block of {before} bytes gives its length as {after} at its end"
                )
            }
            Self::Interface(number) => {
                write!(
                    f,
                    "damaged: a packet belongs to interface {number}, which is not described"
                )
            }
            Self::TooManyInterfaces => {
                write!(f, "more than {MOST_INTERFACES} interfaces in a section")
            }
        }
    }
}

impl core::error::Error for CaptureError {}

/// The longest block of pcapng or packet of pcap that is decoded. A reader's buffer must be able to hold this and 16
/// bytes.
pub const MOST_BLOCK_BYTES: u32 = 16 << 20;

/// The most interfaces of a section of pcapng.
pub const MOST_INTERFACES: usize = 1 << 16;

/// The magic numbers of gzip, zstd, xz and lz4.
const COMPRESSED: [&[u8]; 4] = [
    &[0x1f, 0x8b],
    &[0x28, 0xb5, 0x2f, 0xfd],
    &[0xfd, 0x37, 0x7a, 0x58],
    &[0x04, 0x22, 0x4d, 0x18],
];

#[cfg(test)]
mod tests;
