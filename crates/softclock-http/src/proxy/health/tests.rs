//! The course of one upstream, and that of requests among several.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const OPTIONS: HealthOptions = HealthOptions {
    max_fails: 3,
    fail_time: Duration::from_secs(10),
};

fn at(seconds: u64) -> Instant {
    Instant::from_ns(seconds * 1_000_000_000)
}

/// Left out since then.
fn out_since(seconds: u64) -> Health {
    let mut health = Health::default();
    for _ in 0..OPTIONS.max_fails {
        health.on_failure(at(seconds), at(seconds), OPTIONS);
    }
    assert!(!health.is_up());
    health
}

/// Tries without a limit, of which these have failed.
fn after(tried: &[usize]) -> Tries {
    let mut tries = Tries::new(u32::MAX);
    tried
        .iter()
        .for_each(|&place| tries.on_failure(place, true));
    tries
}

#[test]
fn out_after_three_in_a_row_and_back_after_one() {
    let mut health = Health::default();
    assert!(!health.on_failure(at(1), at(1), OPTIONS));
    assert!(!health.on_failure(at(1), at(1), OPTIONS));
    assert!(!health.on_success(at(1)));
    assert!(!health.on_failure(at(2), at(2), OPTIONS));
    assert!(!health.on_failure(at(2), at(2), OPTIONS));
    assert!(health.on_failure(at(2), at(2), OPTIONS));
    assert!(!health.admits(at(11)));
    assert!(health.admits(at(12)));
    health.on_attempt();
    assert!(!health.admits(at(12)), "one request tries");
    health.on_abandoned(at(1));
    assert!(!health.admits(at(12)), "that began before it was left out");
    health.on_abandoned(at(12));
    assert!(health.admits(at(12)));
    health.on_attempt();
    assert!(
        !health.on_failure(at(12), at(13), OPTIONS),
        "it was out before"
    );
    assert!(!health.admits(at(22)) && health.admits(at(23)));
    assert!(health.on_success(at(23)));
    assert!(health.is_up() && health.admits(at(0)));
}

#[test]
fn heads_are_no_success() {
    let mut health = Health::default();
    for second in 1..=3 {
        health.on_head(at(second), at(second), OPTIONS);
        assert!(health.is_up());
        health.on_failure(at(second), at(second), OPTIONS);
    }
    assert!(!health.is_up());
    health.on_attempt();
    health.on_head(at(14), at(15), OPTIONS);
    assert!(!health.is_up() && !health.admits(at(24)));
    assert!(health.admits(at(25)), "whatever becomes of the body");
    assert!(health.on_success(at(14)));
}

#[test]
fn what_began_before_it_was_left_out_tells_nothing() {
    let mut health = out_since(5);
    health.on_head(at(4), at(9), OPTIONS);
    assert!(!health.on_success(at(4)));
    assert!(!health.on_failure(at(4), at(9), OPTIONS));
    assert!(health.admits(at(15)));
    // Another trial has failed since.
    health.on_failure(at(15), at(16), OPTIONS);
    assert!(health.on_success(at(15)));
}

#[test]
fn never_out_without_a_limit() {
    let mut health = Health::default();
    let options = HealthOptions {
        max_fails: 0,
        ..OPTIONS
    };
    assert!((0..1000).all(|_| !health.on_failure(at(1), at(1), options)));
    assert!(health.is_up());
}

#[test]
fn back_when_a_reload_allows_more_failures() {
    for max_fails in [0, 10] {
        let options = HealthOptions {
            max_fails,
            ..OPTIONS
        };
        let mut health = out_since(5);
        health.on_attempt();
        assert!(!health.on_failure(at(16), at(17), options));
        assert!(health.admits(at(100)), "{max_fails}");
    }
}

#[test]
fn turns_are_taken_and_the_longest_out_is_the_last_resort() {
    let mut all = [Health::default(); 3];
    let next = |all: &[Health; 3], first, tried: &[usize]| {
        choose(first, 3, at(5), &after(tried), |i| all[i], |_| false)
    };
    assert_eq!(next(&all, 0, &[]), Some(0));
    assert_eq!(next(&all, 2, &[2]), Some(0));
    for (place, second) in [(0, 3), (1, 2), (2, 4)] {
        all[place] = out_since(second);
    }
    assert_eq!(next(&all, 0, &[]), Some(1));
    assert_eq!(next(&all, 0, &[1]), Some(0));
    assert_eq!(next(&all, 0, &[0, 1, 2]), None);
    let nobody = choose(0, 0, at(0), &after(&[]), |_| all[0], |_| false);
    assert_eq!(nobody, None);
}

