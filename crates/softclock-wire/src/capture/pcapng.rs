//! Decodes the format pcapng: sections that consist of blocks.

use alloc::vec::Vec;

use softclock_core::Instant;

use super::{CaptureError, Decoded, LinkType, MOST_BLOCK_BYTES, MOST_INTERFACES, Order, Packet};

#[derive(Clone, Debug)]
pub(super) struct Pcapng {
    order: Order,
    /// The interfaces of the current section.
    interfaces: Vec<Interface>,
}

#[derive(Clone, Debug)]
struct Interface {
    link: LinkType,
    snap_bytes: u32,
    resolution: Resolution,
    offset_s: i64,
}

/// The unit of timestamps.
#[derive(Clone, Copy, Debug)]
enum Resolution {
    /// The unit is this many nanoseconds.
    Nanoseconds(u64),
    /// A nanosecond has this many units.
    InNanosecond(u128),
    /// A second has two to the power of this many units.
    BinaryFraction(u8),
}

impl Pcapng {
    pub(super) const fn new() -> Self {
        Self {
            order: Order::Little,
            interfaces: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, CaptureError> {
        let Some(begin) = input.first_chunk::<12>() else {
            return Ok(Decoded::More(12));
        };
        // The type of a section header reads the same in both byte orders; its magic number gives the order of the
        // section.
        let is_section = begin[..4] == SECTION_HEADER;
        if is_section {
            self.order = order_of([begin[8], begin[9], begin[10], begin[11]])?;
        }
        let length = self.order.u32(begin, 4);
        let least = if is_section { 28 } else { 12 };
        if length < least || !length.is_multiple_of(4) || length > MOST_BLOCK_BYTES {
            return Err(CaptureError::Length(length));
        }
        let end = length as usize;
        let Some(block) = input.get(..end) else {
            return Ok(Decoded::More(end));
        };
        let trailer = self.order.u32(block, end - 4);
        if trailer != length {
            return Err(CaptureError::Trailer(length, trailer));
        }
        let body = &block[8..end - 4];
        let packet = match self.order.u32(begin, 0) {
            ENHANCED_PACKET => self.enhanced_packet(body)?,
            SIMPLE_PACKET => self.simple_packet(body)?,
            OBSOLETE_PACKET => self.obsolete_packet(body)?,
            INTERFACE_DESCRIPTION => {
                self.describe_interface(body)?;
                return Ok(Decoded::Other(end));
            }
            _ if is_section => {
                self.begin_section(body)?;
                return Ok(Decoded::Other(end));
            }
            _ => return Ok(Decoded::Other(end)),
        };
        Ok(Decoded::Packet(packet, end))
    }

    fn begin_section(&mut self, body: &[u8]) -> Result<(), CaptureError> {
        let (major, minor) = (self.order.u16(body, 4), self.order.u16(body, 6));
        if major != 1 {
            return Err(CaptureError::Version(major, minor));
        }
        self.interfaces.clear();
        Ok(())
    }

    fn describe_interface(&mut self, body: &[u8]) -> Result<(), CaptureError> {
        let order = self.order;
        require(body, 8)?;
        if self.interfaces.len() == MOST_INTERFACES {
            return Err(CaptureError::TooManyInterfaces);
        }
        let mut interface = Interface {
            link: LinkType(order.u16(body, 0)),
            snap_bytes: order.u32(body, 4),
            resolution: Resolution::Nanoseconds(1_000),
            offset_s: 0,
        };
        // Options that are cut off end the list. They do not matter enough to refuse the capture.
        let mut options = &body[8..];
        while options.len() >= 4 {
            let (code, length) = (order.u16(options, 0), usize::from(order.u16(options, 2)));
            let Some(value) = options.get(4..4 + length) else {
                break;
            };
            match (code, value) {
                (END_OF_OPTIONS, _) => break,
                (TIME_RESOLUTION, &[resolution]) => {
                    interface.resolution = Resolution::of(resolution);
                }
                (TIME_OFFSET, value) if length == 8 => {
                    let (first, second) = (order.u32(value, 0), order.u32(value, 4));
                    let (high, low) = match order {
                        Order::Little => (second, first),
                        Order::Big => (first, second),
                    };
                    interface.offset_s = (u64::from(high) << 32 | u64::from(low)) as i64;
                }
                _ => {}
            }
            let next = 4 + length.next_multiple_of(4);
            options = options.get(next..).unwrap_or_default();
        }
        self.interfaces.push(interface);
        Ok(())
    }

    #[inline]
    fn enhanced_packet<'a>(&self, body: &'a [u8]) -> Result<Packet<'a>, CaptureError> {
        require(body, 20)?;
        self.packet_of(self.order.u32(body, 0), body)
    }

