//! When the alarm for the earliest deadline has to be set anew.

use softclock_core::Instant;

/// What to do with the alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeadlinePlan {
    /// Leave it: it comes in time, or so late that it may be set later.
    Keep,
    /// Set it, or move it, to this time.
    Arm(Instant),
    /// Take it back, for it would come soon and nothing needs it.
    Disarm,
}

impl DeadlinePlan {
    /// Decides for an alarm set to `armed` (far future: not set) when `wanted` would be right (far future: not needed)
    /// and the next alarm may not come before `earliest`.
    ///
    /// *Soft Timers* (section 5.9) cancels the alarm whenever a trigger state wins; an APIC register is cheap to write.
    /// timer_settime is not, so a superfluous alarm stays until it is about to land.
    pub(super) fn decide(armed: Instant, wanted: Instant, now: Instant, earliest: Instant) -> Self {
        let needed = wanted != Instant::FAR_FUTURE;
        let target = if needed { wanted.max(earliest) } else { wanted };
        // An alarm of the past has landed, or is on its way and will find the new state.
        let coming = if armed > now {
            armed
        } else {
            Instant::FAR_FUTURE
        };
        if target < coming {
            Self::Arm(target)
        } else if target == coming || coming.ns_since(now) >= IMMINENT_NS {
            Self::Keep
        } else if needed {
            Self::Arm(target)
        } else {
            Self::Disarm
        }
    }
}

/// An alarm that lands costs some 25 us, setting it anew 1 us, or 13 where a host has to program it; so many nanoseconds
/// before it lands it is worth it. The trigger states must come more often than this for a superfluous alarm never to land.
pub(super) const IMMINENT_NS: u64 = 30_000;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_ns(1_000_000);
    const NEVER: Instant = Instant::FAR_FUTURE;

    fn decide(armed: Instant, wanted: Instant) -> DeadlinePlan {
        DeadlinePlan::decide(armed, wanted, NOW, NOW.add_ns(10_000))
    }

    #[test]
    fn arms_what_is_not_armed() {
        let wanted = NOW.add_ns(500_000);
        assert_eq!(decide(NEVER, wanted), DeadlinePlan::Arm(wanted));
        assert_eq!(decide(NEVER, NEVER), DeadlinePlan::Keep);
    }

    #[test]
    fn an_earlier_deadline_moves_it_forward() {
        let wanted = NOW.add_ns(200_000);
        let armed = NOW.add_ns(500_000);
        assert_eq!(decide(armed, wanted), DeadlinePlan::Arm(wanted));
        assert_eq!(decide(wanted, wanted), DeadlinePlan::Keep);
    }

    #[test]
    fn a_later_deadline_moves_it_only_when_it_is_about_to_land() {
        let wanted = NOW.add_ns(500_000);
        assert_eq!(decide(NOW.add_ns(100_000), wanted), DeadlinePlan::Keep);
        assert_eq!(
            decide(NOW.add_ns(20_000), wanted),
            DeadlinePlan::Arm(wanted)
        );
        assert_eq!(decide(NOW.add_ns(20_000), NEVER), DeadlinePlan::Disarm);
        assert_eq!(decide(NOW.add_ns(100_000), NEVER), DeadlinePlan::Keep);
    }

    #[test]
    fn alarms_keep_their_distance() {
        let wanted = NOW.add_ns(1_000);
        let earliest = NOW.add_ns(10_000);
        assert_eq!(decide(NEVER, wanted), DeadlinePlan::Arm(earliest));
        assert_eq!(decide(earliest, wanted), DeadlinePlan::Keep);
    }

    #[test]
    fn a_past_alarm_is_none() {
        let wanted = NOW.add_ns(500_000);
        assert_eq!(decide(NOW, wanted), DeadlinePlan::Arm(wanted));
        assert_eq!(decide(NOW.sub_ns(5), NEVER), DeadlinePlan::Keep);
    }
}
