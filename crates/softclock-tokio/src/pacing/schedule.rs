//! The times and amounts of transmissions: a rate clock with a limit on bursts. Time is an argument.

use std::time::Duration;

use softclock_core::Instant;
use softclock_core::pacing::RateClock;

use super::{Pace, Pacing};

/// The schedule of one paced sender.
///
/// A transmission is one datagram of full size, or several where the rate is high. A sender that is late sends up to a
/// burst of datagrams at once, and catches up at 17/16 of the rate. At 90 % of a bottleneck's rate this is less than
/// the bottleneck's, so that its queue empties again meanwhile.
#[derive(Debug)]
pub(super) struct Schedule {
    plan: Plan,
    burst: u32,
    clock: RateClock,
}

/// The transmission of a pace.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Plan {
    pace: Pace,
    /// The number of datagrams of a transmission.
    joined: u32,
    /// Their size if they are full, in the units of [`Pace::cost`].
    full: u64,
}

/// The datagrams that may be sent now.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Allowance {
    pace: Option<Pace>,
    units: u64,
    datagrams: u32,
    /// Whether nothing has been taken: the first datagram may be longer than the allowance.
    is_whole: bool,
}

impl Schedule {
    pub(super) fn new(pacing: Pacing, burst: u32) -> Self {
        let plan = Plan::of(pacing, burst);
        Self {
            plan,
            burst,
            clock: RateClock::new(plan.target(), plan.minimum()),
        }
    }

    /// Changes the rate. The next transmission is due at the new rate after the last one.
    pub(super) fn set_pacing(&mut self, pacing: Pacing) {
        let plan = Plan::of(pacing, self.burst);
        if plan == self.plan {
            return;
        }
        // The clock is rescaled for the former size in the new units, and then changed to the new size at the new rate.
        let rescaled = Plan {
            full: plan.pace.full_cost() * u64::from(self.plan.joined),
            ..plan
        };
        self.plan = plan;
        self.clock.set_rates(rescaled.target(), rescaled.minimum());
        if plan.full != rescaled.full {
            self.clock.set_intervals(plan.target(), plan.minimum());
        }
    }

    /// Returns the time of the next transmission.
    pub(super) fn next(&self, now: Instant) -> Instant {
        self.clock.next_send(now)
    }

    /// Returns how long the transmission that is due at `at` may wait for a trigger state. The wait ends half an interval
    /// after the time on schedule, which the clock makes up, so that the wait is no loss of rate even if each ends by
    /// the timer, and the timer is late, too. Datagrams that are counted do not wait: they are sent at a rate for their
    /// spacing.
    pub(super) fn patience(&self, at: Instant) -> Duration {
        match self.plan.pace {
            Pace::Bits(_) => {
                let most = (self.plan.target() / 2).min(MOST_PATIENCE);
                most.saturating_sub(self.clock.behind(at))
            }
            Pace::Datagrams(_) => Duration::ZERO,
        }
    }

    /// Returns the datagrams that may be sent at `now`, once the time of the next transmission has come.
    pub(super) fn due(&self, now: Instant) -> Allowance {
        let (due, joined) = (self.clock.due(now), u64::from(self.plan.joined));
        let datagrams = u32::try_from(due.saturating_mul(joined)).unwrap_or(self.burst);
        Allowance {
            pace: Some(self.plan.pace),
            units: due.saturating_mul(self.plan.full),
            datagrams: datagrams.min(self.burst),
            is_whole: true,
        }
    }

    /// Records that datagrams with payloads of `bytes` in total were sent.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: usize, datagrams: usize) {
        let units = self.plan.pace.cost(bytes, datagrams);
        self.clock.on_limited_bytes(now, units, self.plan.full);
    }

    /// Records that no more datagrams wait.
    pub(super) fn end(&mut self) {
        self.clock.end();
    }
}

impl Plan {
    fn of(pacing: Pacing, burst: u32) -> Self {
        let pace = pacing.pace;
        let one = Self {
            pace,
            joined: 1,
            full: pace.full_cost(),
        };
        let joined = pace.joined_time().as_nanos() / one.target().as_nanos();
        let joined = u32::try_from(joined).unwrap_or(burst);
        let joined = joined.max(pacing.joined).clamp(1, burst);
        Self {
            pace,
            joined,
            full: one.full * u64::from(joined),
        }
    }

    fn target(&self) -> Duration {
        let time = match self.pace {
            Pace::Bits(rate) => rate.time_of(self.full),
            Pace::Datagrams(per_second) => {
                Duration::from_nanos(1_000_000_000 * self.full / u64::from(per_second.get()))
            }
        };
        time.max(Duration::from_nanos(1))
    }