    fn obsolete_packet<'a>(&self, body: &'a [u8]) -> Result<Packet<'a>, CaptureError> {
        require(body, 20)?;
        // The field has 16 bits here; the next 16 count dropped packets.
        self.packet_of(self.order.u16(body, 0).into(), body)
    }

    /// Decodes the fields after the interface's number, which enhanced and obsolete packet blocks have in common.
    #[inline]
    fn packet_of<'a>(&self, interface: u32, body: &'a [u8]) -> Result<Packet<'a>, CaptureError> {
        let number = |at| self.order.u32(body, at);
        let interface = self.interface(interface)?;
        let captured = number(12);
        let data = body[20..].get(..captured as usize);
        let ticks = u64::from(number(4)) << 32 | u64::from(number(8));
        Ok(Packet {
            at: Some(interface.instant(ticks)),
            original_bytes: number(16),
            data: data.ok_or(CaptureError::Length(captured))?,
            link: interface.link,
        })
    }

    fn simple_packet<'a>(&self, body: &'a [u8]) -> Result<Packet<'a>, CaptureError> {
        require(body, 4)?;
        let interface = self.interface(0)?;
        let original_bytes = self.order.u32(body, 0);
        // Simple packet blocks have no captured length: it follows from the interface's limit, where 0 means none.
        let captured = match interface.snap_bytes {
            0 => original_bytes,
            snap_bytes => original_bytes.min(snap_bytes),
        };
        let data = body[4..].get(..captured as usize);
        Ok(Packet {
            at: None,
            original_bytes,
            data: data.ok_or(CaptureError::Length(captured))?,
            link: interface.link,
        })
    }

    #[inline]
    fn interface(&self, number: u32) -> Result<&Interface, CaptureError> {
        let interface = self.interfaces.get(number as usize);
        interface.ok_or(CaptureError::Interface(number))
    }
}

impl Interface {
    #[inline]
    fn instant(&self, ticks: u64) -> Instant {
        let ns = match self.resolution {
            Resolution::Nanoseconds(ns) => u128::from(ticks) * u128::from(ns),
            Resolution::InNanosecond(number) => u128::from(ticks) / number,
            Resolution::BinaryFraction(power) => (u128::from(ticks) * 1_000_000_000) >> power,
        };
        // Cannot overflow: `ns` is below 2^94, as `ticks` is below 2^64 and no unit is longer than a second.
        let ns = ns as i128 + i128::from(self.offset_s) * 1_000_000_000;
        Instant::from_ns(ns.clamp(0, u64::MAX.into()) as u64)
    }
}

impl Resolution {
    /// Converts the value of the option: the exponent of a negative power of 10, or of 2 if the highest bit is set.
    fn of(byte: u8) -> Self {
        let power = byte & 0x7f;
        match power {
            _ if byte != power => Self::BinaryFraction(power),
            0..=9 => Self::Nanoseconds(10u64.pow(9 - u32::from(power))),
            _ => Self::InNanosecond(10u128.saturating_pow(u32::from(power) - 9)),
        }
    }
}

/// Returns the byte order of a section by its magic number.
fn order_of(magic: [u8; 4]) -> Result<Order, CaptureError> {
    match magic {
        [0x4d, 0x3c, 0x2b, 0x1a] => Ok(Order::Little),
        [0x1a, 0x2b, 0x3c, 0x4d] => Ok(Order::Big),
        _ => Err(CaptureError::NotACapture),
    }
}

/// Checks that a block's body has room for its fields.
#[inline]
fn require(body: &[u8], bytes: usize) -> Result<(), CaptureError> {
    match body.len() < bytes {
        true => Err(CaptureError::Length(body.len() as u32 + 12)),
        false => Ok(()),
    }
}

/// The block type of a section header, which reads the same in both byte orders.
pub(super) const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;

pub(super) const END_OF_OPTIONS: u16 = 0;
pub(super) const TIME_RESOLUTION: u16 = 9;
const TIME_OFFSET: u16 = 14;
