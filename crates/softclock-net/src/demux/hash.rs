//! The keyed hash of flows: SipHash-1-3 (Aumasson and Bernstein, *SipHash: a fast short-input PRF*, 2012).
//!
//! Remote hosts choose addresses and ports. With an unkeyed hash they choose them so that all fall into one place of
//! the table, which makes each look-up as long as a list. With a secret key they cannot foresee the places.

/// The secret key of a hash: 128 random bits, which the caller draws once for each table.
///
/// ```
/// use softclock_net::demux::HashKey;
///
/// let key = HashKey([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
/// assert_eq!(key.hash(b""), 0xabac_0158_050f_c4dc);
/// ```
#[derive(Clone, Copy)]
pub struct HashKey(pub [u64; 2]);

impl HashKey {
    /// The SipHash-1-3 of a message. The key consists of two little-endian words.
    pub fn hash(self, message: &[u8]) -> u64 {
        self.sip::<1, 3>(message)
    }

    /// The SipHash-2-4 of a message: for values that other hosts see, such as sequence numbers and cookies, from which
    /// they must not be able to compute others.
    pub fn mac(self, message: &[u8]) -> u64 {
        self.sip::<2, 4>(message)
    }

    /// The hash of a message of fixed length: `words` in little-endian order, then the lower bytes of `last`, so that
    /// all are `bytes` long. `last` is shorter than a word. Costs a fraction of [`hash`](Self::hash), which must
    /// gather words from bytes.
    #[inline]
    pub(crate) fn hash_words<const WORDS: usize>(
        self,
        words: [u64; WORDS],
        last: u64,
        bytes: usize,
    ) -> u64 {
        debug_assert!(bytes / 8 == WORDS && last >> (bytes % 8 * 8) == 0);
        let mut state = State::new(self);
        for word in words {
            state.compress::<1>(word);
        }
        state.compress::<1>((bytes as u64) << 56 | last);
        state.finish::<3>()
    }

    fn sip<const COMPRESSION: usize, const FINALIZATION: usize>(self, message: &[u8]) -> u64 {
        let mut state = State::new(self);
        let (words, rest) = message.as_chunks();
        for word in words {
            state.compress::<COMPRESSION>(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let length = (message.len() as u64) << 56;
        state.compress::<COMPRESSION>(length | u64::from_le_bytes(last));
        state.finish::<FINALIZATION>()
    }
}

/// Does not print the key, which is a secret.
impl core::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashKey(..)")
    }
}

struct State([u64; 4]);

impl State {
    #[inline]
    fn new(HashKey([k0, k1]): HashKey) -> Self {
        // The constants are those of the paper: "somepseudorandomlygeneratedbytes".
        Self([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline]
    fn compress<const ROUNDS: usize>(&mut self, word: u64) {
        self.0[3] ^= word;
        for _ in 0..ROUNDS {
            self.round();
        }
        self.0[0] ^= word;
    }

    #[inline]
    fn finish<const ROUNDS: usize>(mut self) -> u64 {
        self.0[2] ^= 0xff;
        for _ in 0..ROUNDS {
            self.round();
        }
        let [a, b, c, d] = self.0;
        a ^ b ^ c ^ d
    }

    #[inline]
    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32).wrapping_add(d);
        c = c.wrapping_add(b);
        d = d.rotate_left(21) ^ a;
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The message of each vector: 0, 1, 2, …
    fn message(length: usize) -> alloc::vec::Vec<u8> {
        (0..length as u8).collect()
    }

    #[test]
    fn hashes_are_those_of_the_reference_implementation() {
        let vectors = [
            (0, 0xd1fb_a762_150c_532c),
            (1, 0x68a9_1412_8e01_e473),
            (2, 0x010b_ac45_c41e_3669),
            (7, 0x2f09_8ab0_c751_325a),
            (8, 0xead4_11e6_7ebe_2eea),
            (13, 0xa0cf_3211_850f_8e0d),
            (15, 0xf30e_b725_bb91_c9ea),
            (16, 0x8972_1884_33a5_c5b7),
            (24, 0x3118_5a47_af93_2f3a),
            (31, 0x1697_3944_3111_d49b),
            (36, 0xac77_921f_cc64_2bd3),
        ];
        for (length, hash) in vectors {
            let key = HashKey([0, 0]);
            assert_eq!(key.hash(&message(length)), hash, "{length} bytes");
        }
    }

    #[test]
    fn the_key_enters_as_in_the_reference_implementation() {
        // The vectors of SipHash-2-4, which has the same construction and more published vectors.
        let key = HashKey([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let vectors = [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (7, 0xab02_00f5_8b01_d137),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
            (63, 0x958a_324c_eb06_4572),
        ];
        for (length, hash) in vectors {
            assert_eq!(key.mac(&message(length)), hash, "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn words_hash_as_their_bytes(
            key in any::<[u64; 2]>(),
            words in any::<[u64; 3]>(),
            last in any::<u64>(),
            rest in 0..8usize,
        ) {
            let last = last & ((1 << (rest * 8)) - 1);
            let mut bytes: alloc::vec::Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.extend(&last.to_le_bytes()[..rest]);
            prop_assert_eq!(HashKey(key).hash_words(words, last, bytes.len()), HashKey(key).hash(&bytes));
        }
    }
}
