use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

fn options() -> impl Strategy<Value = WanOptions> {
    let chance = || prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64].prop_map(Chance::of_share);
    let time = || (0u64..50_000_000).prop_map(Duration::from_nanos);
    let rate = prop::option::of((1u64..2_000_000_000).prop_map(|bps| Rate::from_bps(bps).unwrap()));
    (
        time(),
        time(),
        rate,
        0usize..50,
        [chance(), chance(), chance(), chance()],
    )
        .prop_map(
            |(delay, jitter, rate, queue_packets, [loss, reorder, duplicate, corrupt])| {
                WanOptions {
                    delay,
                    jitter,
                    rate,
                    queue_packets,
                    loss,
                    reorder,
                    duplicate,
                    corrupt,
                }
            },
        )
}

/// Gaps in nanoseconds, and sizes in bytes.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0u64..200_000, 60u64..1600), 1..200)
}

/// Times of arrival, sizes and results.
fn run(options: WanOptions, seed: u64, arrivals: &[(u64, u64)]) -> Vec<(Instant, u64, Fate)> {
    let mut wan = Wan::new(options, seed);
    let mut now = Instant::ORIGIN;
    let fates = arrivals.iter().map(|&(gap, bytes)| {
        now = now.add_ns(gap);
        (now, bytes, wan.on_arrival(bytes, now))
    });
    fates.collect()
}

fn departures(fates: &[(Instant, u64, Fate)]) -> Vec<(Instant, u64, Instant)> {
    let left = fates
        .iter()
        .filter_map(|&(arrival, bytes, fate)| match fate {
            Fate::Leaves { at, .. } => Some((arrival, bytes, at)),
            _ => None,
        });
    left.collect()
}

proptest! {
    #[test]
    fn a_seed_is_a_history(options in options(), seed in any::<u64>(), arrivals in arrivals()) {
        prop_assert_eq!(run(options, seed, &arrivals), run(options, seed, &arrivals));
    }

    #[test]
    fn order_is_kept_unless_asked(options in options(), seed in any::<u64>(), arrivals in arrivals()) {
        let options = WanOptions { reorder: Chance::NEVER, ..options };
        let left = departures(&run(options, seed, &arrivals));
        prop_assert!(left.windows(2).all(|pair| pair[0].2 <= pair[1].2));
        let shortest = options.delay.saturating_sub(options.jitter);
        prop_assert!(left.iter().all(|&(arrival, _, at)| at >= arrival + shortest));
    }

    #[test]
    fn without_a_bottleneck_the_delay_is_the_delay(
        options in options(), seed in any::<u64>(), arrivals in arrivals(),
    ) {
        let options = WanOptions { rate: None, jitter: Duration::ZERO, reorder: Chance::NEVER, ..options };
        let left = departures(&run(options, seed, &arrivals));
        prop_assert!(left.iter().all(|&(arrival, _, at)| at == arrival + options.delay));
    }

    /// While the queue is not empty, packets leave at exactly the rate.
    #[test]
    fn the_bottleneck_sends_at_its_rate(
        bps in 1_000u64..2_000_000_000, queue_packets in 1usize..50, seed in any::<u64>(), arrivals in arrivals(),
    ) {
        let rate = Rate::from_bps(bps).unwrap();
        let options = WanOptions { rate: Some(rate), queue_packets, ..WanOptions::default() };
        let left = departures(&run(options, seed, &arrivals));
        let mut before = Instant::ORIGIN;
        for (arrival, bytes, at) in left {
            prop_assert_eq!(at, before.max(arrival) + rate.time_of(bytes));
            before = at;
        }
    }

    #[test]
    fn the_queue_is_bounded(options in options(), seed in any::<u64>(), arrivals in arrivals()) {
        let options = WanOptions { rate: Some(Rate::from_bps(1_000_000).unwrap()), ..options };
        let mut wan = Wan::new(options, seed);
        let mut now = Instant::ORIGIN;
        for (gap, bytes) in arrivals {
            now = now.add_ns(gap);
            let full = wan.queued_packets(now) >= options.queue_packets;
            let fate = wan.on_arrival(bytes, now);
            prop_assert_eq!(fate == Fate::QueueFull, full && fate != Fate::Lost);
            prop_assert!(wan.queued_packets(now) <= options.queue_packets);
        }
    }

    #[test]
    fn what_is_lost_depends_on_the_seed_alone(
        one in options(), other in options(), loss in 0.0..1.0f64, seed in any::<u64>(), arrivals in arrivals(),
    ) {
        let lost = |options: WanOptions| -> Vec<bool> {
            let options = WanOptions { loss: Chance::of_share(loss), ..options };
            let fates = run(options, seed, &arrivals);
            fates.into_iter().map(|(_, _, fate)| fate == Fate::Lost).collect()
        };
        prop_assert_eq!(lost(one), lost(other));
    }
}

