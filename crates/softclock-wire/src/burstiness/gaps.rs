//! The times between packets.

use softclock_core::Histogram;

/// Gaps between packets: their distribution, and their mean and variation from exact sums.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    histogram: Histogram,
    count: u64,
    /// Gaps of one stream add up to less than 2^64 ns, and so their squares to less than 2^128.
    sum_ns: u64,
    sum_of_squares: u128,
}

impl Gaps {
    /// Counts one gap.
    #[inline]
    pub fn record(&mut self, gap_ns: u64) {
        self.histogram.record(gap_ns);
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(gap_ns);
        let square = u128::from(gap_ns) * u128::from(gap_ns);
        self.sum_of_squares = self.sum_of_squares.saturating_add(square);
    }

    /// Their distribution, as in the paper's Figure 8.
    pub const fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    /// The mean in nanoseconds; `None` if there was no gap.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// The coefficient of variation: the (population's) standard deviation over the mean. 0 is a metronome, 1 a Poisson
    /// process. `None` if all gaps are zero or there is none.
    pub fn variation(&self) -> Option<f64> {
        let sum = u128::from(self.sum_ns);
        // n^2 times the variance.
        let spread = match self.sum_of_squares.checked_mul(self.count.into()) {
            Some(squares) => squares.saturating_sub(sum * sum) as f64,
            None => self.sum_of_squares as f64 * self.count as f64 - (sum * sum) as f64,
        };
        (sum > 0).then(|| square_root(spread) / sum as f64)
    }
}

/// Newton's method from half the exponent: there is no square root without an operating system's library.
fn square_root(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let mut root = f64::from_bits((value.to_bits() >> 1) + (1023 << 51));
    for _ in 0..5 {
        root = (root + value / root) / 2.0;
    }
    root
}
