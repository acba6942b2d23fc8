//! Decodes the format pcap: a file header, then a record for each packet.

use softclock_core::Instant;

use super::{CaptureError, Decoded, LinkType, MOST_BLOCK_BYTES, Order, Packet};

#[derive(Clone, Debug)]
pub(super) struct Pcap {
    order: Order,
    link: LinkType,
    /// The unit of the fractional part of timestamps, in nanoseconds.
    unit_ns: u64,
    /// The longest captured packet. Longer ones mean that the file is damaged.
    most_bytes: u32,
}

impl Pcap {
    pub(super) fn new(header: &[u8; HEADER_BYTES]) -> Result<Self, CaptureError> {
        let (order, unit_ns) = order_and_unit([header[0], header[1], header[2], header[3]])?;
        let (major, minor) = (order.u16(header, 4), order.u16(header, 6));
        if major != 2 {
            return Err(CaptureError::Version(major, minor));
        }
        let snap_bytes = order.u32(header, 16);
        Ok(Self {
            order,
            // The upper 16 bits describe frame check sequences.
            link: LinkType(order.u32(header, 20) as u16),
            unit_ns,
            most_bytes: snap_bytes.clamp(USUAL_SNAP_BYTES, MOST_BLOCK_BYTES),
        })
    }

    #[inline]
    pub(super) fn decode<'a>(&self, input: &'a [u8]) -> Result<Decoded<'a>, CaptureError> {
        let Some(record) = input.first_chunk::<RECORD_BYTES>() else {
            return Ok(Decoded::More(RECORD_BYTES));
        };
        let number = |at| self.order.u32(record, at);
        let captured = number(8);
        if captured > self.most_bytes {
            return Err(CaptureError::Length(captured));
        }
        let end = RECORD_BYTES + captured as usize;
        let Some(data) = input.get(RECORD_BYTES..end) else {
            return Ok(Decoded::More(end));
        };
        // Cannot overflow: 2^32 s and 2^32 us are far below 2^64 ns.
        let at_ns = u64::from(number(0)) * 1_000_000_000 + u64::from(number(4)) * self.unit_ns;
        let packet = Packet {
            at: Some(Instant::from_ns(at_ns)),
            original_bytes: number(12),
            data,
            link: self.link,
        };
        Ok(Decoded::Packet(packet, end))
    }
}

/// Returns the byte order and the unit of timestamps, in nanoseconds, by the magic number.
pub(super) fn order_and_unit(magic: [u8; 4]) -> Result<(Order, u64), CaptureError> {
    match u32::from_le_bytes(magic) {
        MICROSECONDS => Ok((Order::Little, 1_000)),
        NANOSECONDS => Ok((Order::Little, 1)),
        swapped => match swapped.swap_bytes() {
            MICROSECONDS => Ok((Order::Big, 1_000)),
            NANOSECONDS => Ok((Order::Big, 1)),
            _ => Err(CaptureError::NotACapture),
        },
    }
}

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

pub(super) const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 16;

/// The default limit of tcpdump. Used if the file header gives a lower one, since some writers exceed theirs.
const USUAL_SNAP_BYTES: u32 = 262_144;
