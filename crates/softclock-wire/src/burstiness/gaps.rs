//! The times between packets.

use softclock_core::Histogram;

/// Gaps between packets: their distribution, and their mean and variation from exact sums.
///
/// ```
/// use softclock_wire::burstiness::Gaps;
///
/// let mut gaps = Gaps::default();
/// for gap_ns in [100, 100, 100] {
///     gaps.record(gap_ns);
/// }
/// assert_eq!(gaps.mean_ns(), Some(100.0));
/// assert_eq!(gaps.variation(), Some(0.0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    histogram: Histogram,
    count: u64,
    /// The sum of the gaps. Those of one stream add up to less than 2^64 ns, so their squares add up to less than
    /// 2^128.
    sum_ns: u64,
    sum_of_squares: u128,
}

impl Gaps {
    /// Adds a gap of `gap_ns` nanoseconds.
    #[inline]
    pub fn record(&mut self, gap_ns: u64) {
        self.histogram.record(gap_ns);
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(gap_ns);
        let square = u128::from(gap_ns) * u128::from(gap_ns);
        self.sum_of_squares = self.sum_of_squares.saturating_add(square);
    }

    /// The distribution of the gaps, as in the paper's Figure 8.
    pub const fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    /// The mean gap in nanoseconds; `None` without gaps.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// The coefficient of variation: the (population's) standard deviation over the mean. Perfectly even packets have
    /// 0, a Poisson process 1. `None` if all gaps are zero, and without gaps.
    pub fn variation(&self) -> Option<f64> {
        let sum = u128::from(self.sum_ns);
        // n^2 times the variance, in integers unless they overflow.
        let spread = match self.sum_of_squares.checked_mul(self.count.into()) {
            Some(squares) => squares.saturating_sub(sum * sum) as f64,
            None => self.sum_of_squares as f64 * self.count as f64 - (sum * sum) as f64,
        };
        (sum > 0).then(|| square_root(spread) / sum as f64)
    }
}

/// Computes a square root by Newton's method, starting with half the exponent: `core` has no square root.
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
