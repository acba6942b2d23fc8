//! A limit on the rate of answers that other hosts can cause (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 f).

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use softclock_core::Instant;

use crate::demux::HashKey;

/// A token bucket: allows a number of events in each second on average, and a burst after a pause.
///
/// The bucket starts full. Its level is exact, in units of 10⁻⁹ token: in any period of `t` seconds it allows at most
/// `burst + per_second * t` events, and only tokens beyond a full bucket are lost.
///
/// ```
/// use softclock_core::Instant;
/// use softclock_net::rate_limit::TokenBucket;
///
/// let mut bucket = TokenBucket::new(10, 2);
/// let start = Instant::from_ns(5_000_000_000);
/// assert!(bucket.take(start) && bucket.take(start) && !bucket.take(start));
/// assert!(!bucket.take(start.add_ns(99_999_999)));
/// assert!(bucket.take(start.add_ns(100_000_000)));
/// ```
#[derive(Clone, Debug)]
pub struct TokenBucket {
    per_second: u32,
    burst: u32,
    /// In units of 10⁻⁹ token, at most `burst` tokens.
    level: u64,
    /// The latest time that the bucket was filled up to.
    filled: Instant,
}

impl TokenBucket {
    /// Creates a full bucket of `burst` tokens, to which `per_second` tokens are added in each second. Without a burst
    /// it allows nothing; without a rate, only the first burst.
    #[must_use]
    pub const fn new(per_second: u32, burst: u32) -> Self {
        Self {
            per_second,
            burst,
            level: capacity(burst),
            filled: Instant::ORIGIN,
        }
    }

    /// Takes a token, if there is one; returns whether. A time before that of an earlier call adds no tokens.
    #[must_use]
    pub fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let rest = self.level.checked_sub(TOKEN);
        self.level = rest.unwrap_or(self.level);
        rest.is_some()
    }

    /// Whether [`take`](Self::take) would find a token.
    #[must_use]
    pub fn has_token(&self, now: Instant) -> bool {
        self.level_at(now) >= TOKEN
    }

    /// The time at which there is a token: `now`, if there is one; a time in the distant future, if none comes.
    #[must_use]
    pub fn next_token(&self, now: Instant) -> Instant {
        let missing = TOKEN.saturating_sub(self.level_at(now));
        match (missing, self.burst) {
            (0, _) => now,
            (_, 0) => Instant::FAR_FUTURE,
            // From the latest time on, if the clock has gone back.
            _ => match missing.checked_next_multiple_of(self.per_second.into()) {
                Some(units) => (self.filled.max(now)).add_ns(units / u64::from(self.per_second)),
                None => Instant::FAR_FUTURE,
            },
        }
    }

    fn fill(&mut self, now: Instant) {
        self.level = self.level_at(now);
        self.filled = self.filled.max(now);
    }

    fn level_at(&self, now: Instant) -> u64 {
        // One nanosecond adds `per_second` units. Saturation is exact, because a full bucket holds less than 2^63.
        let added = now
            .ns_since(self.filled)
            .saturating_mul(self.per_second.into());
        self.level.saturating_add(added).min(capacity(self.burst))
    }
}

/// Token buckets by sender, so that one host does not use up the answers of all.
///
/// Senders share a fixed number of buckets by a keyed hash of their address (IPv6: of its /64), so memory is fixed, and
/// no host can choose the bucket of another. A sender that shares the bucket of a flood is limited with it.
///
/// ```
/// use softclock_core::Instant;
/// use softclock_net::demux::HashKey;
/// use softclock_net::rate_limit::{SourceBuckets, TokenBucket};
///
/// let mut buckets = SourceBuckets::new(TokenBucket::new(10, 2), TokenBucket::new(40, 8), HashKey([1, 2]));
/// let (flood, other) = ("10.0.0.1".parse()?, "10.0.0.2".parse()?);
/// let now = Instant::ORIGIN;
/// assert_eq!((0..100).filter(|_| buckets.take(now, flood)).count(), 2);
/// assert!(buckets.take(now, other));
/// # Ok::<(), core::net::AddrParseError>(())
/// ```
#[derive(Clone)]
pub struct SourceBuckets {
    key: HashKey,
    all: TokenBucket,
    by_source: Vec<TokenBucket>,
}

