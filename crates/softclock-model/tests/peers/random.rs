//! Random numbers that a seed determines.

use core::ops::RangeInclusive;
use core::time::Duration;

/// A generator of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own for one part, so that a change in one part leaves the numbers of others alone.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    /// A number whose logarithm is evenly distributed: small ones are as likely as large ones.
    pub(crate) fn magnitude(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (least, most) = (*range.start(), *range.end());
        let bits = u64::from((most - least).checked_ilog2().map_or(0, |bits| bits + 1));
        let below = 1 << self.within(0..=bits);
        (least + self.next() % below).min(most)
    }

    /// True `per_mille` times of 1000.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[(self.next() % of.len() as u64) as usize]
    }

    pub(crate) fn micros(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.within(0..=most))
    }
}
