//! Limits on challenge ACKs and other ACKs that a forged segment can cause (RFC 5961, 7).

use core::time::Duration;

use softclock_core::Instant;

use crate::demux::HashKey;

/// The segments that end a connection although they may be forged. RFC 5961 answers them by a challenge ACK instead,
/// which only the real peer can react to. Both are off by default, and only tests of other stacks' behavior want them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trust {
    /// Whether any RST in the window resets a connection (RFC 793), not only one with the expected sequence number.
    pub resets_in_window: bool,
    /// Whether a SYN in the window resets a connection (RFC 793).
    pub syns_in_window: bool,
}

/// The settings of a [`ChallengeLimiter`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ChallengeSettings {
    /// The mean number of challenge ACKs in a second, for all connections together, without the answers to probes of
    /// peers. The default is 1000, as in Linux up to 6.0 (`tcp_challenge_ack_limit`).
    pub per_second: u32,
    /// The least time between two challenge ACKs of one connection, which ends loops of ACKs between two hosts whose
    /// states differ. The default is 500 ms, as in Linux (`tcp_invalid_ratelimit`).
    pub interval: Duration,
}

impl Default for ChallengeSettings {
    fn default() -> Self {
        Self {
            per_second: 1000,
            interval: Duration::from_millis(500),
        }
    }
}

/// A limit on challenge ACKs for each connection, and for all together.
///
/// With a constant limit for all, an off-path attacker can find out whether a forged segment caused a challenge ACK:
/// it counts how many are left of the limit, on a connection of its own (CVE-2016-5696). Here the limit of each second
/// lies between a half and one and a half of the mean, by a keyed hash.
///
/// ```
/// use core::time::Duration;
/// use softclock_core::Instant;
/// use softclock_net::demux::HashKey;
/// use softclock_net::tcp::challenge::{ChallengeLimiter, ChallengeSettings, LastChallenge};
///
/// let mut limiter = ChallengeLimiter::new(ChallengeSettings::default(), HashKey([1, 2]));
/// let mut of_connection = LastChallenge::default();
/// let now = Instant::from_ns(5_000_000_000);
/// assert!(limiter.allows(now, &mut of_connection));
/// assert!(!limiter.allows(now, &mut of_connection));
/// assert!(limiter.allows(now + Duration::from_millis(500), &mut of_connection));
/// ```
#[derive(Clone, Debug)]
pub struct ChallengeLimiter {
    settings: ChallengeSettings,
    key: HashKey,
    /// The first second for which the limit has not been chosen yet.
    next_second: u64,
    left: u32,
    counts: ChallengeCounts,
}

/// The challenge ACKs of a [`ChallengeLimiter`] so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ChallengeCounts {
    /// Those that were allowed.
    pub sent: u64,
    /// Those that the limits did not allow.
    pub withheld: u64,
}

impl ChallengeCounts {
    /// Adds other counts.
    pub const fn add(&mut self, more: &Self) {
        self.sent += more.sent;
        self.withheld += more.withheld;
    }
}

impl ChallengeLimiter {
    /// Creates a limiter. The key must be random and secret.
    pub fn new(settings: ChallengeSettings, key: HashKey) -> Self {
        Self {
            settings,
            key,
            next_second: 0,
            left: 0,
            counts: ChallengeCounts::default(),
        }
    }

    /// Whether a challenge ACK of a connection may be sent now; it counts against both limits then.
    #[must_use]
    pub fn allows(&mut self, now: Instant, last: &mut LastChallenge) -> bool {
        if self.is_too_early(now, *last) || !self.allows_any(now) {
            return false;
        }
        *last = LastChallenge::at(now);
        true
    }

    /// Whether a connection may answer a probe of its peer now, such as a keep-alive. Counts against the limit of the
    /// connection only, as in Linux: many peers that probe at the same time are each to learn that it lives.
    #[must_use]
    pub fn allows_answer(&mut self, now: Instant, last: &mut LastChallenge) -> bool {
        if self.is_too_early(now, *last) {
            return false;
        }
        self.counts.sent += 1;
        *last = LastChallenge::at(now);
        true
    }

    /// Whether the latest challenge ACK of a connection is less than the interval ago; then one is withheld.
    fn is_too_early(&mut self, now: Instant, last: LastChallenge) -> bool {
        let interval_ms = self.settings.interval.as_millis() as u32;
        let is_within = last.is_within(now, interval_ms);
        self.counts.withheld += u64::from(is_within);
        is_within
    }

