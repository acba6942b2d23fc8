use super::*;
use alloc::vec::Vec;

/// xorshift64*, for reproducible trigger states.
struct Random(u64);

impl Random {
    fn share(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn interval_us(&mut self) -> f64 {
        let mut place = self.share() * 10_000.0;
        for (low, high, weight) in ST_APACHE_US {
            if place < f64::from(weight) {
                return low + (high - low) * self.share();
            }
            place -= f64::from(weight);
        }
        476.0
    }
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - mean) * (value - mean));
    let variance: f64 = squares.sum::<f64>() / values.len() as f64;
    // Newton's method, since there is no square root without the standard library.
    let mut root = variance.max(1.0);
    for _ in 0..60 {
        root = (root + variance / root) / 2.0;
    }
    (mean, root)
}

/// Returns the intervals of a train whose transmissions fire at the first trigger state after they are due.
fn simulate(target_us: u64, minimum_us: u64) -> (f64, f64) {
    let mut random = Random(7);
    let micros = Duration::from_micros;
    let mut clock = RateClock::new(micros(target_us), micros(minimum_us));
    let mut now = Instant::ORIGIN;
    let mut sent = Vec::new();
    while sent.len() < 100_000 {
        now = now.add_ns((random.interval_us() * 1e3) as u64);
        if now >= clock.next_send(now) {
            clock.on_transmit(now);
            sent.push(now);
        }
    }
    let intervals: Vec<f64> = sent
        .windows(2)
        .map(|pair| pair[1].ns_since(pair[0]) as f64 / 1e3)
        .collect();
    mean_and_deviation(&intervals)
}

#[test]
fn the_distribution_is_that_of_table_iv() {
    let mut random = Random(11);
    let mut intervals: Vec<f64> = (0..400_000).map(|_| random.interval_us()).collect();
    let (mean, deviation) = mean_and_deviation(&intervals);
    assert!((mean - 31.5).abs() < 0.5, "{mean}");
    assert!((deviation - 32.0).abs() < 0.5, "{deviation}");
    intervals.sort_by(f64::total_cmp);
    let median = intervals[intervals.len() / 2];
    assert!((median - 18.0).abs() < 0.5, "{median}");
    let above = intervals.iter().filter(|&&us| us > 100.0).count();
    assert!((above as f64 / 4_000.0 - 5.3).abs() < 0.2, "{above}");
    assert!(intervals[intervals.len() - 1] <= 476.0);
}

#[test]
fn tables_viii_and_ix() {
    for (target, table) in TRAINS_US {
        for (minimum, mean, deviation) in table {
            let (ours, spread) = simulate(target, minimum);
            let what = alloc::format!("{target}/{minimum}: {ours} +- {spread}");
            assert!((ours / mean - 1.0).abs() <= 0.12, "{what}, not {mean}");
            assert!(
                (spread / deviation - 1.0).abs() <= 0.25,
                "{what}, not {deviation}"
            );
        }
    }
}

/// Pieces change their size every few pieces, as in a thread that is busy at times. At each change, the bytes
/// that the rate allowed so far have been sent, except for the lateness of trigger states, and no more.
#[test]
fn the_average_outlasts_changes_of_size() {
    const NS_PER_BYTE: u64 = 10;
    let mut random = Random(5);
    let target = |bytes: u64| Duration::from_nanos(bytes * NS_PER_BYTE);
    let mut piece = 1_500;
    let mut clock = RateClock::new(target(piece), target(piece) / 4);
    let (mut now, mut begun, mut bytes) = (Instant::ORIGIN, None, 0);
    for step in 0..200_000 {
        now = now.add_ns((random.interval_us() * 1e3) as u64);
        if step % 7 == 0 {
            piece = [1_500, 4_000, 12_000, 60_000][(random.share() * 4.0) as usize];
            clock.set_intervals(target(piece), target(piece) / 4);
        }
        if now < clock.next_send(now) {
            continue;
        }
        let due = now.ns_since(*begun.get_or_insert(now)) / NS_PER_BYTE;
        let what = alloc::format!("{bytes} of {due} bytes in step {step}");
        assert!(bytes <= due && due - bytes <= 150_000, "{what}");
        bytes += piece;
        clock.on_transmit(now);
    }
}

#[test]
fn what_was_sent_counts_by_its_own_size() {
    let us = |us: u64| Instant::from_ns(us * 1000);
    let micros = Duration::from_micros;
    let mut clock = RateClock::new(micros(40), micros(12));
    clock.on_transmit(us(0));
    clock.on_transmit(us(100));
    clock.set_intervals(micros(400), micros(120));
    assert_eq!(clock.behind(us(100)), micros(20), "nothing is forgotten");
    assert_eq!(clock.next_send(us(100)), us(112), "a small one was sent");
    clock.on_transmit(us(112));
    assert_eq!(clock.next_send(us(112)), us(480));
    clock.set_intervals(micros(40), micros(12));
    assert_eq!(clock.next_send(us(112)), us(480), "a large one was sent");
    clock.set_intervals(micros(40), micros(4));
    clock.on_transmit(us(600));
    assert_eq!(clock.next_send(us(600)), us(604), "another burst rate");
}