    fn minimum(&self) -> Duration {
        self.target() / CATCH_UP.1 * CATCH_UP.0
    }
}

impl Pace {
    /// Returns the cost of datagrams with payloads of `bytes` in total: bytes on the IP layer, or their number.
    pub(super) fn cost(self, bytes: usize, datagrams: usize) -> u64 {
        let datagrams = datagrams as u64;
        match self {
            Self::Bits(_) => bytes as u64 + datagrams * HEADER_BYTES,
            Self::Datagrams(_) => datagrams,
        }
    }

    /// Datagrams that take no longer than this together are joined. Linux joins the segments of a paced TCP connection
    /// for up to a millisecond (`sk_pacing_shift`). Those that are counted are sent at a rate for their spacing.
    fn joined_time(self) -> Duration {
        match self {
            Self::Bits(_) => Duration::from_micros(500),
            Self::Datagrams(_) => Duration::from_micros(160),
        }
    }

    fn full_cost(self) -> u64 {
        match self {
            Self::Bits(_) => FULL_BYTES,
            Self::Datagrams(_) => 1,
        }
    }
}

impl Allowance {
    /// An allowance for all datagrams of a sender without a rate, in groups of `datagrams`.
    pub(super) fn unlimited(datagrams: u32) -> Self {
        Self {
            pace: None,
            units: u64::MAX,
            datagrams,
            is_whole: true,
        }
    }

    /// Takes a datagram with a payload of `bytes`. Returns false if it is not allowed.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let cost = self.pace.map_or(0, |pace| pace.cost(bytes, 1));
        if self.datagrams == 0 || (cost > self.units && !self.is_whole) {
            return false;
        }
        self.datagrams -= 1;
        self.units = self.units.saturating_sub(cost);
        self.is_whole = false;
        true
    }
}

/// Headers of IPv4 and UDP. Those of IPv6 are 20 bytes longer, which is not counted.
const HEADER_BYTES: u64 = 28;

/// An IP packet of the usual MTU.
const FULL_BYTES: u64 = 1500;

/// The longest wait for a trigger state.
const MOST_PATIENCE: Duration = Duration::from_micros(250);

