//! Transfers over paths of all kinds.

use super::*;

#[test]
fn a_clean_path_is_filled_without_any_retransmission() {
    let outcome = run(&Path {
        bytes: 20_000_000,
        ..Path::default()
    });
    assert_eq!(outcome.stats.retransmissions, outcome.dropped);
    assert_eq!(outcome.arrived_twice, 0);
    assert!(
        outcome.elapsed < ms(2400),
        "{outcome:?}",
        outcome = outcome.elapsed
    );
}

#[test]
fn one_loss_is_repaired_within_a_round_trip() {
    let outcome = run(&Path {
        drops: vec![3],
        ..Path::default()
    });
    assert_eq!(
        (outcome.stats.retransmissions, outcome.stats.recoveries),
        (1, 1)
    );
    assert_eq!((outcome.stats.timeouts, outcome.stats.tail_probes), (0, 0));
}

#[test]
fn a_round_trip_longer_than_the_least_timeout_causes_none() {
    for (delay, has_sack) in [(150, true), (300, true), (300, false), (900, true)] {
        let path = Path {
            delay: ms(delay),
            drops: vec![24, 26],
            has_sack,
            ..Path::default()
        };
        let outcome = run(&path);
        assert_eq!(
            outcome.stats.timeouts, 0,
            "{delay}, {has_sack}: {:?}",
            outcome.stats
        );
        assert_eq!(
            outcome.stats.retransmissions, 2,
            "{delay}, {has_sack}: {:?}",
            outcome.stats
        );
    }
}

#[test]
fn a_lost_retransmission_is_found_without_a_timeout() {
    let mut drops = vec![20];
    let path = Path {
        bytes: 300_000,
        ..Path::default()
    };
    let first = run(&Path {
        drops: drops.clone(),
        ..path.clone()
    });
    let again = first
        .log
        .iter()
        .position(|(_, segment)| segment.kind == TransmitKind::Retransmission);
    drops.push(again.unwrap());
    let outcome = run(&Path { drops, ..path });
    assert_eq!(outcome.stats.timeouts, 0, "{:?}", outcome.stats);
    assert_eq!(outcome.stats.retransmissions, 2);
    assert_eq!(outcome.stats.recoveries, 1);
}

#[test]
fn a_lost_tail_is_repaired_by_a_probe() {
    for lost in 1..8 {
        // 20 segments, the last of which are lost.
        let path = Path {
            bytes: 20_000,
            has_times: false,
            ..Path::default()
        };
        let count = run(&path).log.len();
        let drops = (count - lost..count).collect();
        let outcome = run(&Path { drops, ..path });
        assert_eq!(
            outcome.stats.timeouts, 0,
            "{lost} lost: {:?}",
            outcome.stats
        );
        assert!(outcome.stats.tail_probes >= 1);
        assert!(
            outcome.elapsed < ms(600),
            "{lost} lost: {:?}",
            outcome.elapsed
        );
    }
}

#[test]
fn a_lost_flight_needs_one_timeout() {
    let outcome = run(&Path {
        bytes: 5000,
        drops: (0..7).collect(),
        ..Path::default()
    });
    assert!(
        (1..=2).contains(&outcome.stats.timeouts),
        "{:?}",
        outcome.stats
    );
}

#[test]
fn reordering_within_the_window_causes_no_retransmission() {
    for percent in [0, 10, 20] {
        // A quarter of the round trip of 40 ms is tolerated from the start.
        let path = Path {
            bytes: 3_000_000,
            reordering: percent * 10,
            reordering_by: ms(9),
            ..Path::default()
        };
        let outcome = run(&path);
        let stats = outcome.stats;
        assert!(
            stats.retransmissions <= outcome.dropped + 6,
            "{percent} %: {stats:?}"
        );
        assert_eq!(stats.timeouts, 0);
    }
}

#[test]
fn the_window_adapts_to_reordering_beyond_it() {
    let path = Path {
        bytes: 10_000_000,
        reordering: 20,
        reordering_by: ms(30),
        ..Path::default()
    };
    let plain = run(&Path {
        reordering: 0,
        ..path.clone()
    });
    let outcome = run(&path);
    let stats = outcome.stats;
    // Duplicates widen the window until none is left.
    assert!(stats.retransmissions - outcome.dropped < 150, "{stats:?}");
    assert!(stats.undone > 0, "{stats:?}");
    assert_eq!(stats.timeouts, 0);
    let ratio = outcome.elapsed.as_secs_f64() / plain.elapsed.as_secs_f64();
    assert!(ratio < 1.6, "{ratio} {stats:?}");
}

