//! Whether an upstream gets requests: judged by those it got before, and by nothing else.
//!
//! One that fails several times in a row is left out for a while. Then one request tries it again: it comes back or is
//! left out anew.

use std::time::Duration;

use softclock::Instant;

/// When an upstream is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthOptions {
    /// After so many failures in a row; 0 for never.
    pub max_fails: u32,
    /// For how long.
    pub fail_time: Duration,
}

impl Default for HealthOptions {
    fn default() -> Self {
        Self {
            max_fails: 3,
            fail_time: Duration::from_secs(10),
        }
    }
}

/// What is known of one upstream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Health {
    /// In a row.
    failures: u32,
    out: Option<Out>,
}

#[derive(Clone, Copy, Debug)]
struct Out {
    until: Instant,
    /// One request is finding out whether it is back.
    on_trial: bool,
}

impl Health {
    /// Whether requests are sent there as a rule.
    pub(super) fn is_up(&self) -> bool {
        self.out.is_none()
    }

    /// Whether the next request may be sent there.
    pub(super) fn admits(&self, now: Instant) -> bool {
        self.out.is_none_or(|out| now >= out.until && !out.on_trial)
    }

    /// Since when, or from when on, it may be tried.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.out.map(|out| out.until)
    }

    /// A request is sent.
    pub(super) fn on_attempt(&mut self) {
        if let Some(out) = &mut self.out {
            out.on_trial = true;
        }
    }

    /// A request ended without telling anything about the upstream.
    pub(super) fn on_abandoned(&mut self) {
        if let Some(out) = &mut self.out {
            out.on_trial = false;
        }
    }

    /// It answered; true if it is back.
    pub(super) fn on_success(&mut self) -> bool {
        self.failures = 0;
        self.out.take().is_some()
    }

    /// It failed; true if it is left out from now on.
    pub(super) fn on_failure(&mut self, now: Instant, options: HealthOptions) -> bool {
        self.failures = self.failures.saturating_add(1);
        if options.max_fails == 0 || self.failures < options.max_fails {
            return false;
        }
        let was_up = self.is_up();
        self.out = Some(Out {
            until: now + options.fail_time,
            on_trial: false,
        });
        was_up
    }
}

/// The next of `count` upstreams, in turn from `first` on: one that is not `excluded` and admits a request at `now`, or
/// else the one left out for longest, as any answer is better than none.
pub(super) fn choose(
    first: usize,
    count: usize,
    now: Instant,
    health: impl Fn(usize) -> Health,
    excluded: impl Fn(usize) -> bool,
) -> Option<usize> {
    let in_turn = || (0..count).map(|step| (first + step) % count);
    let mut possible = in_turn().filter(|&place| !excluded(place));
    let admitting = possible.find(|&place| health(place).admits(now));
    admitting.or_else(|| {
        in_turn()
            .filter(|&place| !excluded(place))
            .min_by_key(|&place| health(place).retry_at())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPTIONS: HealthOptions = HealthOptions {
        max_fails: 3,
        fail_time: Duration::from_secs(10),
    };

    fn at(seconds: u64) -> Instant {
        Instant::from_ns(seconds * 1_000_000_000)
    }

    #[test]
    fn out_after_three_in_a_row_and_back_after_one() {
        let mut health = Health::default();
        assert!(!health.on_failure(at(1), OPTIONS));
        assert!(!health.on_failure(at(1), OPTIONS));
        assert!(!health.on_success());
        assert!(!health.on_failure(at(2), OPTIONS));
        assert!(!health.on_failure(at(2), OPTIONS));
        assert!(health.on_failure(at(2), OPTIONS));
        assert!(!health.admits(at(11)));
        assert!(health.admits(at(12)));
        health.on_attempt();
        assert!(!health.admits(at(12)), "one request tries");
        health.on_abandoned();
        assert!(health.admits(at(12)));
        health.on_attempt();
        assert!(!health.on_failure(at(13), OPTIONS), "it was out before");
        assert!(!health.admits(at(22)) && health.admits(at(23)));
        assert!(health.on_success());
        assert!(health.is_up() && health.admits(at(0)));
    }

    #[test]
    fn never_out_without_a_limit() {
        let mut health = Health::default();
        let options = HealthOptions {
            max_fails: 0,
            ..OPTIONS
        };
        assert!((0..1000).all(|_| !health.on_failure(at(1), options)));
        assert!(health.is_up());
    }

    #[test]
    fn turns_are_taken_and_the_longest_out_is_the_last_resort() {
        let mut all = [Health::default(); 3];
        let next = |all: &[Health; 3], first, excluded: &[usize]| {
            choose(first, 3, at(5), |i| all[i], |i| excluded.contains(&i))
        };
        assert_eq!(next(&all, 0, &[]), Some(0));
        assert_eq!(next(&all, 2, &[2]), Some(0));
        for (place, second) in [(0, 3), (1, 2), (2, 4)] {
            for _ in 0..3 {
                all[place].on_failure(at(second), OPTIONS);
            }
        }
        assert_eq!(next(&all, 0, &[]), Some(1));
        assert_eq!(next(&all, 0, &[1]), Some(0));
        assert_eq!(next(&all, 0, &[0, 1, 2]), None);
        assert_eq!(choose(0, 0, at(0), |_| Health::default(), |_| false), None);
    }

    proptest! {
        #[test]
        fn whoever_is_not_excluded_gets_the_request(
            failures in proptest::collection::vec(0u32..5, 1..6),
            first in 0usize..6,
            excluded in proptest::collection::vec(any::<bool>(), 6),
            now in 0u64..30,
        ) {
            let mut all = vec![Health::default(); failures.len()];
            for (health, &count) in all.iter_mut().zip(&failures) {
                (0..count).for_each(|_| { health.on_failure(at(1), OPTIONS); });
            }
            let chosen = choose(first, all.len(), at(now), |i| all[i], |i| excluded[i]);
            let possible: Vec<_> = (0..all.len()).filter(|&i| !excluded[i]).collect();
            prop_assert_eq!(chosen.is_none(), possible.is_empty());
            if let Some(chosen) = chosen {
                prop_assert!(possible.contains(&chosen));
                let any_admits = possible.iter().any(|&i| all[i].admits(at(now)));
                prop_assert_eq!(all[chosen].admits(at(now)), any_admits);
            }
        }
    }
}
