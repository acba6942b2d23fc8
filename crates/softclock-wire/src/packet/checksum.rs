//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624), and checksums that senders leave to the
//! link.

use super::crc32c::crc32c;
use super::offload::SCTP_CHECKSUM;
use super::{Headers, IPV4, IPV6, PartialChecksum, SCTP, TCP, UDP, u16_at};

/// Returns the ones' complement sum of the 16-bit words of `bytes`, not complemented. A single byte at the end is
/// padded with zero.
///
/// ```
/// use softclock_wire::packet::ones_complement_sum;
///
/// // The example of RFC 1071, section 3.
/// let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
/// assert_eq!(ones_complement_sum(&bytes), 0xddf2);
/// ```
pub fn ones_complement_sum(bytes: &[u8]) -> u16 {
    // Adds 32-bit words, which gives the same sum modulo 2^16 - 1, in the machine's order of bytes, which gives the
    // same sum but for the order of its own bytes (RFC 1071, section 2). Separate lanes become vector instructions.
    let word =
        |chunk: &[u8]| u64::from(u32::from_ne_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]));
    let mut blocks = bytes.chunks_exact(4 * LANES);
    let mut lanes = [0u64; LANES];
    for block in &mut blocks {
        for (lane, chunk) in lanes.iter_mut().zip(block.chunks_exact(4)) {
            *lane += word(chunk);
        }
    }
    let mut chunks = blocks.remainder().chunks_exact(4);
    let mut sum: u64 = lanes.iter().sum();
    for chunk in &mut chunks {
        sum += word(chunk);
    }
    // Byte by byte: most calls are for short headers, which a call to copy memory would double.
    let rest = |at: usize| chunks.remainder().get(at).copied().unwrap_or(0);
    u16::from_be(fold(sum + word(&[rest(0), rest(1), rest(2), 0])))
}

/// Returns the sum after a word `old` was replaced by `new`.
pub(super) fn replaced(sum: u16, old: u16, new: u16) -> u16 {
    fold(u64::from(sum) + u64::from(!old) + u64::from(new))
}

/// Returns the ones' complement sum of a pseudo-header: both addresses, as they are in the IP header, the protocol and
/// the length of the transport.
pub(super) fn pseudo_header_sum(addresses: &[u8], protocol: u8, length: usize) -> u16 {
    fold(u64::from(ones_complement_sum(addresses)) + u64::from(protocol) + length as u64)
}

/// Completes a checksum whose field holds the sum of the pseudo-header, or that of SCTP, which has no pseudo-header
/// (RFC 9260, 6.8). Returns false, and changes nothing, if the field is outside the frame.
///
/// Writes a checksum of zero as 0xffff for UDP, where 0 means that there is none (RFC 768); in ones' complement these
/// are the same number.
pub fn complete_checksum(frame: &mut [u8], checksum: PartialChecksum) -> bool {
    let start = usize::from(checksum.start);
    let field = start + usize::from(checksum.offset);
    if checksum.is_crc32c() {
        return complete_crc32c(frame, start, field);
    }
    if field + 2 > frame.len() {
        return false;
    }
    let value = match !ones_complement_sum(&frame[start..]) {
        0 if checksum.offset == UDP_CHECKSUM => 0xffff,
        value => value,
    };
    frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
    true
}

fn complete_crc32c(frame: &mut [u8], start: usize, field: usize) -> bool {
    let Some(place) = frame.get_mut(field..field + 4) else {
        return false;
    };
    // The sum is that of a packet whose field is zero.
    place.fill(0);
    let value = crc32c(&frame[start..]);
    frame[field..field + 4].copy_from_slice(&value.to_le_bytes());
    true
}

