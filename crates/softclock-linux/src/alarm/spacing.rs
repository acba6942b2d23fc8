//! The least distance between deadline alarms, adapted so that no setting can starve the thread.

use softclock_core::Instant;

/// The least distance between deadline alarms, from the end of one to the next.
///
/// It doubles when the thread had less time since the last alarm than this alarm took, and shrinks slowly back to its
/// floor when the thread had at least four times as much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spacing {
    floor_ns: u64,
    distance_ns: u64,
    /// The time at which the program resumed after the last alarm.
    resumed: Instant,
}

impl Spacing {
    pub(super) fn new(floor_ns: u64) -> Self {
        let floor_ns = floor_ns.clamp(LEAST_DISTANCE_NS, LARGEST_DISTANCE_NS);
        Self {
            floor_ns,
            distance_ns: floor_ns,
            resumed: Instant::ORIGIN,
        }
    }

    /// The earliest time at which the next alarm may land.
    pub(super) fn earliest(&self) -> Instant {
        self.resumed.add_ns(self.distance_ns)
    }

    pub(super) fn distance_ns(&self) -> u64 {
        self.distance_ns
    }

    /// Adapts the distance to an alarm that landed at `landed` and ended its work at `done`.
    pub(super) fn on_alarm(&mut self, landed: Instant, done: Instant) {
        let progress_ns = landed.ns_since(self.resumed);
        let cost_ns = done.ns_since(landed).saturating_add(SIGNAL_COST_NS);
        if progress_ns < cost_ns {
            self.distance_ns = (self.distance_ns * 2).min(LARGEST_DISTANCE_NS);
        } else if progress_ns / PLENTY >= cost_ns {
            let excess_ns = self.distance_ns - self.floor_ns;
            self.distance_ns -= excess_ns.div_ceil(RECOVERY);
        }
        self.resumed = done;
    }
}

/// The time that delivering a signal takes from the thread, beside the handler's work.
const SIGNAL_COST_NS: u64 = 25_000;

/// The floor of the distance. Alarms closer than this leave the thread little time for anything else.
pub(super) const LEAST_DISTANCE_NS: u64 = 100_000;

/// The largest distance. Beyond it, alarms would be no better than the backup timer.
const LARGEST_DISTANCE_NS: u64 = 10_000_000;

/// The distance shrinks if the time between two alarms is this multiple of an alarm's cost.
const PLENTY: u64 = 4;

/// Shrinking takes one in this many parts off the distance above the floor.
const RECOVERY: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates `count` alarms of `work_ns` each, that follow each other after `gap_ns` or as closely as allowed.
    fn alarms(spacing: &mut Spacing, now: &mut Instant, count: u32, work_ns: u64, gap_ns: u64) {
        for _ in 0..count {
            let landed = now.add_ns(gap_ns).max(spacing.earliest());
            *now = landed.add_ns(work_ns);
            spacing.on_alarm(landed, *now);
        }
    }

    #[test]
    fn light_alarms_stay_at_the_floor() {
        let (mut spacing, mut now) = (Spacing::new(0), Instant::from_ns(1));
        alarms(&mut spacing, &mut now, 1_000, 5_000, 0);
        assert_eq!(spacing.distance_ns(), LEAST_DISTANCE_NS);
    }

    #[test]
    fn heavy_alarms_leave_half_of_the_time() {
        let (mut spacing, mut now) = (Spacing::new(0), Instant::from_ns(1));
        alarms(&mut spacing, &mut now, 20, 500_000, 0);
        assert!(spacing.distance_ns() >= 500_000);
        assert!(spacing.distance_ns() <= 2_000_000);
        alarms(&mut spacing, &mut now, 20, 1_000_000_000, 0);
        assert_eq!(spacing.distance_ns(), LARGEST_DISTANCE_NS);
    }

    #[test]
    fn recovers_slowly() {
        let (mut spacing, mut now) = (Spacing::new(0), Instant::from_ns(1));
        alarms(&mut spacing, &mut now, 20, 1_000_000_000, 0);
        alarms(&mut spacing, &mut now, 1, 1_000, 20_000_000);
        assert!(spacing.distance_ns() > 9_000_000);
        alarms(&mut spacing, &mut now, 200, 1_000, 20_000_000);
        assert!(spacing.distance_ns() < LEAST_DISTANCE_NS + 1_000);
    }
}
