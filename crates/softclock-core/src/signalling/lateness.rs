//! The lateness of looks: its mean, and a value that it is seldom above.

/// Smoothed mean and deviation, with the weights of RFC 6298, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Lateness {
    /// Eight times the mean.
    mean_8: u64,
    /// Four times the mean deviation.
    deviation_4: u64,
}

impl Lateness {
    pub(super) fn record(&mut self, late_ns: u64) {
        let distance = late_ns.abs_diff(self.mean_ns());
        self.deviation_4 = self.deviation_4 - self.deviation_4 / 4 + distance;
        self.mean_8 = self.mean_8 - self.mean_8 / 8 + late_ns;
    }

    pub(super) const fn mean_ns(&self) -> u64 {
        self.mean_8 / 8
    }

    /// The mean and four mean deviations.
    pub(super) const fn high_ns(&self) -> u64 {
        self.mean_ns() + self.deviation_4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_lateness_has_no_deviation() {
        let mut lateness = Lateness::default();
        (0..200).for_each(|_| lateness.record(20_000));
        assert!(lateness.mean_ns().abs_diff(20_000) < 20);
        assert!(lateness.high_ns() < 20_100);
    }

    #[test]
    fn a_uniform_lateness_is_below_the_high_value() {
        let mut lateness = Lateness::default();
        let uniform = (0..1_000).map(|step| step * 7_919 % 30_000);
        for late in uniform {
            lateness.record(late);
        }
        assert!((10_000..20_000).contains(&lateness.mean_ns()));
        assert!(lateness.high_ns() > 30_000);
    }
}