#[test]
fn random_losses_are_repaired_without_waste() {
    for loss in [1, 10, 50] {
        for seed in 1..6 {
            let path = Path {
                bytes: 2_000_000,
                loss,
                seed,
                ..Path::default()
            };
            let outcome = run(&path);
            let stats = outcome.stats;
            // With four segments in flight, the loss of a retransmission can leave nothing that shows it.
            let most_timeouts = if loss == 50 { 5 } else { 0 };
            assert!(
                stats.timeouts <= most_timeouts,
                "{loss}, seed {seed}: {stats:?}"
            );
            // Each loss is repaired once, and nothing else is sent again.
            assert_eq!(outcome.arrived_twice, 0, "{loss}, seed {seed}: {stats:?}");
            // The rate is about that of Mathis et al. (1997): 1.22 segments in a round trip, over the root of the loss.
            let segments = 1.22 / (f64::from(loss) / 1000.0).sqrt();
            let rate = 2_000_000.0 / outcome.elapsed.as_secs_f64();
            assert!(
                rate > 0.6 * segments * 1000.0 / 0.042,
                "{loss}, seed {seed}: {rate} {stats:?}"
            );
        }
    }
}

#[test]
fn a_policer_costs_no_timeouts() {
    // 10 Mbit/s with a burst of 50 kB on a path of 100 Mbit/s.
    let path = Path {
        bytes: 5_000_000,
        policer: Some((1_250_000, 50_000)),
        ..Path::default()
    };
    let outcome = run(&path);
    assert!(outcome.stats.timeouts <= 1, "{:?}", outcome.stats);
    let rate = 5_000_000.0 / outcome.elapsed.as_secs_f64();
    assert!(rate > 0.75 * 1_250_000.0, "{rate} {:?}", outcome.stats);
    assert!(outcome.arrived_twice <= 5, "{}", outcome.arrived_twice);
}

#[test]
fn lazy_processing_is_no_loss() {
    let path = Path {
        bytes: 3_000_000,
        reordering: 20,
        reordering_by: ms(5),
        ..Path::default()
    };
    for laziness in [1, 7, 30] {
        let outcome = run(&Path {
            laziness: ms(laziness),
            ..path.clone()
        });
        let stats = outcome.stats;
        assert!(
            stats.retransmissions <= outcome.dropped + 3,
            "{laziness} ms: {stats:?}"
        );
        assert_eq!(stats.timeouts, 0, "{laziness} ms: {stats:?}");
    }
}

#[test]
fn without_selective_acknowledgments_a_loss_needs_no_timeout() {
    for has_times in [false, true] {
        let path = Path {
            has_sack: false,
            has_times,
            drops: vec![15, 17],
            ..Path::default()
        };
        let outcome = run(&path);
        assert_eq!(outcome.stats.timeouts, 0, "{:?}", outcome.stats);
        assert_eq!(outcome.stats.retransmissions, 2, "{:?}", outcome.stats);
    }
}

#[test]
fn a_delay_of_the_path_beyond_the_timeout_is_found_needless() {
    for (has_times, has_sack) in [(true, true), (false, true), (false, false)] {
        let path = Path {
            bytes: 400_000,
            rate: 1_000_000,
            stall: Some((at(1300), at(2000))),
            has_times,
            has_sack,
            ..Path::default()
        };
        let outcome = run(&path);
        let stats = outcome.stats;
        assert!(stats.timeouts >= 1, "{stats:?}");
        if has_sack {
            assert!(stats.undone >= 1, "{stats:?}");
        }
    }
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    for lost in [0, 500] {
        let path = Path {
            closed_until: at(9000),
            ack_loss: lost,
            loss: lost / 2,
            bytes: 3000,
            ..Path::default()
        };
        let outcome = run(&path);
        assert!(outcome.stats.window_probes >= 2, "{:?}", outcome.stats);
        assert!(outcome.stats.window_probes < 12, "{:?}", outcome.stats);
    }
}

#[test]
fn a_small_window_is_used() {
    for window in [1, 100, 999, 1500, 3000] {
        let outcome = run(&Path {
            window,
            bytes: 20 * window as usize,
            ..Path::default()
        });
        assert_eq!(outcome.stats.timeouts, 0, "{window}: {:?}", outcome.stats);
    }
}

fn paths() -> impl Strategy<Value = Path> {
    let faults = (0..150u32, 0..300u32, 0..50u32, 0..300u32, 0..60u64);
    let shape = (
        1..100u64,
        100_000..20_000_000u64,
        20_000..500_000u64,
        any::<[bool; 3]>(),
    );
    let rest = (
        any::<u64>(),
        any::<u32>(),
        0..400_000usize,
        0..3usize,
        3000..200_000u32,
    );
    (faults, shape, rest).prop_map(|(faults, shape, rest)| Path {
        loss: faults.0,
        ack_loss: faults.1,
        duplication: faults.2,
        reordering: faults.3,
        reordering_by: ms(faults.4),
        delay: ms(shape.0),
        rate: shape.1,
        queue: shape.2,
        has_sack: shape.3[0],
        has_times: shape.3[1],
        has_duplicate_sack: shape.3[2],
        seed: rest.0,
        start: rest.1,
        bytes: rest.2,
        laziness: ms([0, 1, 13][rest.3]),
        window: rest.4,
        ..Path::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn all_bytes_arrive_over_any_path(path in paths()) {
        let outcome = run(&path);
        // Not more is sent again than was lost or can seem to be.
        let stats = outcome.stats;
        prop_assert!(stats.segments < 40 + 30 * path.bytes as u32 / 1000, "{:?}", stats);
    }
}
