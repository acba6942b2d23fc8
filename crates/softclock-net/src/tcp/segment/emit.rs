//! From segments to bytes.

use alloc::vec::Vec;

use softclock_wire::packet::TCP;

use super::{HEADER_BYTES, Header, MOST_OPTION_BYTES, Options, kind};
use crate::checksum::{Addresses, pseudo_header_sum, transport_checksum};

/// Appends a segment with its checksum to `out`. `payload` appends the bytes behind the header.
///
/// The options are in the order of Linux, each aligned: segment size, permission of selective acknowledgments, time
/// stamps, window scale, blocks. Blocks for which the header has no room are left out.
///
/// ```
/// use softclock_net::checksum::{Addresses, Verify};
/// use softclock_net::tcp::segment::{self, Flags, Header, Options};
/// use softclock_net::tcp::seq::Seq;
///
/// let addresses = Addresses {
///     source: "10.0.0.1".parse()?,
///     destination: "10.0.0.2".parse()?,
/// };
/// let header = Header {
///     source_port: 40_000,
///     destination_port: 80,
///     sequence: Seq(7),
///     flags: Flags::ACK | Flags::PSH,
///     ..Header::default()
/// };
/// let mut bytes = Vec::new();
/// segment::emit(addresses, &header, &Options::default(), |out| out.extend(b"GET /"), &mut bytes);
///
/// let parsed = segment::parse(addresses, &bytes, Verify::Yes).unwrap();
/// assert_eq!((parsed.header, parsed.payload), (header, &b"GET /"[..]));
/// # Ok::<(), core::net::AddrParseError>(())
/// ```
pub fn emit(
    addresses: Addresses,
    header: &Header,
    options: &Options,
    payload: impl FnOnce(&mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let start = emit_unsummed(header, options, payload, out);
    let segment = out.get(start..).unwrap_or_default();
    let checksum = transport_checksum(addresses, TCP, segment);
    put_checksum(out, start, checksum);
}

/// Like [`emit`], for a device that computes checksums, and that may cut the segment into several: the checksum field
/// holds the sum of the pseudo-header only.
pub fn emit_offloaded(
    addresses: Addresses,
    header: &Header,
    options: &Options,
    payload: impl FnOnce(&mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let start = emit_unsummed(header, options, payload, out);
    let length = out.len().saturating_sub(start) as u32;
    put_checksum(out, start, pseudo_header_sum(addresses, TCP, length));
}

/// The length of the header with these options, in bytes: 20 to 60, and a multiple of 4.
pub fn header_bytes(options: &Options) -> usize {
    HEADER_BYTES + option_bytes_without_sack(options) + sack_bytes(sack_blocks(options))
}

/// Appends a segment whose checksum is zero, and returns where it starts.
fn emit_unsummed(
    header: &Header,
    options: &Options,
    payload: impl FnOnce(&mut Vec<u8>),
    out: &mut Vec<u8>,
) -> usize {
    let start = out.len();
    let header_bytes = header_bytes(options);
    out.extend(header.source_port.to_be_bytes());
    out.extend(header.destination_port.to_be_bytes());
    out.extend(header.sequence.0.to_be_bytes());
    out.extend(header.acknowledgment.0.to_be_bytes());
    // The flags take 9 bits. The upper 4 bits are the length of the header, in words of 4 bytes.
    let flags = header.flags.0 & 0x1ff;
    out.extend(((header_bytes as u16 / 4) << 12 | flags).to_be_bytes());
    out.extend(header.window.to_be_bytes());
    out.extend([0, 0]);
    out.extend(header.urgent.to_be_bytes());
    emit_options(options, out);
    debug_assert_eq!(out.len() - start, header_bytes);
    payload(out);
    start
}

fn emit_options(options: &Options, out: &mut Vec<u8>) {
    if let Some(mss) = options.mss {
        let [m0, m1] = mss.to_be_bytes();
        out.extend([kind::MSS, 4, m0, m1]);
    }
    // The permission takes the place of two NOPs before the time stamps.
    match (options.is_sack_permitted, options.timestamps) {
        (false, None) => {}
        (true, None) => out.extend([kind::NOP, kind::NOP, kind::SACK_PERMITTED, 2]),
        (is_sack_permitted, Some(times)) => {
            out.extend(match is_sack_permitted {
                true => [kind::SACK_PERMITTED, 2],
                false => [kind::NOP, kind::NOP],
            });
            out.extend([kind::TIMESTAMPS, 10]);
            out.extend(times.value.to_be_bytes());
            out.extend(times.echo.to_be_bytes());
        }
    }
    if let Some(shift) = options.window_scale {
        out.extend([kind::NOP, kind::WINDOW_SCALE, 3, shift]);
    }
    let blocks = sack_blocks(options);
    if blocks > 0 {
        out.extend([kind::NOP, kind::NOP, kind::SACK, 2 + 8 * blocks as u8]);
        for block in options.sack.as_slice().iter().take(blocks) {
            out.extend(block.start.0.to_be_bytes());
            out.extend(block.end.0.to_be_bytes());
        }
    }
}

fn option_bytes_without_sack(options: &Options) -> usize {
    let mss = if options.mss.is_some() { 4 } else { 0 };
    let sack_and_times = match (options.is_sack_permitted, options.timestamps) {
        (false, None) => 0,
        (true, None) => 4,
        (_, Some(_)) => 12,
    };
    let window_scale = if options.window_scale.is_some() { 4 } else { 0 };
    mss + sack_and_times + window_scale
}

/// The number of blocks for which there is room.
fn sack_blocks(options: &Options) -> usize {
    let room = MOST_OPTION_BYTES - option_bytes_without_sack(options);
    let fitting = room.saturating_sub(4) / 8;
    options.sack.as_slice().len().min(fitting)
}

fn sack_bytes(blocks: usize) -> usize {
    match blocks {
        0 => 0,
        blocks => 4 + 8 * blocks,
    }
}

fn put_checksum(out: &mut [u8], start: usize, checksum: u16) {
    if let Some(field) = out.get_mut(start + 16..start + 18) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}