#[test]
fn another_rate_begins_with_the_last_transmission() {
    let us = |us: u64| Instant::from_ns(us * 1000);
    let micros = Duration::from_micros;
    let mut clock = RateClock::new(micros(400), micros(120));
    clock.on_transmit(us(0));
    clock.on_transmit_bytes(us(1000), 500, 1000);
    clock.set_rates(micros(40), micros(40));
    assert_eq!(clock.next_send(us(1001)), us(1020), "half of one was sent");
    clock.end();
    clock.set_rates(micros(4), micros(4));
    assert_eq!(clock.next_send(us(1001)), us(1002), "of the next train too");
}

/// The time that has passed at the former rate is no lateness, whether the next transmission was due at it or not.
#[test]
fn another_rate_makes_up_for_no_time_before_it() {
    let ms = |ms: u64| Instant::from_ns(ms * 1_000_000);
    let millis = Duration::from_millis;
    for former in [1_000, 100] {
        let mut clock = RateClock::new(millis(former), millis(former));
        clock.on_transmit(ms(0));
        clock.set_rates(millis(1), Duration::from_micros(500));
        assert!(clock.next_send(ms(900)) <= ms(900), "it is due");
        assert_eq!(clock.due(ms(900)), 1);
        assert!(clock.behind(ms(900)) <= Duration::from_micros(250));
        clock.on_transmit(ms(900));
        assert_eq!(clock.next_send(ms(900)), ms(900).add_ns(750_000));
        assert_eq!(clock.forgotten(), Duration::ZERO);
        // From here on lateness counts as before.
        assert_eq!(clock.due(ms(903)), 3);
    }
}

/// A timer that is a little late each time keeps the rate, but for its lateness at each change.
#[test]
fn frequent_changes_cost_the_lateness_of_one_transmission_each() {
    const LATE_NS: u64 = 30_000;
    let us = |us: u64| Instant::from_ns(us * 1000);
    let micros = Duration::from_micros;
    let mut clock = RateClock::new(micros(100), micros(95));
    let mut now = us(0);
    for transmission in 0..1000u64 {
        now = clock.next_send(now).add_ns(LATE_NS);
        clock.on_limited_bytes(now, 1500, 1500);
        if transmission.is_multiple_of(2) {
            // To and fro, so that the mean is that of the first interval.
            let change = transmission / 2 % 2;
            clock.set_rates(micros(99 + 2 * change), micros(94 + 2 * change));
        }
    }
    let late = now.ns_since(us(999 * 100));
    assert!(late <= 502 * LATE_NS, "{late} ns late");
}

#[test]
fn it_catches_up_at_the_burst_rate_and_no_further() {
    let us = |us: u64| Instant::from_ns(us * 1000);
    let mut clock = RateClock::new(Duration::from_micros(40), Duration::from_micros(12));
    assert_eq!(clock.next_send(us(0)), us(0));
    clock.on_transmit(us(0));
    assert_eq!(clock.next_send(us(1)), us(40));
    clock.on_transmit(us(100));
    assert_eq!(clock.behind(us(100)), Duration::from_micros(20));
    assert_eq!(clock.next_send(us(100)), us(112), "a burst interval later");
    clock.on_transmit(us(112));
    assert_eq!(clock.next_send(us(112)), us(124));
    clock.on_transmit(us(125));
    assert_eq!(clock.next_send(us(125)), us(160), "caught up");
}

#[test]
fn a_stopped_train_makes_up_for_what_it_may() {
    let ms = |ms: u64| Instant::from_ns(ms * 1_000_000);
    let mut clock = RateClock::new(Duration::from_millis(1), Duration::from_micros(500));
    clock.on_transmit(ms(0));
    assert_eq!(clock.behind(ms(3_001)), MOST_BEHIND);
    assert_eq!(clock.due(ms(3_001)), 11, "5 ms at the burst rate");
    clock.on_transmit_bytes(ms(3_001), 4, 1);
    assert_eq!(clock.due(ms(3_001)), 7, "the rest may follow");
    clock.on_transmit_bytes(ms(3_001), 7, 1);
    assert_eq!(clock.forgotten(), Duration::from_millis(2_950));
    let (mut now, mut sent) = (ms(3_001), 11);
    while clock.behind(clock.next_send(now)) > Duration::ZERO {
        now = clock.next_send(now);
        assert_eq!(clock.due(now), 1);
        clock.on_transmit_bytes(now, 1, 1);
        sent += 1;
    }
    assert_eq!(sent, 50 + 40, "50 ms are made up for in 40");
    assert_eq!(clock.next_send(now), ms(3_041), "on schedule again");
    clock.end();
    clock.on_transmit(ms(3_500));
    clock.set_most_behind(Duration::ZERO);
    clock.on_transmit(ms(4_000));
    assert_eq!(clock.next_send(ms(4_000)), ms(4_000).add_ns(500_000));
    assert_eq!(clock.due(ms(4_001)), 2, "an interval is always made up for");
    clock.set_intervals(Duration::from_millis(4), Duration::from_millis(2));
    assert_eq!(clock.due(ms(5_000)), 2, "also that of others");
}

