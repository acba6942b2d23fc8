//! One rate shared by many senders.

use core::time::Duration;

use crate::Instant;
use crate::time::saturating_ns;
use crate::units::Rate;

/// A rate shared by many senders (the virtual scheduling algorithm of ITU-T I.371).
///
/// Before sending, a sender reserves the next free time, and sends when that time has come. Each sender has one
/// reservation at a time, so senders take turns, even if some send more at once than others. Times are reserved
/// ahead, so a late sender does not delay the others. Time that no sender reserves is lost, except for the slack,
/// which lets senders catch up a little.
///
/// A reservation takes a few additions and a division.
///
/// # Example
/// ```
/// use softclock_core::Instant;
/// use softclock_core::pacing::SharedRate;
/// use std::time::Duration;
///
/// // 1500 bytes take 1 ms at 12 Mbit/s.
/// let mut shared = SharedRate::new("12mbit".parse()?, Duration::ZERO);
/// let now = Instant::from_ns(5_000_000);
/// assert_eq!(shared.reserve(now, 1500), now);
/// assert_eq!(shared.reserve(now, 1500), now + Duration::from_millis(1));
/// assert!(!shared.reserve_now(now, 1500));
/// # Ok::<(), softclock_core::units::UnitError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedRate {
    rate: Rate,
    slack_ns: u64,
    next_free: Instant,
}

impl SharedRate {
    /// Creates a shared rate. After a pause, at most the bytes of `slack` at this rate may be sent at once.
    pub fn new(rate: Rate, slack: Duration) -> Self {
        Self {
            rate,
            slack_ns: saturating_ns(slack),
            next_free: Instant::from_ns(0),
        }
    }

    /// Returns the rate.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate. Reservations after `now` are void: their senders reserve anew, at this rate.
    pub fn set_rate(&mut self, now: Instant, rate: Rate) {
        self.rate = rate;
        self.next_free = self.next_free.min(now);
    }

    /// Reserves the time for `bytes` and returns when they may be sent, not before `now`. Unused reservations are
    /// lost.
    pub fn reserve(&mut self, now: Instant, bytes: u64) -> Instant {
        let from = self.next_free.max(now.sub_ns(self.slack_ns));
        self.next_free = from + self.rate.time_of(bytes);
        from.max(now)
    }

    /// Reserves the time for `bytes` only if they may be sent at once. Returns whether it did.
    pub fn reserve_now(&mut self, now: Instant, bytes: u64) -> bool {
        let is_free = self.next_free <= now;
        if is_free {
            self.reserve(now, bytes);
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const fn us(us: u64) -> Instant {
        Instant::from_ns(us * 1000)
    }

    fn mbit(rate: u64) -> Rate {
        Rate::from_bps(rate * 1_000_000).unwrap()
    }

    #[test]
    fn senders_take_turns() {
        let mut shared = SharedRate::new(mbit(100), Duration::ZERO);
        assert_eq!(shared.reserve(us(1000), 1500), us(1000));
        assert_eq!(shared.reserve(us(1000), 1500), us(1120));
        assert_eq!(shared.reserve(us(1001), 750), us(1240));
        assert_eq!(shared.reserve(us(1002), 1500), us(1300));
        assert!(!shared.reserve_now(us(1419), 1500), "until 1420");
        assert!(shared.reserve_now(us(1420), 1500));
        assert!(!shared.reserve_now(us(1420), 1500));
        assert_eq!(
            shared.reserve(us(5000), 1500),
            us(5000),
            "a pause is not made up"
        );
    }

    #[test]
    fn the_slack_is_made_up() {
        let mut shared = SharedRate::new(mbit(100), Duration::from_micros(200));
        assert_eq!(shared.reserve(us(1000), 1500), us(1000));
        assert_eq!(shared.reserve(us(1000), 1500), us(1000));
        assert_eq!(shared.reserve(us(1000), 1500), us(1040));
    }

    #[test]
    fn a_changed_rate_frees_what_was_reserved() {
        let mut shared = SharedRate::new(Rate::from_bps(1000).unwrap(), Duration::ZERO);
        for _ in 0..8 {
            shared.reserve(us(1000), 1448);
        }
        shared.set_rate(us(2000), mbit(100));
        assert_eq!(shared.reserve(us(2000), 1500), us(2000));
        assert_eq!(shared.reserve(us(2000), 1500), us(2120));
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate_and_the_slack(
            slack_us in 0u64..1000,
            sends in proptest::collection::vec((0u64..500, 1u64..3000), 1..200),
        ) {
            let slack = Duration::from_micros(slack_us);
            let mut shared = SharedRate::new(mbit(100), slack);
            let (mut now, mut sent) = (us(10_000), Vec::new());
            for (pause_us, bytes) in sends {
                now += Duration::from_micros(pause_us);
                let at = shared.reserve(now, bytes);
                prop_assert!(at >= now);
                sent.push((at, bytes));
            }
            for first in 0..sent.len() {
                let mut sum = 0;
                for &(at, bytes) in &sent[first..] {
                    // Rounding gives each transmission less than a nanosecond too much.
                    let allowed = mbit(100).bytes_in(at.since(sent[first].0) + slack);
                    prop_assert!(sum <= allowed + 1, "{sum} bytes, not {allowed}");
                    sum += bytes;
                }
            }
        }
    }
}
