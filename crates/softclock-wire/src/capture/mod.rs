//! Packets of captures: the formats pcap and pcapng, in both byte orders, in stamps of any resolution.
//!
//! The [`Decoder`] reads no file: it is given what was read so far and says what stands at its front, so that files of any
//! size are decoded in the memory of one block. No input panics; what is at odds with the format ends the decoding, since
//! there is nothing in these formats to find the next packet by.
//!
//! Of pcapng it reads section headers, interface descriptions, and enhanced, simple and obsolete packet blocks; others are
//! passed over. Of pcap, the variants with microseconds and nanoseconds.
//!
//! [`Directions`] tells the two directions of the captured link apart.

mod direction;
mod link;
mod pcap;
mod pcapng;

use core::fmt;

use softclock_core::Instant;

pub use direction::{Direction, Directions, Station};
pub use link::LinkType;

use pcap::Pcap;
use pcapng::Pcapng;

/// One packet of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// When it was captured, on the scale of the capture (most often since 1970); times before that scale's origin are at
    /// it. `None` for simple packet blocks, which do not say.
    pub at: Option<Instant>,
    /// Its length when it was captured.
    pub original_bytes: u32,
    /// What was kept of it.
    pub data: &'a [u8],
    /// What it begins with.
    pub link: LinkType,
}

/// What stands at the front of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded<'a> {
    /// A packet, which takes so many bytes of the input.
    Packet(Packet<'a>, usize),
    /// So many bytes without a packet.
    Other(usize),
    /// It needs at least so many bytes of input, more than there are.
    More(usize),
}

/// Why a capture cannot be read, or not on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureError {
    /// It begins like neither format.
    NotACapture,
    /// It begins like a file that is compressed.
    Compressed,
    /// It is of a version of the format that nobody else writes either.
    Version(u16, u16),
    /// A length that is none, or above [`MOST_BLOCK_BYTES`]: the file is damaged.
    Length(u32),
    /// The length after a block is not the one before it: the file is damaged.
    Trailer(u32, u32),
    /// A packet of an interface that is not described.
    Interface(u32),
    /// More interfaces in a section than [`MOST_INTERFACES`].
    TooManyInterfaces,
}

/// The decoder of one capture; see the [module](self).
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
    /// At the beginning of a capture.
    pub const fn new() -> Self {
        Self { format: None }
    }

    /// Decodes what stands at the front of `input`, which goes on where the bytes that were taken ended. A packet costs
    /// some nanoseconds.
    ///
    /// # Errors
    /// The capture is damaged or none, from here on.
    #[inline]
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, CaptureError> {
        match &mut self.format {
            Some(Format::Pcap(pcap)) => pcap.decode(input),
            Some(Format::Pcapng(pcapng)) => pcapng.decode(input),
            None => self.begin(input),
        }
    }

    /// Which format it is.
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
            // What is no capture is told early.
            pcap::order_and_unit(*magic)?;
            return Ok(Decoded::More(pcap::HEADER_BYTES));
        };
        self.format = Some(Format::Pcap(Pcap::new(header)?));
        Ok(Decoded::Other(pcap::HEADER_BYTES))
    }
}

/// Which end of a number comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// The number at this place, which is there.
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
            Self::Length(bytes) => write!(f, "damaged: {bytes} bytes are no length of a block"),
            Self::Trailer(before, after) => {
                write!(
                    f,
                    "damaged: a block of {before} bytes ends as one of {after}"
                )
            }
            Self::Interface(number) => {
                write!(
                    f,
                    "damaged: a packet of interface {number}, which is not described"
                )
            }
            Self::TooManyInterfaces => {
                write!(f, "more than {MOST_INTERFACES} interfaces in a section")
            }
        }
    }
}

impl core::error::Error for CaptureError {}

/// The longest block, or record of pcap: more than any packet, and what a reader's buffer may have to hold.
pub const MOST_BLOCK_BYTES: u32 = 16 << 20;

/// Interfaces of a section.
pub const MOST_INTERFACES: usize = 1 << 16;

/// How gzip, zstd, xz and lz4 begin.
const COMPRESSED: [&[u8]; 4] = [
    &[0x1f, 0x8b],
    &[0x28, 0xb5, 0x2f, 0xfd],
    &[0xfd, 0x37, 0x7a, 0x58],
    &[0x04, 0x22, 0x4d, 0x18],
];

#[cfg(test)]
mod tests;