/// The burst rate counts from the last transmission, independent of how many are due.
#[test]
fn what_goes_together_is_what_the_burst_rate_had_time_for() {
    let us = |us: u64| Instant::from_ns(us * 1000);
    let mut clock = RateClock::new(Duration::from_micros(40), Duration::from_micros(20));
    clock.on_transmit(us(0));
    assert_eq!(clock.due(us(40)), 1);
    assert_eq!(clock.due(us(79)), 1);
    assert_eq!(clock.due(us(80)), 2);
    clock.on_transmit(us(1_000));
    assert_eq!(clock.due(us(1_020)), 1);
    assert_eq!(clock.due(us(1_060)), 3);
    clock.on_transmit_bytes(us(1_060), 3, 1);
    assert_eq!(clock.next_send(us(1_060)), us(1_080));
    clock.end();
    assert_eq!(
        (clock.due(us(9_000)), clock.next_send(us(1_060))),
        (1, us(1_100))
    );
}

use proptest::prelude::*;

proptest! {
    /// A thread that is away at random, compared with two byte counts: it never sends more than the target rate
    /// allows since the train began, nor more at once than the burst rate allows since the preceding
    /// transmission; sent and forgotten bytes together are those of the target rate.
    #[test]
    fn a_thread_that_is_away_keeps_what_it_may(
        pauses in prop::collection::vec((0u64..200_000, 0u64..100), 1..300),
        most_us in 0u64..100_000,
        burst_percent in 100u64..400,
    ) {
        let (target, minimum) = (40_000u64, 40_000 * 100 / burst_percent);
        let [target_time, minimum_time] = [target, minimum].map(Duration::from_nanos);
        let mut clock = RateClock::new(target_time, minimum_time);
        clock.set_most_behind(Duration::from_micros(most_us));
        let most = (most_us * 1000).max(target);
        let (mut now, mut sent, mut last, mut begun) = (Instant::ORIGIN, 0u64, None, None);
        for (long, short) in pauses {
            // Mostly on time, and sometimes away.
            let away = if short < 10 { long * 1000 } else { short * 1000 };
            now = clock.next_send(now).max(now).add_ns(away);
            let due = clock.due(now);
            if let Some(last) = last {
                let allowed = (now.ns_since(last) / minimum).clamp(1, 1 + TOGETHER_NS / minimum);
                prop_assert!(due <= allowed, "{due} of {allowed}");
                prop_assert!(due <= 1 + most / target);
            }
            // In two parts, of which the first may be all.
            let first = 1 + long % due;
            clock.on_transmit_bytes(now, first, 1);
            if first < due {
                prop_assert!(clock.next_send(now) <= now);
                prop_assert_eq!(clock.due(now), due - first);
                clock.on_transmit_bytes(now, due - first, 1);
            }
            prop_assert!(clock.next_send(now) >= now.add_ns(minimum));
            sent += due;
            last = Some(now);
            let begun = *begun.get_or_insert(now);
            prop_assert!((sent - 1) * target <= now.ns_since(begun));
            // The bytes sent, forgotten and still to be made up are those of the target rate; beyond them, the
            // train is ahead by at most the last transmission.
            let forgotten = crate::time::saturating_ns(clock.forgotten());
            let behind = crate::time::saturating_ns(clock.behind(now));
            prop_assert!(behind <= most);
            let all = sent * target + forgotten + behind;
            let had = now.ns_since(begun);
            prop_assert!(all >= had && all <= had + target, "{all} of {had}");
        }
    }
}

proptest! {
    /// A source that runs dry at times sends no more than the rate allows since its first transmission, even if
    /// its transmissions are longer than a full one.
    #[test]
    fn trains_of_any_size_keep_to_the_rate(
        sends in prop::collection::vec((1u64..65_508, 0u64..100_000, any::<bool>()), 1..100),
    ) {
        const FULL: u64 = 1_448;
        let target = Duration::from_nanos(FULL * 10);
        let mut clock = RateClock::new(target, target / 2);
        let (mut now, mut sent, mut begun) = (Instant::ORIGIN, 0, None);
        for (bytes, late_ns, ends) in sends {
            now = clock.next_send(now).max(now).add_ns(late_ns);
            let begun = *begun.get_or_insert(now);
            // Each transmission is rounded down to nanoseconds.
            let allowed = now.ns_since(begun) / 10 + 100;
            prop_assert!(sent <= allowed, "{sent} of {allowed}");
            sent += bytes;
            clock.on_transmit_bytes(now, bytes, FULL);
            if ends {
                clock.end();
            }
        }
    }
}

