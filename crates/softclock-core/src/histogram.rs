//! A log-linear histogram of nanoseconds: fixed memory, constant-time recording.
//!
//! There are 16 buckets per octave, so a quantile is at most 6.25 % above the exact value. Buckets cover 1 ns to 137
//! s; longer values count in the last bucket. The maximum is exact.

use core::fmt;

/// A histogram of durations, with their sum and maximum.
///
/// # Example
/// ```
/// use softclock_core::Histogram;
///
/// let mut lateness = Histogram::new();
/// for ns in [1_000, 2_000, 100_000] {
///     lateness.record(ns);
/// }
/// assert_eq!(lateness.count(), 3);
/// assert_eq!(lateness.max_ns(), 100_000);
/// let median = lateness.quantile_ns(0.5);
/// assert!((2_000..=2_125).contains(&median));
/// ```
#[derive(Clone)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum_ns: u64,
    max_ns: u64,
}

impl Histogram {
    /// Creates an empty histogram.
    pub const fn new() -> Self {
        Self {
            counts: [0; BUCKETS],
            sum_ns: 0,
            max_ns: 0,
        }
    }

    /// Builds a histogram from counts made elsewhere, for example in a signal handler: the number of values in each
    /// bucket (see [`bucket_of`]), their wrapping sum, and the largest value.
    pub const fn from_parts(counts: [u64; BUCKETS], sum_ns: u64, max_ns: u64) -> Self {
        Self {
            counts,
            sum_ns,
            max_ns,
        }
    }

    /// Adds one value. Costs about 1 ns.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket_of(ns)] += 1;
        self.sum_ns = self.sum_ns.wrapping_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds the same value `times` times.
    pub fn record_times(&mut self, ns: u64, times: u64) {
        if times > 0 {
            self.counts[bucket_of(ns)] += times;
            self.sum_ns = self.sum_ns.wrapping_add(ns.wrapping_mul(times));
            self.max_ns = self.max_ns.max(ns);
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns whether the histogram holds no value.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|&count| count == 0)
    }

    /// Returns the sum of all values in nanoseconds, modulo 2^64.
    pub const fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Returns the largest value in nanoseconds. It is exact.
    pub const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Returns the mean in nanoseconds, or 0 for an empty histogram.
    pub fn mean_ns(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum_ns as f64 / count as f64,
        }
    }

    /// Returns the upper bound, in nanoseconds, of the bucket with the smallest value that the share `quantile` (0 to 1)
    /// of all values does not exceed, or 0 for an empty histogram. From 137 s on it is the maximum.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let rank = rank(self.count(), quantile);
        let mut up_to = 0;
        for (bucket, &n) in self.counts.iter().enumerate() {
            up_to += n;
            if up_to >= rank {
                let bound = match bucket + 1 {
                    BUCKETS => u64::MAX,
                    _ => upper_bound(bucket),
                };
                return bound.min(self.max_ns);
            }
        }
        0
    }

    /// Returns the share of values above `ns`, 0 to 1, to the resolution of a bucket.
    pub fn share_above(&self, ns: u64) -> f64 {
        let above: u64 = self.counts[bucket_of(ns) + 1..].iter().sum();
        match self.count() {
            0 => 0.0,
            count => above as f64 / count as f64,
        }
    }

    /// Iterates over the buckets that are not empty, ascending: inclusive upper bound in nanoseconds, and count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter(|&(_, &count)| count > 0)
            .map(|(bucket, &count)| (upper_bound(bucket), count))
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns the values recorded after `earlier`, an older copy of this histogram. The maximum stays that of all
    /// values.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (count, before) in since.counts.iter_mut().zip(&earlier.counts) {
            *count = count.saturating_sub(*before);
        }
        since.sum_ns = since.sum_ns.wrapping_sub(earlier.sum_ns);
        since
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("mean_ns", &self.mean_ns())
            .field("p50_ns", &self.quantile_ns(0.5))
            .field("p99_ns", &self.quantile_ns(0.99))
            .field("max_ns", &self.max_ns)
            .finish()
    }
}

