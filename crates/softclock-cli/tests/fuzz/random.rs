//! Pseudo-random choices that a seed determines.

use std::ops::RangeInclusive;

/// SplitMix64 (Steele, Lea, Flood, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn within(&mut self, range: RangeInclusive<usize>) -> usize {
        let (start, end) = range.into_inner();
        start + (self.next() % (end - start + 1) as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.within(0..=choices.len() - 1)]
    }

    /// An index into `weights`, each as likely as its weight says.
    pub(crate) fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.next() % weights.iter().sum::<u64>();
        for (index, &weight) in weights.iter().enumerate() {
            if left < weight {
                return index;
            }
            left -= weight;
        }
        unreachable!("the rest is below the sum")
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Cuts `bytes` into at most `most` pieces.
    pub(crate) fn split(&mut self, bytes: &[u8], most: usize) -> Vec<Vec<u8>> {
        let mut cuts: Vec<_> = (1..most).map(|_| self.within(0..=bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        cuts.windows(2)
            .map(|cut| bytes[cut[0]..cut[1]].to_vec())
            .collect()
    }
}

/// Derives the seed of part number `part` from `seed`.
pub(crate) const fn derive(seed: u64, part: u64) -> u64 {
    Random::new(seed ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93)).next()
}

/// `len` bytes that belong to `id` and to no other.
pub(crate) fn content(id: u64, len: usize) -> Vec<u8> {
    let mut bytes = format!("id={id};").into_bytes();
    let mut random = Random::new(id);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A digest to distinguish bodies (FNV-1a).
pub(crate) fn digest(bytes: &[u8]) -> String {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{}-{hash:x}", bytes.len())
}