#[test]
fn after_a_failure_the_surest_is_asked() {
    let mut all = [Health::default(); 4];
    all[0] = out_since(1);
    all[1] = out_since(2);
    all[2].on_failure(at(3), at(3), OPTIONS);
    let next = |tried: &[usize]| choose(0, 4, at(100), &after(tried), |i| all[i], |_| false);
    assert_eq!(next(&[]), Some(0), "a trial");
    assert_eq!(next(&[0]), Some(3));
    assert_eq!(next(&[0, 3]), Some(2));
    assert_eq!(next(&[0, 3, 2]), Some(1));
}

#[test]
fn tries_that_reached_nobody_count_where_all_are_left_out() {
    let mut tries = Tries::new(2);
    let next = |tries: &Tries, health: Health| choose(0, 9, at(5), tries, |_| health, |_| false);
    for place in 0..3 {
        assert_eq!(next(&tries, Health::default()), Some(place));
        tries.on_failure(place, false);
    }
    assert_eq!(next(&tries, out_since(1)), None);
    tries.on_failure(3, true);
    assert_eq!(next(&tries, Health::default()), Some(4));
    tries.on_failure(4, true);
    assert_eq!(next(&tries, Health::default()), None);
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Behaviour {
    Answers,
    /// No server is there.
    Refuses,
    /// It takes requests and answers none.
    Closes,
}

/// A request that may be repeated; whether it was answered.
fn ask(
    all: &mut [Health],
    behaviours: &[Behaviour],
    next: &mut usize,
    now: Instant,
    limit: u32,
) -> bool {
    let mut tries = Tries::new(limit);
    loop {
        let chosen = choose(*next, all.len(), now, &tries, |i| all[i], |_| false);
        let Some(place) = chosen else {
            return false;
        };
        *next = (place + 1) % all.len();
        let is_left = |(i, health): (usize, &Health)| health.is_up() && !tries.tried.contains(&i);
        let any_up = all.iter().enumerate().any(is_left);
        assert!(all[place].is_up() || !any_up || tries.is_empty(), "a trial");
        all[place].on_attempt();
        if behaviours[place] == Behaviour::Answers {
            all[place].on_success(now);
            return true;
        }
        all[place].on_failure(now, now, OPTIONS);
        tries.on_failure(place, behaviours[place] == Behaviour::Closes);
    }
}

proptest! {
    #[test]
    fn whoever_is_left_gets_the_request(
        failures in vec(0u32..5, 1..6),
        first in 0usize..6,
        tried in vec(0usize..6, 0..6),
        now in 0u64..30,
    ) {
        let mut all = vec![Health::default(); failures.len()];
        for (health, &count) in all.iter_mut().zip(&failures) {
            (0..count).for_each(|_| { health.on_failure(at(1), at(1), OPTIONS); });
        }
        let chosen = choose(first, all.len(), at(now), &after(&tried), |i| all[i], |_| false);
        let possible: Vec<_> = (0..all.len()).filter(|i| !tried.contains(i)).collect();
        prop_assert_eq!(chosen.is_none(), possible.is_empty());
        if let Some(chosen) = chosen {
            prop_assert!(possible.contains(&chosen));
            let any_admits = possible.iter().any(|&i| all[i].admits(at(now)));
            prop_assert_eq!(all[chosen].admits(at(now)), any_admits);
        }
    }

    /// However many are gone. Those that take requests without an answer use tries up, but each of them in one request
    /// only until it is known.
    #[test]
    fn one_that_is_up_is_found(
        others in vec(prop_oneof![Just(Behaviour::Refuses), Just(Behaviour::Closes)], 0..8),
        place in 0usize..8,
        limit in 1u32..5,
        pauses in vec(0u64..12, 1..200),
    ) {
        let mut behaviours = others.clone();
        behaviours.insert(place.min(others.len()), Behaviour::Answers);
        let mut all = vec![Health::default(); behaviours.len()];
        let closing = others.iter().filter(|&&behaviour| behaviour == Behaviour::Closes).count() as u32;
        let (mut next, mut now, mut failed) = (0, 0, 0);
        for pause in pauses {
            now += pause;
            failed += u32::from(!ask(&mut all, &behaviours, &mut next, at(now), limit));
        }
        if closing == 0 {
            prop_assert_eq!(failed, 0);
        } else if limit > 1 {
            prop_assert!(failed <= closing / (limit - 1), "{} in vain", failed);
        }
    }
}
