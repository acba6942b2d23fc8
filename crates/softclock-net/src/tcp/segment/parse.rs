//! From bytes to segments.

use softclock_wire::packet::TCP;

use super::{
    Flags, HEADER_BYTES, Header, MOST_OPTION_BYTES, Options, SackBlock, SackBlocks, Segment, Seq,
    Timestamps, kind,
};
use crate::checksum::{Addresses, Verify, is_transport_checksum_right};
use crate::drops::DropReason;
use crate::tcp::peer::MOST_WINDOW_SCALE;

/// Parses a segment: the payload of an IP packet.
///
/// Unknown options, and those of a wrong length, are skipped. An option whose length contradicts the header ends the
/// options, and those before it count, as in Linux and FreeBSD. The segment size, the window scale and the permission
/// of selective acknowledgments are read from segments with SYN only, blocks of selective acknowledgment from those
/// without it.
///
/// # Errors
/// - [`DropReason::TcpHeader`]: the header is cut off, or its length is less than 20 bytes or more than there are.
/// - [`DropReason::TcpChecksum`]: the checksum is wrong.
pub fn parse(
    addresses: Addresses,
    bytes: &[u8],
    verify: Verify,
) -> Result<Segment<'_>, DropReason> {
    let fixed = bytes
        .first_chunk::<HEADER_BYTES>()
        .ok_or(DropReason::TcpHeader)?;
    let header_bytes = usize::from(fixed[12] >> 4) * 4;
    let (header, payload) = bytes
        .split_at_checked(header_bytes)
        .ok_or(DropReason::TcpHeader)?;
    let options = header.get(HEADER_BYTES..).ok_or(DropReason::TcpHeader)?;
    if verify == Verify::Yes && !is_transport_checksum_right(addresses, TCP, bytes) {
        return Err(DropReason::TcpChecksum);
    }
    let header = parse_header(fixed);
    Ok(Segment {
        header,
        options: parse_options(options, header.flags.contains(Flags::SYN)),
        payload,
    })
}

fn parse_header(fixed: &[u8; HEADER_BYTES]) -> Header {
    let [
        s0,
        s1,
        d0,
        d1,
        q0,
        q1,
        q2,
        q3,
        a0,
        a1,
        a2,
        a3,
        offset,
        flags,
        w0,
        w1,
        _,
        _,
        u0,
        u1,
    ] = *fixed;
    Header {
        source_port: u16::from_be_bytes([s0, s1]),
        destination_port: u16::from_be_bytes([d0, d1]),
        sequence: Seq(u32::from_be_bytes([q0, q1, q2, q3])),
        acknowledgment: Seq(u32::from_be_bytes([a0, a1, a2, a3])),
        flags: Flags(u16::from_be_bytes([offset & 1, flags])),
        window: u16::from_be_bytes([w0, w1]),
        urgent: u16::from_be_bytes([u0, u1]),
    }
}

fn parse_options(bytes: &[u8], is_syn: bool) -> Options {
    let mut options = Options::default();
    // Nearly all segments of a connection have the time stamps in this layout (RFC 7323, appendix A), or no option.
    if let [kind::NOP, kind::NOP, kind::TIMESTAMPS, 10, times @ ..] = bytes
        && let Some(times) = timestamps(times)
    {
        options.timestamps = Some(times);
        return options;
    }
    let mut rest = bytes.get(..MOST_OPTION_BYTES).unwrap_or(bytes);
    loop {
        rest = match rest {
            [] | [kind::END, ..] => return options,
            [kind::NOP, rest @ ..] => rest,
            [kind, length, behind @ ..] => {
                // A length that is too short, or longer than the header, leaves no place where the next option starts.
                let data_bytes = usize::from(*length).checked_sub(2);
                let Some((data, behind)) = data_bytes.and_then(|n| behind.split_at_checked(n))
                else {
                    return options;
                };
                parse_option(*kind, data, is_syn, &mut options);
                behind
            }
            [_] => return options,
        };
    }
}

fn parse_option(kind: u8, data: &[u8], is_syn: bool, options: &mut Options) {
    match (kind, data, is_syn) {
        // A segment size of zero is none, as in Linux.
        (kind::MSS, [0, 0], true) => {}
        (kind::MSS, &[m0, m1], true) => options.mss = Some(u16::from_be_bytes([m0, m1])),
        (kind::WINDOW_SCALE, &[shift], true) => {
            options.window_scale = Some(shift.min(MOST_WINDOW_SCALE));
        }
        (kind::SACK_PERMITTED, [], true) => options.is_sack_permitted = true,
        (kind::TIMESTAMPS, data, _) => {
            options.timestamps = timestamps(data).or(options.timestamps);
        }
        (kind::SACK, data, false) => options.sack = sack(data).unwrap_or(options.sack),
        _ => {}
    }
}

fn timestamps(data: &[u8]) -> Option<Timestamps> {
    let (&[v0, v1, v2, v3, e0, e1, e2, e3], []) = data.split_first_chunk::<8>()? else {
        return None;
    };
    Some(Timestamps {
        value: u32::from_be_bytes([v0, v1, v2, v3]),
        echo: u32::from_be_bytes([e0, e1, e2, e3]),
    })
}

fn sack(data: &[u8]) -> Option<SackBlocks> {
    let (blocks, []) = data.as_chunks::<8>() else {
        return None;
    };
    let mut sack = SackBlocks::default();
    for &[s0, s1, s2, s3, e0, e1, e2, e3] in blocks {
        sack.push(SackBlock {
            start: Seq(u32::from_be_bytes([s0, s1, s2, s3])),
            end: Seq(u32::from_be_bytes([e0, e1, e2, e3])),
        });
    }
    Some(sack)
}