/// Detects a partial checksum, which the sender of a frame has left to the link, without an [`Offload`](super::Offload)
/// that says so: the checksum field of TCP or UDP holds the sum of the pseudo-header, or that of SCTP holds zero.
///
/// One in 65536 complete checksums of TCP and UDP looks the same. Completing it again does not change it, unless the
/// packet is damaged. Returns `None` if the checksum looks complete; also for fragments, for IPv6 with extension
/// headers, and if bytes follow the packet.
pub fn partial_checksum(frame: &[u8], headers: &Headers) -> Option<PartialChecksum> {
    let (network, transport) = (headers.network_offset, headers.transport_offset);
    let header = frame.get(network..transport)?;
    let (addresses, protocol, length) = match (headers.ether_type, header.len()) {
        (IPV4, 20..) if u16_at(header, 6)? & MORE_FRAGMENTS_AND_OFFSET == 0 => {
            let length = usize::from(u16_at(header, 2)?).checked_sub(header.len())?;
            (&header[12..20], header[9], length)
        }
        (IPV6, 40) => (&header[8..40], header[6], u16_at(header, 4)?.into()),
        _ => return None,
    };
    let offset = match protocol {
        TCP => 16,
        UDP => UDP_CHECKSUM,
        SCTP => SCTP_CHECKSUM,
        _ => return None,
    };
    let field = frame.get(transport + usize::from(offset)..)?;
    let is_partial = match protocol {
        SCTP => field.starts_with(&[0; 4]),
        _ => u16_at(field, 0)? == pseudo_header_sum(addresses, protocol, length),
    };
    (transport + length == frame.len() && is_partial).then_some(PartialChecksum {
        start: transport as u16,
        offset,
    })
}

/// The place of the checksum in the header of UDP.
const UDP_CHECKSUM: u16 = 6;

/// The 32-bit words that are added side by side.
const LANES: usize = 8;

