use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

fn us(us: u64) -> Instant {
    Instant::from_ns(us * 1_000)
}

/// Settings of a pacer that sends neither bursts nor ahead of its schedule.
fn strict_settings() -> PacingSettings {
    PacingSettings {
        initial_burst: 0,
        burst: 1,
        slack: Duration::ZERO,
        ..PacingSettings::default()
    }
}

fn strict() -> Pacer {
    Pacer::new(&strict_settings())
}

/// Sends a segment if the pacer allows it.
fn try_send(pacer: &mut Pacer, now: Instant, bytes: u32) -> bool {
    let may = pacer.next_send(now) <= now;
    if may {
        pacer.on_sent(now, bytes);
    }
    may
}

/// Sends all that the pacer allows at one time. Returns the number of segments, at most 1000.
fn send_all(pacer: &mut Pacer, now: Instant, bytes: u32) -> usize {
    (0..1_000)
        .take_while(|_| try_send(pacer, now, bytes))
        .count()
}

/// A pacer at a window's rate of a segment of 1000 bytes each 100 us.
fn of_window(settings: &PacingSettings) -> Pacer {
    let mut pacer = Pacer::new(settings);
    // 120 % of 1000 segments in 120 ms.
    pacer.update(1_000_000, Some(Duration::from_millis(120)), false);
    assert_eq!(pacer.rate(), Some(10_000_000));
    pacer
}

#[test]
fn without_a_rate_segments_are_sent_at_once() {
    let mut pacer = Pacer::new(&PacingSettings::default());
    assert_eq!(send_all(&mut pacer, us(5), 1_460), 1_000);
    pacer.update(14_600, None, true);
    assert_eq!(pacer.rate(), None);
    // The segments sent without a rate do not count as a train that is behind.
    pacer.set_rate(Some(1_000_000));
    assert!(try_send(&mut pacer, us(90_000), 1_000));
    assert_eq!(pacer.next_send(us(90_000)), us(91_000));
}

#[test]
fn the_rate_is_a_multiple_of_the_window_in_a_round_trip() {
    let mut pacer = Pacer::new(&PacingSettings::default());
    let srtt = Some(Duration::from_millis(10));
    pacer.update(100_000, srtt, true);
    assert_eq!(pacer.rate(), Some(20_000_000));
    pacer.update(100_000, srtt, false);
    assert_eq!(pacer.rate(), Some(12_000_000));
    pacer.set_rate(Some(5_000_000));
    assert_eq!(pacer.rate(), Some(5_000_000));
    pacer.set_rate(Some(50_000_000));
    assert_eq!(pacer.rate(), Some(12_000_000));
    pacer.set_rate(None);
    assert_eq!(pacer.rate(), Some(12_000_000));

    let off = PacingSettings {
        is_enabled: false,
        ..PacingSettings::default()
    };
    let mut pacer = Pacer::new(&off);
    pacer.update(100_000, srtt, true);
    assert_eq!(pacer.rate(), None);
}

#[test]
fn the_first_ten_segments_are_not_paced_and_later_ones_are_sent_in_pairs() {
    let settings = PacingSettings {
        slack: Duration::ZERO,
        ..PacingSettings::default()
    };
    let mut pacer = of_window(&settings);
    assert_eq!(send_all(&mut pacer, us(0), 1_000), 10);
    let mut now = pacer.next_send(us(0));
    assert_eq!(now, us(100));
    for pair in 1..10 {
        assert_eq!(send_all(&mut pacer, now, 1_000), 2);
        now = pacer.next_send(now);
        assert_eq!(now, us(100 + 200 * pair));
    }
}

#[test]
fn a_pause_of_a_round_trip_allows_another_initial_burst() {
    let settings = PacingSettings {
        slack: Duration::ZERO,
        ..PacingSettings::default()
    };
    let mut pacer = of_window(&settings);
    send_all(&mut pacer, us(0), 1_000);
    send_all(&mut pacer, us(100), 1_000);
    // Due at 300 us. Without data for less than a round trip, no burst, and no lateness.
    pacer.on_no_data();
    assert_eq!(send_all(&mut pacer, us(100_000), 1_000), 2);
    assert_eq!(pacer.next_send(us(100_000)), us(100_200));
    pacer.on_no_data();
    assert_eq!(send_all(&mut pacer, us(220_200), 1_000), 10);
    // A burst that was not used up is full again after the next pause.
    pacer.on_no_data();
    assert!(try_send(&mut pacer, us(400_000), 1_000));
    pacer.on_no_data();
    assert_eq!(send_all(&mut pacer, us(600_000), 1_000), 10);
}