#[test]
fn a_source_that_ran_dry_begins_anew() {
    let us = |us: u64| Instant::from_ns(us * 1000);
    let mut clock = RateClock::new(Duration::from_micros(40), Duration::from_micros(12));
    clock.on_transmit(us(0));
    clock.end();
    assert_eq!(clock.next_send(us(5)), us(40), "never above the rate");
    clock.end();
    clock.on_transmit(us(1000));
    assert_eq!(clock.next_send(us(1000)), us(1040));
}

#[test]
fn a_longer_transmission_delays_the_next_train() {
    let us = |us: u64| Instant::from_ns(us * 1000);
    let micros = Duration::from_micros;
    let mut clock = RateClock::new(micros(40), micros(12));
    clock.on_transmit_bytes(us(0), 10, 1);
    clock.end();
    assert_eq!(clock.next_send(us(1)), us(400));
    clock.on_transmit_bytes(us(400), 10, 1);
    clock.set_rates(micros(400), micros(120));
    assert_eq!(clock.next_send(us(401)), us(4_400), "at another rate, too");
}

/// Three are due together, which delay the next one like a single one, and the other seven delay it by themselves.
#[test]
fn a_late_longer_transmission_keeps_to_the_burst_rate() {
    let us = |us: u64| Instant::from_ns(us * 1000);
    let mut clock = RateClock::new(Duration::from_micros(40), Duration::from_micros(20));
    clock.on_transmit(us(0));
    clock.on_transmit(us(1_000));
    assert_eq!(clock.due(us(1_060)), 3);
    clock.on_transmit_bytes(us(1_060), 10, 1);
    assert_eq!(clock.next_send(us(1_060)), us(1_060 + 8 * 20));
}

#[test]
fn a_smaller_transmission_brings_the_next_forward() {
    let us = |us: u64| Instant::from_ns(us * 1000);
    let mut clock = RateClock::new(Duration::from_micros(40), Duration::from_micros(4));
    clock.on_transmit_bytes(us(0), 500, 1000);
    assert_eq!(clock.next_send(us(1)), us(20));
    clock.end();
    assert_eq!(clock.next_send(us(1)), us(20), "of the next train too");
}

/// A timer that is 30 us late each time would otherwise send every 125 us at the burst rate of 95 us.
#[test]
fn lateness_of_less_than_half_an_interval_costs_no_rate() {
    let us = |us: u64| Instant::from_ns(us * 1000);
    let mut clock = RateClock::new(Duration::from_micros(100), Duration::from_micros(95));
    let (mut now, mut least) = (us(0), u64::MAX);
    for transmission in 0..1000 {
        let before = now;
        now = clock.next_send(now).add_ns(30_000);
        if transmission > 0 {
            least = least.min(now.ns_since(before));
        }
        clock.on_limited_bytes(now, 1500, 1500);
    }
    assert!(now.ns_since(us(999 * 100)) < 1_000_000, "{now:?}");
    assert!(least >= 95_000, "{least}");
}

/// The pause of a process is not made up by a burst: at most half of an interval is.
#[test]
fn long_lateness_advances_one_transmission_by_half_an_interval() {
    let us = |us: u64| Instant::from_ns(us * 1000);
    let mut clock = RateClock::new(Duration::from_micros(100), Duration::from_micros(80));
    clock.on_limited_bytes(us(0), 1500, 1500);
    // It may leave from 100 us on, so 70 us late, less than a second one would need.
    assert_eq!(clock.due(us(170)), 1);
    clock.on_limited_bytes(us(170), 1500, 1500);
    assert_eq!(clock.next_send(us(170)), us(170 - 40 + 80));
    // Later the burst rate counts from transmissions that were on time.
    clock.on_limited_bytes(us(210), 1500, 1500);
    assert_eq!(clock.next_send(us(210)), us(300));
}

#[test]
fn lateness_of_a_smaller_transmission_counts_half_of_its_own_interval() {
    let us = |us: u64| Instant::from_ns(us * 1000);
    let mut clock = RateClock::new(Duration::from_micros(100), Duration::from_micros(80));
    clock.on_limited_bytes(us(0), 750, 1500);
    assert_eq!(clock.next_send(us(0)), us(50));
    assert_eq!(clock.due(us(95)), 1);
    clock.on_limited_bytes(us(95), 750, 1500);
    assert_eq!(clock.next_send(us(95)), us(95 - 20 + 40));
}