#[test]
fn shares_come_out() {
    let options = WanOptions {
        loss: Chance::of_share(0.1),
        reorder: Chance::of_share(0.2),
        duplicate: Chance::of_share(0.3),
        corrupt: Chance::of_share(0.4),
        delay: Duration::from_millis(20),
        jitter: Duration::from_millis(5),
        ..WanOptions::default()
    };
    // A second apart, so that keeping the order does not change a delay.
    let arrivals = [(1_000_000_000, 100)].repeat(20_000);
    let fates = run(options, 7, &arrivals);
    let share = |what: &dyn Fn(Instant, Fate) -> bool| {
        let count = fates.iter().filter(|&&(now, _, fate)| what(now, fate));
        count.count() as f64 / fates.len() as f64
    };
    let near = |is: f64, wanted: f64| assert!((is / wanted - 1.0).abs() < 0.1, "{is} {wanted}");
    near(share(&|_, fate| fate == Fate::Lost), 0.1);
    let left = |fate| match fate {
        Fate::Leaves {
            at,
            doubled,
            corrupted,
        } => Some((at, doubled, corrupted)),
        _ => None,
    };
    near(
        share(&|_, fate| left(fate).is_some_and(|(_, doubled, _)| doubled)),
        0.9 * 0.3,
    );
    near(
        share(&|_, fate| left(fate).is_some_and(|(_, _, bit)| bit.is_some())),
        0.9 * 0.4,
    );
    near(
        share(&|now, fate| left(fate).is_some_and(|(at, ..)| at == now)),
        0.9 * 0.2,
    );
    let ms = |now: Instant, fate| left(fate).map_or(0, |(at, ..)| at.ns_since(now) / 1_000_000);
    for slot in 15..25 {
        near(share(&|now, fate| ms(now, fate) == slot), 0.9 * 0.8 / 10.0);
    }
}

/// Packets that are closer than the jitter neither raise the mean nor leave the range.
#[test]
fn the_mean_delay_does_not_depend_on_the_packet_rate() {
    let ms = 1_000_000;
    let options = WanOptions {
        delay: Duration::from_millis(40),
        jitter: Duration::from_millis(10),
        ..WanOptions::default()
    };
    for gap_ns in [100_000, ms, 10 * ms, 100 * ms] {
        let left = departures(&run(options, 7, &[(gap_ns, 100)].repeat(100_000)));
        assert!(left.windows(2).all(|pair| pair[0].2 <= pair[1].2));
        let travelled = |&(arrival, _, at): &(Instant, u64, Instant)| at.ns_since(arrival);
        let all = left.iter().map(travelled);
        let (least, most) = (all.clone().min().unwrap(), all.clone().max().unwrap());
        assert!(least >= 30 * ms && most <= 50 * ms, "{least} to {most}");
        assert!(least < 31 * ms && most > 49 * ms, "{least} to {most}");
        let mean = all.sum::<u64>() as f64 / left.len() as f64;
        assert!(
            (mean / 40e6 - 1.0).abs() < 0.05,
            "{mean} ns for {gap_ns} ns"
        );
    }
}

/// After a pause of more than twice the jitter a packet knows nothing of those before it, also where these were close to
/// one another.
#[test]
fn deviations_after_a_pause_are_independent() {
    let ms = 1_000_000;
    let options = WanOptions {
        delay: Duration::from_millis(40),
        jitter: Duration::from_millis(10),
        ..WanOptions::default()
    };
    let arrivals = [(1000 * ms, 100), (10 * ms, 100), (22 * ms, 100)].repeat(20_000);
    let left = departures(&run(options, 7, &arrivals));
    let deviation =
        |&(arrival, _, at): &(Instant, u64, Instant)| (at.ns_since(arrival) as f64 - 40e6) / 10e6;
    let pairs = left
        .chunks_exact(3)
        .map(|three| [&three[1], &three[2]].map(deviation));
    let mean = |of: &dyn Fn([f64; 2]) -> f64| pairs.clone().map(of).sum::<f64>() / 20_000.0;
    // The variance of a uniform deviation is a third.
    let variance = mean(&|[_, third]| third * third) * 3.0;
    assert!((variance - 1.0).abs() < 0.05, "{variance}");
    let covariance = mean(&|[second, third]| second * third) * 3.0;
    assert!(covariance.abs() < 0.05, "{covariance}");
}

/// Also a packet that is lost sees the queue as it is.
#[test]
fn a_lost_packet_finds_the_queue_empty() {
    let options = |loss| WanOptions {
        loss,
        rate: Rate::from_bps(8_000),
        ..WanOptions::default()
    };
    let mut wan = Wan::new(options(Chance::NEVER), 1);
    wan.on_arrival(100, Instant::ORIGIN);
    assert_eq!(wan.last_queued_packets(), 1);
    wan.options.loss = Chance::of_share(1.0);
    let late = Instant::ORIGIN.add_ns(100_000_000_000);
    assert_eq!(wan.on_arrival(100, late), Fate::Lost);
    assert_eq!(wan.last_queued_packets(), 0);
}

#[test]
fn chances_at_their_ends() {
    assert!(!Chance::of_share(0.0).happens(0));
    assert!(Chance::of_share(1.0).happens(u64::MAX));
    assert!(Chance::of_share(7.0).happens(u64::MAX));
    assert_eq!(Chance::of_share(-1.0), Chance::NEVER);
    assert_eq!(Chance::of_share(f64::NAN), Chance::NEVER);
}