/// Buckets per octave, as a power of two.
const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
/// The highest octave with buckets: values up to 2^37 ns, which are 137 s.
const TOP_BIT: u32 = 36;
/// The number of buckets of a histogram.
pub const BUCKETS: usize = (TOP_BIT - SUB_BITS + 2) as usize * SUB;

const _: () = assert!(bucket_of(u64::MAX) == BUCKETS - 1 && bucket_of(0) == 0);

/// Returns the index of the bucket that counts `ns`.
#[inline]
pub const fn bucket_of(ns: u64) -> usize {
    const LARGEST: u64 = (1 << (TOP_BIT + 1)) - 1;
    let ns = if ns > LARGEST { LARGEST } else { ns };
    // Values below 2 * SUB all get octave 0, whose buckets are 1 ns wide.
    let octave = (63 - (ns | SUB as u64).leading_zeros()) - SUB_BITS;
    octave as usize * SUB + (ns >> octave) as usize
}

/// Returns the largest value that `bucket` counts. The last bucket also counts all larger values.
pub const fn upper_bound(bucket: usize) -> u64 {
    if bucket < 2 * SUB {
        return bucket as u64;
    }
    let octave = bucket / SUB - 1;
    let step = (bucket % SUB + SUB) as u64;
    ((step + 1) << octave) - 1
}

/// The rank, from 1 on, of the smallest of `count` values that the share `quantile` of them does not exceed.
fn rank(count: u64, quantile: f64) -> u64 {
    // The product of a share such as 0.07 may be a little above the whole number that is meant.
    let exact = count as f64 * quantile.clamp(0.0, 1.0) * (1.0 - f64::EPSILON);
    let whole = exact as u64;
    (whole + u64::from(whole as f64 != exact)).clamp(1, count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_meet_without_gaps() {
        for bucket in 1..BUCKETS {
            assert_eq!(bucket_of(upper_bound(bucket - 1) + 1), bucket);
            assert_eq!(bucket_of(upper_bound(bucket)), bucket);
        }
    }

    #[test]
    fn half_of_two_values_do_not_exceed_the_smaller() {
        let mut histogram = Histogram::new();
        [1, 1000].into_iter().for_each(|ns| histogram.record(ns));
        assert_eq!(
            [0.0, 0.5, 0.51, 1.0].map(|of| histogram.quantile_ns(of)),
            [1, 1, 1000, 1000]
        );
        assert_eq!(
            (rank(100, 0.07), rank(1000, 0.999), rank(0, 0.5)),
            (7, 999, 1)
        );
    }

    #[test]
    fn long_values_have_the_quantile_of_the_longest() {
        let mut histogram = Histogram::new();
        histogram.record_times(300_000_000_000, 3);
        assert_eq!(histogram.quantile_ns(0.5), 300_000_000_000);
    }

    proptest! {
        #[test]
        fn quantiles_are_within_a_sixteenth(mut values in prop::collection::vec(0u64..1 << 36, 1..500), quantile in 0.0f64..1.0) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&v| histogram.record(v));
            values.sort_unstable();
            let exact = values[rank(values.len() as u64, quantile) as usize - 1];
            let up_to = values.iter().filter(|&&value| value <= exact).count() as f64;
            let below = values.iter().filter(|&&value| value < exact).count() as f64;
            prop_assert!((below..=up_to).contains(&(quantile * values.len() as f64)));
            let told = histogram.quantile_ns(quantile);
            prop_assert!(told >= exact && told as f64 <= exact as f64 * 1.0625 + 1.0, "{told} for {exact}");
            prop_assert_eq!(histogram.count(), values.len() as u64);
            prop_assert_eq!(histogram.sum_ns(), values.iter().sum::<u64>());
        }
    }
}