impl SourceBuckets {
    /// Creates full buckets: one like `each` for each group of senders, and `all` for all together.
    pub fn new(each: TokenBucket, all: TokenBucket, key: HashKey) -> Self {
        Self {
            key,
            all,
            by_source: vec![each; SOURCES],
        }
    }

    /// Takes a token for a packet from `source`, if there is one; returns whether.
    #[must_use]
    pub fn take(&mut self, now: Instant, source: IpAddr) -> bool {
        let hash = match source {
            IpAddr::V4(source) => self.key.hash(&source.octets()),
            IpAddr::V6(source) => self.key.hash(&source.octets()[..8]),
        };
        let own = &mut self.by_source[hash as usize % SOURCES];
        own.take(now) && self.all.take(now)
    }
}

/// The number of groups of senders.
const SOURCES: usize = 256;

const fn capacity(burst: u32) -> u64 {
    burst as u64 * TOKEN
}

/// The units of one token: one for each nanosecond of a second, so that a rate is a whole number of units a nanosecond.
const TOKEN: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    /// The events that a bucket allows of `asked` at one time.
    fn allowed(bucket: &mut TokenBucket, now: Instant, asked: u32) -> u32 {
        (0..asked).map(|_| u32::from(bucket.take(now))).sum()
    }

    proptest! {
        #[test]
        fn the_level_is_that_of_exact_arithmetic(
            per_second in prop_oneof![0..5_u32, any::<u32>()],
            burst in prop_oneof![0..5_u32, any::<u32>()],
            steps in prop::collection::vec(prop_oneof![0..3_u64, 0..3_000_000_000_u64, any::<u64>()], 1..50),
        ) {
            let mut bucket = TokenBucket::new(per_second, burst);
            let full = u128::from(burst) * u128::from(TOKEN);
            let (mut level, mut now) = (full, 0_u64);
            for step in steps {
                let later = now.saturating_add(step);
                level = full.min(level + u128::from(later - now) * u128::from(per_second));
                now = later;
                let is_allowed = level >= u128::from(TOKEN);
                level -= if is_allowed { u128::from(TOKEN) } else { 0 };
                prop_assert_eq!(bucket.has_token(at(now)), is_allowed);
                let next = bucket.next_token(at(now));
                prop_assert!(!is_allowed || next == at(now));
                if !is_allowed && next < Instant::FAR_FUTURE {
                    prop_assert!(bucket.has_token(next) && !bucket.has_token(next.sub_ns(1)));
                }
                prop_assert_eq!(bucket.take(at(now)), is_allowed);
                prop_assert_eq!(u128::from(bucket.level), level);
            }
        }

        #[test]
        fn no_period_allows_more_than_the_burst_and_the_rate(
            per_second in 0..2_000_u32,
            burst in 0..20_u32,
            times in prop::collection::vec(0..2_000_000_000_u64, 1..300),
        ) {
            // The times are in no order: a clock that goes back must not add tokens.
            let mut bucket = TokenBucket::new(per_second, burst);
            let allowed = times.iter().filter(|&&ns| bucket.take(at(ns))).count() as u64;
            let latest = times.iter().max().copied().unwrap_or(0);
            prop_assert!(allowed <= u64::from(burst) + latest * u64::from(per_second) / TOKEN);
        }
    }

    #[test]
    fn a_rate_that_divides_no_second_loses_no_token() {
        let mut bucket = TokenBucket::new(7, 2);
        let polls = (0..=10_000_000_000).step_by(1_000_000);
        let allowed: u32 = polls.map(|ns| u32::from(bucket.take(at(ns)))).sum();
        assert_eq!(allowed, 2 + 70);
    }

    #[test]
    fn a_pause_allows_one_burst_and_not_more() {
        let mut bucket = TokenBucket::new(1_000, 50);
        assert_eq!(allowed(&mut bucket, at(0), 100), 50);
        assert_eq!(allowed(&mut bucket, Instant::FAR_FUTURE, 100), 50);
    }

    #[test]
    fn a_time_that_goes_back_adds_nothing_and_takes_nothing_away() {
        let mut bucket = TokenBucket::new(1, 3);
        assert!(bucket.take(at(2 * TOKEN)));
        assert_eq!(allowed(&mut bucket, at(0), 9), 2);
        assert!(!bucket.take(at(2 * TOKEN)));
        assert!(bucket.take(at(3 * TOKEN)));
    }
}