/// The interval between transmissions that catch up, as a part of the interval at the rate.
const CATCH_UP: (u32, u32) = (16, 17);

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;
    use softclock_core::Rate;

    use super::*;

    const fn us(us: u64) -> Instant {
        Instant::from_ns(us * 1000)
    }

    fn mbit(mbit: u64) -> Pacing {
        Pacing::of_rate(Rate::from_bps(mbit * 1_000_000).unwrap())
    }

    /// Takes datagrams of `bytes` until no more are allowed, and records them. Returns their number.
    fn send(schedule: &mut Schedule, now: Instant, bytes: usize) -> u32 {
        let (mut allowance, mut number) = (schedule.due(now), 0);
        while allowance.take(bytes) {
            number += 1;
        }
        schedule.on_sent(now, number * bytes, number);
        number as u32
    }

    #[test]
    fn single_datagrams_where_the_rate_is_low() {
        let mut schedule = Schedule::new(mbit(20), 4);
        assert_eq!(send(&mut schedule, us(0), 1472), 1);
        assert_eq!(schedule.next(us(0)), us(600));
        assert_eq!(send(&mut schedule, us(600), 722), 1, "shorter");
        assert_eq!(schedule.next(us(600)), us(900));
    }

    #[test]
    fn as_many_are_joined_as_take_half_a_millisecond() {
        for (rate, burst, joined) in [
            (47, 8, 1),
            (49, 8, 2),
            (73, 8, 3),
            (97, 8, 4),
            (1000, 8, 8),
            (1000, 2, 2),
        ] {
            let mut schedule = Schedule::new(mbit(rate), burst);
            let sent = send(&mut schedule, us(0), 1472);
            assert_eq!(sent, joined, "{rate} Mbit/s");
        }
    }

    #[test]
    fn trains_are_as_long_as_stated_and_no_longer_than_the_burst() {
        for (joined, burst, sent) in [(4, 8, 4), (4, 2, 2), (0, 8, 1)] {
            let mut schedule = Schedule::new(mbit(10), burst);
            schedule.set_pacing(mbit(10).joining(joined));
            assert_eq!(send(&mut schedule, us(0), 1472), sent);
            // The rate is the same.
            assert_eq!(schedule.next(us(0)), us(1200 * u64::from(sent)));
        }
    }

    #[test]
    fn datagrams_are_counted_or_weighed() {
        let pace = Pacing::of_datagrams(NonZeroU32::new(1000).unwrap());
        let mut schedule = Schedule::new(pace, 4);
        assert_eq!(send(&mut schedule, us(0), 9000), 1);
        assert_eq!(schedule.next(us(0)), us(1000));
    }

    #[test]
    fn a_late_sender_sends_a_burst_and_catches_up_slowly() {
        let mut schedule = Schedule::new(mbit(20), 4);
        send(&mut schedule, us(0), 1472);
        // 20 transmissions late.
        assert_eq!(send(&mut schedule, us(12_300), 1472), 4);
        let next = schedule.next(us(12_300));
        assert!(next > us(12_850) && next < us(12_875), "{next:?}");
        assert_eq!(send(&mut schedule, next, 1472), 1);
    }

    #[test]
    fn a_sender_that_is_a_little_late_each_time_keeps_its_rate() {
        let mut schedule = Schedule::new(mbit(20), 4);
        let mut now = us(0);
        for _ in 0..1000 {
            // The timer thread waits, and is late itself.
            let next = schedule.next(now);
            now = next + schedule.patience(next) + Duration::from_micros(40);
            assert_eq!(send(&mut schedule, now, 1472), 1);
        }
        assert!(now < us(999 * 600 + 1000), "{now:?}");
    }

    #[test]
    fn patience_is_a_part_of_the_interval() {
        let patience = |pace| Schedule::new(pace, 4).patience(us(0));
        assert_eq!(patience(mbit(200)), Duration::from_micros(120));
        assert_eq!(patience(mbit(1)), MOST_PATIENCE);
        let counted = Pacing::of_datagrams(NonZeroU32::new(1000).unwrap());
        assert_eq!(patience(counted), Duration::ZERO);
    }

    #[test]
    fn a_late_sender_has_less_patience() {
        let mut schedule = Schedule::new(mbit(200), 4);
        send(&mut schedule, us(0), 1472);
        // Late by the whole wait, and by 20 us more: the next is due at 240 + 240.
        send(&mut schedule, us(240 + 120 + 20), 1472);
        let next = schedule.next(us(380));
        assert_eq!(next + schedule.patience(next), us(480 + 120));
    }

    #[test]
    fn a_new_rate_counts_from_the_last_transmission() {
        let mut schedule = Schedule::new(mbit(20), 4);
        send(&mut schedule, us(0), 1472);
        schedule.set_pacing(mbit(10));
        assert_eq!(schedule.next(us(10)), us(1200));
        schedule.set_pacing(mbit(1000));
        assert_eq!(schedule.next(us(10)), us(12));
        assert_eq!(send(&mut schedule, us(12), 1472), 4);
    }

    #[test]
    fn a_rate_in_other_units_counts_from_the_last_transmission() {
        let mut schedule = Schedule::new(mbit(20), 4);
        send(&mut schedule, us(0), 1472);
        schedule.set_pacing(Pacing::of_datagrams(NonZeroU32::new(1000).unwrap()));
        assert_eq!(schedule.next(us(10)), us(1000));
        schedule.set_pacing(mbit(20));
        assert_eq!(schedule.next(us(10)), us(600));
    }

    #[test]
    fn a_new_rate_counts_all_datagrams_of_the_last_transmission() {
        let mut schedule = Schedule::new(mbit(100), 4);
        // To four peers, by a call for each.
        (0..4).for_each(|_| schedule.on_sent(us(0), 1472, 1));
        assert_eq!(schedule.next(us(0)), us(480));
        schedule.set_pacing(mbit(50));
        assert_eq!(schedule.next(us(0)), us(960));
    }

    proptest! {
        #[test]
        fn never_above_the_rate_nor_the_burst(
            burst in 1u32..64,
            bytes in 1usize..65_508,
            lateness in proptest::collection::vec((0u64..2000, any::<bool>()), 1..100),
        ) {
            let mut schedule = Schedule::new(mbit(100), burst);
            let (mut now, mut cost) = (us(0), 0);
            for (late_us, ends) in lateness {
                now = schedule.next(now) + Duration::from_micros(late_us);
                let sent = send(&mut schedule, now, bytes);
                prop_assert!((1..=burst).contains(&sent));
                // Without the last transmission: it may take its time after now.
                let allowed = Rate::from_bps(100_000_000).unwrap().bytes_in(now.since(us(0)));
                prop_assert!(cost <= allowed + FULL_BYTES, "{cost} of {allowed}");
                cost += mbit(100).pace.cost(sent as usize * bytes, sent as usize);
                if ends {
                    schedule.end();
                }
            }
        }
    }
}