#[test]
fn a_stated_rate_holds_segment_by_segment() {
    let mut pacer = Pacer::new(&PacingSettings::default());
    pacer.set_rate(Some(1_000_000));
    for ms in 0..100 {
        assert_eq!(send_all(&mut pacer, us(ms * 1_000), 1_000), 1);
        assert_eq!(pacer.next_send(us(ms * 1_000)), us(ms * 1_000 + 1_000));
    }
}

#[test]
fn a_segment_due_within_the_slack_is_not_waited_for() {
    let mut settings = PacingSettings::default();
    (settings.initial_burst, settings.burst) = (0, 1);
    settings.slack = Duration::from_micros(50);
    let mut pacer = Pacer::new(&settings);
    // 1000 bytes each 10 us: the first, and those due up to 50 us later. The wait is for the next one's own time.
    pacer.set_rate(Some(100_000_000));
    assert_eq!(send_all(&mut pacer, us(0), 1_000), 6);
    assert_eq!(pacer.next_send(us(0)), us(60));
    assert_eq!(send_all(&mut pacer, us(60), 1_000), 6);
    assert_eq!(pacer.next_send(us(60)), us(120));
}

#[test]
fn time_without_data_is_not_made_up_for_and_does_not_raise_the_rate() {
    let mut pacer = strict();
    pacer.set_rate(Some(10_000_000));
    assert!(try_send(&mut pacer, us(0), 1_000));
    // A pause shorter than the interval changes nothing.
    pacer.on_no_data();
    assert_eq!(pacer.next_send(us(20)), us(100));
    assert!(try_send(&mut pacer, us(100), 1_000));
    // A longer one is not lateness.
    pacer.on_no_data();
    assert_eq!(send_all(&mut pacer, us(1_000), 1_000), 1);
    assert_eq!(pacer.next_send(us(1_000)), us(1_100));
}

#[test]
fn lateness_is_made_up_for_at_twice_the_rate() {
    let mut pacer = strict();
    pacer.set_rate(Some(10_000_000));
    assert!(try_send(&mut pacer, us(0), 1_000));
    // 1 ms late, all at once: as many as the burst rate allows in this time, and as are due.
    assert_eq!(send_all(&mut pacer, us(1_100), 1_000), 11);
    assert_eq!(pacer.next_send(us(1_100)), us(1_200));
    // 20 ms late: 5 ms at twice the rate at once, the rest each 50 us.
    let sent = send_all(&mut pacer, us(21_200), 1_000);
    assert!((100..=102).contains(&sent), "{sent}");
    assert_eq!(pacer.next_send(us(21_200)), us(21_250));
}

#[test]
fn a_changed_rate_rescales_the_wait() {
    let mut pacer = strict();
    pacer.set_rate(Some(1_000));
    assert!(try_send(&mut pacer, us(0), 1_000));
    assert_eq!(pacer.next_send(us(0)), us(1_000_000));
    pacer.set_rate(Some(10_000));
    assert_eq!(pacer.next_send(us(0)), us(100_000));
}

/// The wait at the former rate is not lateness.
#[test]
fn a_raised_rate_is_no_burst() {
    for settings in [PacingSettings::default(), strict_settings()] {
        let mut pacer = Pacer::new(&settings);
        pacer.set_rate(Some(1_000));
        assert!(try_send(&mut pacer, us(0), 1_000));
        assert!(!try_send(&mut pacer, us(900_000), 1_000));
        pacer.set_rate(Some(10_000_000));
        assert_eq!(send_all(&mut pacer, us(900_000), 1_000), 1);
    }
}

/// Sends for a second at a rate, woken up late by up to `late_us`. Returns the bytes sent.
fn bytes_in_a_second(rate: u64, late_us: u64, seed: u64) -> u64 {
    let mut pacer = Pacer::new(&PacingSettings::default());
    pacer.set_rate(Some(rate));
    let (mut now, mut sent, mut random) = (us(0), 0, seed | 1);
    while now < us(1_000_000) {
        while try_send(&mut pacer, now, 1_460) {
            sent += 1_460;
        }
        // xorshift64*
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        now = pacer.next_send(now).max(now) + Duration::from_nanos(random % (late_us * 1_000));
    }
    sent
}