    /// Like [`allows`](Self::allows), for a connection that has no [`LastChallenge`].
    #[must_use]
    pub fn allows_any(&mut self, now: Instant) -> bool {
        let second = now.as_ns() / NS_IN_SECOND;
        if second >= self.next_second {
            self.next_second = second.saturating_add(1);
            let per_second = u64::from(self.settings.per_second);
            let jitter = self.key.mac(&second.to_be_bytes()) % (per_second + 1);
            self.left = u32::try_from(per_second.div_ceil(2) + jitter).unwrap_or(u32::MAX);
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        match left {
            Some(_) => self.counts.sent += 1,
            None => self.counts.withheld += 1,
        }
        left.is_some()
    }

    /// The challenge ACKs so far.
    pub const fn counts(&self) -> ChallengeCounts {
        self.counts
    }
}

/// The time of a connection's latest challenge ACK, in 4 bytes. A time 50 days ago may count as now, which delays a
/// challenge ACK by the interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LastChallenge(u32);

impl LastChallenge {
    /// 0 means never.
    fn at(now: Instant) -> Self {
        Self(milliseconds(now).max(1))
    }

    fn is_within(self, now: Instant, interval_ms: u32) -> bool {
        self.0 != 0 && milliseconds(now).wrapping_sub(self.0) < interval_ms
    }
}

fn milliseconds(now: Instant) -> u32 {
    (now.as_ns() / 1_000_000) as u32
}

const NS_IN_SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn allowed_in_each_second(per_second: u32, key: u64) -> Vec<u32> {
        let settings = ChallengeSettings {
            per_second,
            ..ChallengeSettings::default()
        };
        let mut limiter = ChallengeLimiter::new(settings, HashKey([key, 0]));
        let count = |second: u64| {
            let now = Instant::from_ns(second * NS_IN_SECOND);
            (0..10_000)
                .map(|_| u32::from(limiter.allows_any(now)))
                .sum()
        };
        (0..50).map(count).collect()
    }

    #[test]
    fn the_limit_of_a_second_lies_around_the_mean_and_cannot_be_foreseen() {
        let allowed = allowed_in_each_second(1000, 7);
        assert!(allowed.iter().all(|count| (500..=1500).contains(count)));
        let mean = allowed.iter().sum::<u32>() / 50;
        assert!((850..1150).contains(&mean), "{mean}");
        assert_ne!(allowed, allowed_in_each_second(1000, 8));
    }

    #[test]
    fn no_challenges_are_allowed_at_a_rate_of_zero() {
        assert_eq!(allowed_in_each_second(0, 7).iter().sum::<u32>(), 0);
        assert!(allowed_in_each_second(1, 7).iter().all(|count| *count <= 2));
    }

    #[test]
    fn answers_to_probes_have_the_limit_of_their_connection_only() {
        let settings = ChallengeSettings {
            per_second: 0,
            ..ChallengeSettings::default()
        };
        let mut limiter = ChallengeLimiter::new(settings, HashKey([1, 2]));
        let mut connections = [LastChallenge::default(); 3];
        for (ms, is_allowed) in [(0, true), (499, false), (501, true)] {
            let now = Instant::from_ns(ms * 1_000_000);
            let allowed = (connections.each_mut()).map(|last| limiter.allows_answer(now, last));
            assert_eq!(allowed, [is_allowed; 3], "{ms}");
        }
        assert!(!limiter.allows(Instant::ORIGIN, &mut LastChallenge::default()));
    }

    #[test]
    fn connections_do_not_use_up_the_interval_of_each_other() {
        let mut limiter = ChallengeLimiter::new(ChallengeSettings::default(), HashKey([1, 2]));
        let mut connections = [LastChallenge::default(); 3];
        for ms in [0, 499, 501, 700] {
            let now = Instant::from_ns(ms * 1_000_000);
            let allowed = connections.each_mut().map(|last| limiter.allows(now, last));
            assert_eq!(allowed, [ms == 0 || ms == 501; 3], "{ms}");
        }
        let ChallengeCounts { sent, withheld } = limiter.counts();
        assert_eq!((sent, withheld), (6, 6));
    }
}
