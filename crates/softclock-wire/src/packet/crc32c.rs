//! The CRC32c, with which SCTP protects its packets (RFC 9260, appendix A).

/// Returns the CRC32c of `bytes`. SCTP writes it in little-endian order.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let next = |crc: u32, byte: &u8| crc >> 8 ^ OF_BYTE[usize::from(crc as u8 ^ byte)];
    !bytes.iter().fold(u32::MAX, next)
}

/// The remainder of each byte.
static OF_BYTE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut crc = byte as u32;
        let mut bits = 8;
        while bits > 0 {
            let polynomial = if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            crc = crc >> 1 ^ polynomial;
            bits -= 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The polynomial, with its lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3720, appendix B.4, and the check value of the catalogues of CRCs.
    #[test]
    fn known_values() {
        let ascending = core::array::from_fn::<u8, 32, _>(|at| at as u8);
        for (bytes, crc) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (b"123456789", 0xe306_9283),
            (&[], 0),
        ] {
            assert_eq!(crc32c(bytes), crc, "{bytes:x?}");
        }
    }
}