#[test]
fn late_timers_do_not_lower_the_rate() {
    for (rate, late_us) in [
        (1_250_000, 100),
        (125_000_000, 100),
        (125_000_000, 4_000),
        (1_250_000_000, 300),
    ] {
        let sent = bytes_in_a_second(rate, late_us, rate ^ late_us);
        // The last wake-up's lateness, and one segment, may be missing.
        let missing = rate.saturating_sub(sent);
        assert!(
            missing <= rate * (late_us + 50) / 1_000_000 + 1_460,
            "{rate} B/s, {late_us} us: {missing} missing"
        );
        assert!(
            sent <= rate + rate * (late_us + 50) / 1_000_000 + 2_920,
            "{rate} B/s, {late_us} us: {sent} sent"
        );
    }
}

proptest! {
    #[test]
    fn the_rate_is_exact_in_the_long_run(
        rate in 1_000..20_000_000_000u64, sizes in prop::collection::vec(1..9_000u32, 1..300),
    ) {
        let mut pacer = strict();
        pacer.set_rate(Some(rate));
        let (mut now, mut bytes) = (us(0), 0u64);
        for size in sizes {
            now = pacer.next_send(now);
            pacer.on_sent(now, size);
            bytes += u64::from(size);
        }
        let exact = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let due = u128::from(pacer.next_send(now).as_ns());
        // An interval is at least a nanosecond.
        prop_assert!(due.abs_diff(exact) <= u128::from(rate >= 1_000_000_000) * 300, "{due} {exact}");
    }

    #[test]
    fn segments_are_never_ahead_of_the_rate_by_more_than_a_burst_and_the_slack(
        polls in prop::collection::vec((0..3_000u64, 1..2_000u32, any::<bool>()), 1..200),
        burst in 1..4u16, slack_us in 0..100u64,
    ) {
        let mut settings = PacingSettings::default();
        (settings.initial_burst, settings.burst) = (0, burst);
        settings.slack = Duration::from_micros(slack_us);
        let mut pacer = of_window(&settings);
        let (mut now, mut sent) = (us(0), Vec::new());
        for (later, bytes, has_no_data) in polls {
            now += Duration::from_micros(later);
            for _ in 0..5 {
                if try_send(&mut pacer, now, bytes) {
                    sent.push((now, u64::from(bytes)));
                }
            }
            if has_no_data {
                pacer.on_no_data();
            }
        }
        // From any segment on at most what the rate gives, the allowance, and what is made up for: 50 ms.
        let mut all = 0;
        let allowed = u64::from(burst) * 2_000 + slack_us * 10 + 2_000;
        for &(at, bytes) in &sent {
            all += bytes;
            prop_assert!(all <= at.ns_since(sent[0].0) / 100 + allowed, "{all} at {at:?}");
        }
    }

    #[test]
    fn any_settings_and_times_are_accepted(
        events in prop::collection::vec((0..6u8, any::<u64>(), any::<u32>()), 1..100),
        percents in any::<[u16; 2]>(), bursts in any::<[u16; 2]>(), times in any::<[u64; 2]>(),
    ) {
        let mut settings = PacingSettings::default();
        [settings.slow_start_percent, settings.avoidance_percent] = percents;
        [settings.initial_burst, settings.burst] = bursts;
        [settings.slack, settings.most_behind] = times.map(Duration::from_nanos);
        let mut pacer = Pacer::new(&settings);
        let mut now = us(0);
        for (event, number, small) in events {
            match event {
                0 => pacer.set_rate(number.is_multiple_of(3).then_some(number)),
                1 => pacer.update(small, Some(Duration::from_nanos(number)), number % 2 == 0),
                2 => pacer.on_no_data(),
                3 => now += Duration::from_nanos(number),
                4 => now += Duration::from_nanos(u64::from(small)),
                _ => pacer.on_sent(now, small),
            }
            pacer.next_send(now);
            prop_assert!(pacer.rate() != Some(0));
        }
    }
}
