//! The Internet checksum (RFC 1071) and its incremental change (RFC 1624).

use super::PartialChecksum;

/// The ones' complement sum of 16-bit words, not complemented. An odd byte at the end counts as the word's first.
pub fn ones_complement_sum(bytes: &[u8]) -> u16 {
    // 32-bit words at a time: the sum modulo 2^16 - 1 is the same (RFC 1071, 2).
    let mut chunks = bytes.chunks_exact(4);
    let mut sum: u64 = 0;
    for chunk in &mut chunks {
        sum += u64::from(u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]));
    }
    let mut last = [0; 4];
    let rest = chunks.remainder();
    last[..rest.len()].copy_from_slice(rest);
    fold(sum + u64::from(u32::from_be_bytes(last)))
}

/// The sum in which a word `old` is replaced by `new`.
pub(super) fn replaced(sum: u16, old: u16, new: u16) -> u16 {
    fold(u64::from(sum) + u64::from(!old) + u64::from(new))
}

/// Completes a checksum whose field holds the sum of the pseudo-header; false, and nothing done, if it lies outside of the
/// frame. UDP's zero is sent as 0xffff, which is the same number.
pub fn complete_checksum(frame: &mut [u8], checksum: PartialChecksum) -> bool {
    let start = usize::from(checksum.start);
    let field = start + usize::from(checksum.offset);
    if field + 2 > frame.len() {
        return false;
    }
    let value = match !ones_complement_sum(&frame[start..]) {
        0 => 0xffff,
        value => value,
    };
    frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
    true
}

/// Sums the carries up until 16 bits are left.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Word by word, as RFC 1071 says it.
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

    proptest! {
        #[test]
        fn as_word_by_word(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(ones_complement_sum(&bytes), plainly(&bytes));
        }

        #[test]
        fn a_changed_word_changes_the_sum(words in prop::collection::vec(any::<[u8; 2]>(), 1..20), new in any::<u16>()) {
            let mut bytes = words.concat();
            let sum = ones_complement_sum(&bytes);
            let old = u16::from_be_bytes([bytes[0], bytes[1]]);
            bytes[..2].copy_from_slice(&new.to_be_bytes());
            // There are two zeros.
            let same = |a: u16, b: u16| a % 0xffff == b % 0xffff;
            prop_assert!(same(replaced(sum, old, new), ones_complement_sum(&bytes)));
        }

        #[test]
        fn a_completed_checksum_verifies(
            mut frame in prop::collection::vec(any::<u8>(), 0..80),
            start in 0u16..90,
            offset in (0u16..20).prop_map(|words| words * 2),
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
