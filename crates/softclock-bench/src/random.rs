//! Numbers that are the same in every run.

/// xorshift64*, from a seed that is not 0.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next of all 2^64.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`, as good as uniform for the sizes used here.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64
    }
}
