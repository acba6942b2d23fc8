//! Protection against wrapped sequence numbers (RFC 7323, 5).

use core::time::Duration;

use softclock_core::Instant;

use super::send::ClockUnit;
use super::seq::Seq;

/// The newest time stamp of the other end that is in order (TS.Recent), for connections that use time stamps.
///
/// The connection asks [`is_old`](Self::is_old) before all other checks of a segment, except for resets, and calls
/// [`on_accepted`](Self::on_accepted) for each segment that is acceptable and whose acknowledgment can be the peer's.
///
/// ```
/// use softclock_core::Instant;
/// use softclock_net::tcp::paws::Paws;
/// use softclock_net::tcp::seq::Seq;
///
/// let now = Instant::from_ns(0);
/// let mut paws = Paws::new(now, 1000);
/// assert!(paws.is_old(now, 999));
/// paws.on_accepted(now, 1007, Seq(1), Seq(1));
/// assert_eq!(paws.recent(), 1007);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paws {
    updated: Instant,
    recent: u32,
    /// The fastest clock that the other end may have.
    clock: ClockUnit,
}

impl Paws {
    /// Begins with the time stamp of the other end's SYN, which arrived at `arrived`.
    pub const fn new(arrived: Instant, value: u32) -> Self {
        Self {
            updated: arrived,
            recent: value,
            clock: ClockUnit::Milliseconds,
        }
    }

    /// The same for another end whose clock may be as fast as this. A peer does not say which clock it has.
    #[must_use]
    pub const fn with_clock(self, clock: ClockUnit) -> Self {
        Self { clock, ..self }
    }

    /// The value that segments echo (TSecr).
    pub const fn recent(&self) -> u32 {
        self.recent
    }

    /// Whether a segment that arrived at `arrived` with the time stamp `value` is an old duplicate: the connection
    /// drops it and answers with an ACK (RFC 7323, 5.3 R1).
    ///
    /// After [24 days](Self::LIFETIME) without a newer time stamp, the clock of the other end may have wrapped, so no
    /// segment counts as old (RFC 7323, 5.5); with a clock of 1 us after [35 minutes](Self::FAST_LIFETIME).
    pub const fn is_old(&self, arrived: Instant, value: u32) -> bool {
        Seq(value).is_before(Seq(self.recent)) && !self.is_outdated(arrived)
    }

    /// Takes over the time stamp of a segment that passed the check and begins at or before `last_ack_sent`, the
    /// acknowledgment that was sent last (RFC 7323, 5.3 R3 and 4.3). An echo therefore measures the delay of the
    /// acknowledgment, too, and time stamps of segments behind a gap are not echoed.
    pub fn on_accepted(&mut self, arrived: Instant, value: u32, seq: Seq, last_ack_sent: Seq) {
        if seq.is_at_or_before(last_ack_sent) && !self.is_old(arrived, value) {
            self.recent = value;
            self.updated = arrived;
        }
    }

    const fn is_outdated(&self, arrived: Instant) -> bool {
        let lifetime = match self.clock {
            ClockUnit::Milliseconds => Self::LIFETIME,
            ClockUnit::Microseconds => Self::FAST_LIFETIME,
        };
        arrived.ns_since(self.updated) > lifetime.as_nanos() as u64
    }

    /// The time after which a clock of 1 ms, the fastest that RFC 7323 allows, could wrap its sign bit (5.5).
    pub const LIFETIME: Duration = Duration::from_secs(24 * 24 * 60 * 60);

    /// The time after which a clock of 1 us could wrap its sign bit.
    pub const FAST_LIFETIME: Duration = Duration::from_secs(35 * 60);
}

const _: () = assert!(size_of::<Paws>() <= 16);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_equal_time_stamp_is_not_old() {
        let paws = Paws::new(Instant::ORIGIN, 5);
        assert!(!paws.is_old(Instant::ORIGIN, 5));
        assert!(paws.is_old(Instant::ORIGIN, 4));
    }

    #[test]
    fn a_time_stamp_behind_a_gap_is_not_echoed() {
        let mut paws = Paws::new(Instant::ORIGIN, 5);
        paws.on_accepted(Instant::ORIGIN, 9, Seq(101), Seq(100));
        assert_eq!(paws.recent(), 5);
        paws.on_accepted(Instant::ORIGIN, 9, Seq(100), Seq(100));
        assert_eq!(paws.recent(), 9);
    }

    #[test]
    fn an_older_time_stamp_counts_after_24_idle_days() {
        let mut paws = Paws::new(Instant::ORIGIN, 5);
        let then = Instant::ORIGIN + Paws::LIFETIME;
        assert!(paws.is_old(then, 4));
        let later = then + Duration::from_nanos(1);
        assert!(!paws.is_old(later, 4));
        paws.on_accepted(later, 4, Seq(1), Seq(1));
        assert_eq!(paws.recent(), 4);
        assert!(paws.is_old(later, 3));
    }

    #[test]
    fn a_fast_clock_may_have_wrapped_after_40_idle_minutes() {
        let paws = Paws::new(Instant::ORIGIN, 5);
        let value = 5 + 2_400_000_000;
        let then = Instant::ORIGIN + Duration::from_secs(40 * 60);
        assert!(paws.is_old(then, value));
        let paws = paws.with_clock(ClockUnit::Microseconds);
        assert!(!paws.is_old(then, value));
        assert!(paws.is_old(Instant::ORIGIN + Paws::FAST_LIFETIME, value));
    }

    proptest! {
        #[test]
        fn the_recent_value_never_goes_back_while_it_is_fresh(
            first in any::<u32>(),
            values in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 1..50),
        ) {
            let mut paws = Paws::new(Instant::ORIGIN, first);
            for (value, seq, last_ack_sent) in values {
                let before = paws.recent();
                paws.on_accepted(Instant::ORIGIN, value, Seq(seq), Seq(last_ack_sent));
                prop_assert!(Seq(before).is_at_or_before(Seq(paws.recent())));
                prop_assert!(paws.recent() == before || paws.recent() == value);
            }
        }
    }
}
