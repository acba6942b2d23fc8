//! Random numbers that a seed determines.

use core::ops::RangeInclusive;

/// A generator of random numbers (SplitMix64).
///
/// ```
/// use softclock_model::random::Random;
///
/// let (mut one, mut other) = (Random::new(7), Random::new(7));
/// assert_eq!(one.within(1..=100), other.within(1..=100));
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of a range that is not the whole range of numbers.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    /// A number whose logarithm is evenly distributed: small ones are as likely as large ones.
    pub fn magnitude(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (least, most) = (*range.start(), *range.end());
        let bits = (most - least).checked_ilog2().map_or(0, |bits| bits + 1);
        let below = 1 << self.within(0..=bits.into());
        (least + self.next() % below).min(most)
    }

    /// True `per_mille` times of 1000.
    pub const fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }
}
