//! The interval of soft polls, which adapts so that a look finds the quota on average (*Soft Timers*, 4.2).
//!
//! The interval is multiplied after each look that was on schedule: by more than one if it found less than the quota,
//! by less than one if it found more. In the logarithm of the interval these steps are proportional to the error, so
//! they balance where the mean is the quota, whatever the lateness of the looks and the arrival process are. The gain
//! grows with the quota, since a look that is to find many packets tells more about the rate.
//!
//! The interval stays between two limits, so that it cannot wind up while a limit and not the quota decides:
//!
//! - above, the latency bound less a lateness that looks seldom exceed;
//! - below, half of the mean lateness. Looks are made at trigger states, so the mean lateness is about the time to the
//!   next trigger state, and a much shorter interval would have no effect.

use super::lateness::Lateness;
use crate::time::TICK_NS;

/// The interval of the soft polls of one queue. O(1), with two divisions a look.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    quota: u64,
    bound_ns: u64,
    ns: u64,
    lateness: Lateness,
}

impl Interval {
    /// Creates an interval as long as the bound: nothing has arrived yet.
    pub(super) fn new(quota: u32, bound_ns: u64) -> Self {
        Self {
            quota: u64::from(quota.max(1)),
            bound_ns,
            ns: bound_ns,
            lateness: Lateness::default(),
        }
    }

    pub(super) const fn ns(&self) -> u64 {
        self.ns
    }

    /// The longest interval that keeps the latency bound at the usual lateness, but at least a quarter of the bound.
    pub(super) fn most_ns(&self) -> u64 {
        let most = self.bound_ns.saturating_sub(self.lateness.high_ns());
        most.max(self.bound_ns / 4)
    }

    /// Adapts to a look that was made `late_ns` after the end of an interval.
    pub(super) fn on_schedule(&mut self, packets: u32, late_ns: u64) {
        // A process that was stopped says nothing about trigger states.
        self.lateness.record(late_ns.min(self.bound_ns));
        let (found, quota, weight) = (u64::from(packets), self.quota, self.quota + PRIOR);
        // With a gain of quota / (quota + PRIOR), the quota cancels.
        self.ns = match found <= quota {
            true => self.ns * (weight + quota - found) / weight,
            false => self.ns * weight / (weight + found - quota),
        };
        self.limit();
    }

    /// Shortens the interval at once if `packets`, far more than the quota, have arrived within `since_ns`. Valid for
    /// any look.
    pub(super) fn on_burst(&mut self, packets: u32, since_ns: u64) {
        let found = u64::from(packets);
        if found >= 4 * (self.quota + 1) {
            let matching = since_ns.saturating_mul(self.quota) / found;
            self.ns = self.ns.min(matching);
            self.limit();
        }
    }

    fn limit(&mut self) {
        let most = self.most_ns();
        let least = (self.lateness.mean_ns() / 2).clamp(TICK_NS, most);
        self.ns = self.ns.clamp(least, most);
    }
}

/// The gain is 1/4 for a quota of 1, where single looks say little, and 0.84 for 16.
const PRIOR: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: u64 = 1_000_000;

    /// The interval after looks at a constant rate of packets without randomness; `mean` of the last half.
    fn settle(quota: u32, gap_ns: u64, late_ns: u64, looks: u32) -> (Interval, f64) {
        let mut interval = Interval::new(quota, BOUND);
        let (mut now, mut seen, mut late_half) = (0, 0, (0, 0));
        for look in 0..looks {
            now += interval.ns() + late_ns;
            let found = now / gap_ns - seen;
            seen += found;
            interval.on_schedule(found as u32, late_ns);
            if look >= looks / 2 {
                late_half = (late_half.0 + found, late_half.1 + 1);
            }
        }
        (interval, late_half.0 as f64 / f64::from(late_half.1))
    }

    #[test]
    fn the_mean_is_the_quota_also_if_looks_are_late() {
        for quota in [1, 2, 5, 10, 15, 64] {
            for late_ns in [0, 1_500] {
                let (_, mean) = settle(quota, 4_000, late_ns, 400);
                let ratio = mean / f64::from(quota);
                assert!((0.95..1.05).contains(&ratio), "{quota} {late_ns} {mean}");
            }
        }
    }

    #[test]
    fn without_arrivals_the_interval_stops_at_the_bound() {
        let mut interval = Interval::new(5, BOUND);
        (0..1_000).for_each(|_| interval.on_schedule(0, 10_000));
        // The lateness that is usual is left for the trigger states.
        assert!(interval.ns().abs_diff(BOUND - 10_000) < 10);
        // And no debt: a burst is followed by the next look.
        interval.on_burst(50, 100_000);
        assert_eq!(interval.ns(), 10_000);
    }

    #[test]
    fn trigger_states_limit_the_interval_from_below() {
        let mut interval = Interval::new(1, BOUND);
        (0..100).for_each(|_| interval.on_schedule(20, 40_000));
        assert!((19_000..=20_000).contains(&interval.ns()));
        // So it is long again soon after.
        (0..12).for_each(|_| interval.on_schedule(0, 40_000));
        assert!(interval.ns() > 250_000);
    }

    #[test]
    fn a_step_of_ten_is_followed_within_a_few_looks() {
        for quota in [1, 5, 16] {
            let (mut interval, _) = settle(quota, 10_000, 0, 200);
            let matched = interval.ns();
            let mut looks = 0;
            while interval.ns() > matched / 8 {
                let found = (interval.ns() / 1_000) as u32;
                let since_ns = interval.ns();
                interval.on_schedule(found, 0);
                interval.on_burst(found, since_ns);
                looks += 1;
            }
            assert!(looks <= 3, "{looks} looks up for a quota of {quota}");
            let mut looks = 0;
            while interval.ns() < matched / 2 {
                interval.on_schedule((interval.ns() / 10_000) as u32, 0);
                looks += 1;
            }
            assert!(looks <= 8, "{looks} looks down for a quota of {quota}");
        }
    }

    #[test]
    fn a_few_packets_more_are_no_burst() {
        let mut interval = Interval::new(1, BOUND);
        let before = interval.ns();
        interval.on_burst(7, 1_000);
        assert_eq!(interval.ns(), before);
        // Nor are many that have had a long time to arrive.
        interval.on_burst(8, 100 * BOUND);
        assert_eq!(interval.ns(), before);
    }
}