/// Adds the carries until 16 bits are left.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The bits of the fragment field of IPv4 that are zero in a packet that is no fragment.
const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Builds a frame with addresses, protocol, lengths and a partial checksum. Returns it with the place of the
    /// checksum.
    fn frame(is_ipv6: bool, protocol: u8, payload: &[u8]) -> (Vec<u8>, PartialChecksum) {
        let transport = if is_ipv6 { 54 } else { 34 };
        let mut frame = vec![0; transport];
        let length = (payload.len() as u16).to_be_bytes();
        if is_ipv6 {
            frame[12..14].copy_from_slice(&IPV6.to_be_bytes());
            (frame[14], frame[20]) = (0x60, protocol);
            frame[18..20].copy_from_slice(&length);
            frame[22..54]
                .iter_mut()
                .enumerate()
                .for_each(|(at, byte)| *byte = at as u8 * 7);
        } else {
            frame[12..14].copy_from_slice(&IPV4.to_be_bytes());
            (frame[14], frame[23]) = (0x45, protocol);
            frame[16..18].copy_from_slice(&(payload.len() as u16 + 20).to_be_bytes());
            frame[26..34].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 7]);
        }
        frame.extend(payload);
        let checksum = PartialChecksum {
            start: transport as u16,
            offset: match protocol {
                TCP => 16,
                SCTP => 8,
                _ => 6,
            },
        };
        let field = usize::from(checksum.start + checksum.offset);
        if protocol == SCTP {
            frame[field..field + 4].fill(0);
            return (frame, checksum);
        }
        let addresses = if is_ipv6 {
            &frame[22..54]
        } else {
            &frame[26..34]
        };
        let pseudo = [addresses, &[0, protocol], &length].concat();
        let sum = ones_complement_sum(&pseudo).to_be_bytes();
        frame[field..field + 2].copy_from_slice(&sum);
        (frame, checksum)
    }

    /// Sums word by word, as RFC 1071 defines it.
    fn plainly(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(ones_complement_sum(&bytes), 0xddf2);
        assert_eq!(ones_complement_sum(&[]), 0);
    }

    /// An INIT with the checksum that scapy computes for it.
    #[test]
    fn sctp_has_a_crc32c() {
        let init = [
            0x13, 0x88, 0x8e, 0x3c, 0, 0, 0, 0, 0xd7, 0x55, 0x8d, 0xdf, 1, 0, 0, 0x14, 0x12, 0x34,
            0x56, 0x78, 0, 1, 0xa0, 0, 0, 10, 0xff, 0xff, 0x9a, 0xbc, 0xde, 0xf0,
        ];
        let (mut frame, checksum) = frame(false, SCTP, &init);
        assert!(complete_checksum(&mut frame, checksum));
        assert_eq!(frame[34..], init);
        frame.truncate(34 + 11);
        let cut_off = frame.clone();
        assert!(!complete_checksum(&mut frame, checksum));
        assert_eq!(frame, cut_off);
    }

    proptest! {
        /// A partial checksum is detected, completed, and unchanged if it is completed again.
        #[test]
        fn a_partial_checksum_is_told(
            is_ipv6 in any::<bool>(),
            protocol in prop::sample::select(&[TCP, UDP, SCTP][..]),
            payload in prop::collection::vec(any::<u8>(), 20..80),
        ) {
            let (mut frame, checksum) = frame(is_ipv6, protocol, &payload);
            let told = |frame: &[u8]| partial_checksum(frame, &Headers::of_frame(frame));
            prop_assert_eq!(told(&frame), Some(checksum));
            prop_assert_eq!(told(&[&frame[..], &[0]].concat()), None, "bytes behind the packet");
            if !is_ipv6 {
                let mut fragment = frame.clone();
                fragment[20] = 0x20;
                prop_assert_eq!(told(&fragment), None);
            }
            prop_assert!(complete_checksum(&mut frame, checksum));
            let finished = frame.clone();
            if let Some(again) = told(&frame) {
                complete_checksum(&mut frame, again);
                prop_assert_eq!(frame, finished);
            }
        }

        /// For any bytes, a detected checksum lies inside the frame.
        #[test]
        fn a_partial_checksum_is_within_its_frame(
            is_ipv6 in any::<bool>(),
            bytes in prop::collection::vec(any::<u8>(), 14..120),
        ) {
            let mut frame = bytes;
            let (kind, version) = if is_ipv6 { (IPV6, 0x60) } else { (IPV4, 0x45) };
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            if let Some(first) = frame.get_mut(14) {
                *first = version;
            }
            if let Some(checksum) = partial_checksum(&frame, &Headers::of_frame(&frame)) {
                prop_assert!(complete_checksum(&mut frame, checksum));
            }
        }

        #[test]
        fn as_word_by_word(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(ones_complement_sum(&bytes), plainly(&bytes));
        }

        #[test]
        fn a_changed_word_changes_the_sum(words in prop::collection::vec(any::<[u8; 2]>(), 1..20), new in any::<u16>()) {
            let mut bytes = words.concat();
            let sum = ones_complement_sum(&bytes);
            let old = u16::from_be_bytes([bytes[0], bytes[1]]);
            bytes[..2].copy_from_slice(&new.to_be_bytes());
            // 0 and 0xffff are both zero in ones' complement.
            let same = |a: u16, b: u16| a % 0xffff == b % 0xffff;
            prop_assert!(same(replaced(sum, old, new), ones_complement_sum(&bytes)));
        }

        #[test]
        fn a_completed_checksum_verifies(
            mut frame in prop::collection::vec(any::<u8>(), 0..80),
            start in 0u16..90,
            offset in (0u16..20).prop_map(|words| words * 2).prop_filter("SCTP", |&offset| offset != 8),
        ) {
            let before = frame.clone();
            if complete_checksum(&mut frame, PartialChecksum { start, offset }) {
                let start = usize::from(start);
                let field = start + usize::from(offset);
                let pseudo = plainly(&before[field..field + 2]);
                let sum = u32::from(plainly(&frame[start..])) + u32::from(pseudo);
                prop_assert_eq!(sum % 0xffff, 0);
            } else {
                prop_assert_eq!(before, frame);
            }
        }
    }
}
