//! Decides when the timer of the deadline alarm has to be set, moved or cancelled.

use softclock_core::Instant;

/// A decision about the timer of the deadline alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeadlinePlan {
    /// Leave the timer alone: it is right, or still so far off that it can be changed later.
    Keep,
    /// Set or move the timer to this time.
    Arm(Instant),
    /// Cancel the timer: it is about to land and not needed.
    Disarm,
}

impl DeadlinePlan {
    /// Decides about a timer that is set to `armed` (the far future if it is not set), where an alarm should land at
    /// `wanted` (the far future if none is needed), and may not land before `earliest`.
    ///
    /// *Soft Timers* (section 5.9) cancels the alarm whenever a trigger state comes first, because writing an APIC
    /// register is cheap. timer_settime is not, so a superfluous alarm stays set until it is about to land.
    pub(super) fn decide(armed: Instant, wanted: Instant, now: Instant, earliest: Instant) -> Self {
        let needed = wanted != Instant::FAR_FUTURE;
        let target = if needed { wanted.max(earliest) } else { wanted };
        // A timer set to the past has landed, or its signal is pending and the handler will see the new state.
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

/// How long before it lands a superfluous alarm is moved or cancelled, in nanoseconds.
///
/// An alarm that lands costs about 25 us, and moving the timer 1 us, or 13 us in a virtual machine whose host has to
/// program the hardware. If trigger states are closer together than this constant, a superfluous alarm never lands.
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
