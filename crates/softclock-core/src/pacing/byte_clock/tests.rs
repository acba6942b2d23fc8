use super::*;
use alloc::collections::VecDeque;
use alloc::vec;
use proptest::prelude::*;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn unbounded(rate: Rate, burst_bytes: u64) -> ClassOptions {
    ClassOptions {
        burst_bytes: Some(burst_bytes),
        most_behind: Some(rate.time_of(burst_bytes)),
        most_packets: usize::MAX,
        most_bytes: u64::MAX,
        ..ClassOptions::of_rate(rate)
    }
}

/// Sends all packets, each at the first possible instant. Returns class, packet and time of each.
fn run<P: Copy>(clock: &mut ByteClock<P>, mut now: Instant) -> Vec<(ClassId, P, Instant)> {
    let mut sent = Vec::new();
    loop {
        match clock.dequeue(now) {
            Dequeued::Send(class, packet) => sent.push((class, packet, now)),
            Dequeued::Wait(until) => {
                assert!(until > now, "{until:?} is not after {now:?}");
                now = until;
            }
            Dequeued::Empty => return sent,
        }
    }
}

/// A packet at 1 kbit/s takes 10 s, and 100 us at the new rate.
#[test]
fn a_raised_rate_holds_from_the_next_packet_on() {
    let us = |us: u64| Instant::from_ns(us * 1000);
    for has_peak in [false, true] {
        for is_queued in [false, true] {
            let options = |of: &str| ClassOptions {
                peak: has_peak.then(|| rate(of)),
                ..ClassOptions::of_rate(rate(of))
            };
            let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
            let class = clock.add_class(options("1kbit"));
            clock.enqueue(class, 0, 1250, us(0)).unwrap();
            assert_eq!(clock.dequeue(us(0)), Dequeued::Send(class, 0));
            if is_queued {
                clock.enqueue(class, 1, 1250, us(1000)).unwrap();
                assert_eq!(clock.dequeue(us(1000)), Dequeued::Wait(us(10_000_000)));
            }
            clock.set_options(class, options("100mbit"));
            if !is_queued {
                clock.enqueue(class, 1, 1250, us(1000)).unwrap();
            }
            clock.enqueue(class, 2, 1250, us(1000)).unwrap();
            let sent = run(&mut clock, us(1000));
            let times = sent.iter().map(|&(_, _, at)| at);
            let [first, second] = times.collect::<Vec<_>>()[..] else {
                panic!("{sent:?}");
            };
            assert!(first <= us(1100), "{first:?}");
            assert!(second <= first.add_ns(100_000), "{second:?}");
            assert_eq!(clock.dequeue(second), Dequeued::Empty);
        }
    }
}

/// A class that is changed to and fro has the wait of its rate.
#[test]
fn a_lowered_rate_takes_back_what_a_raised_one_has_given() {
    let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
    let class = clock.add_class(unbounded(rate("1mbit"), 0));
    (0..2).for_each(|packet| clock.enqueue(class, packet, 1250, Instant::ORIGIN).unwrap());
    assert_eq!(clock.dequeue(Instant::ORIGIN), Dequeued::Send(class, 0));
    for to in ["100mbit", "1mbit"] {
        clock.set_options(class, unbounded(rate(to), 0));
    }
    let due = Instant::from_ns(10_000_000);
    assert_eq!(clock.dequeue(Instant::ORIGIN), Dequeued::Wait(due));
}

#[test]
fn a_class_keeps_its_interval() {
    let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
    let class = clock.add_class(unbounded(rate("100mbit"), 0));
    for packet in 0..100 {
        clock.enqueue(class, packet, 1500, Instant::ORIGIN).unwrap();
    }
    let sent = run(&mut clock, Instant::ORIGIN);
    for (number, &(_, packet, at)) in (0..).zip(&sent) {
        assert_eq!(packet, number);
        assert_eq!(at.as_ns(), number * 120_000);
    }
    assert_eq!(sent.len(), 100);
}

#[test]
fn classes_take_turns_and_the_link_is_never_exceeded() {
    let mut clock = ByteClock::new(rate("100mbit"), Instant::ORIGIN);
    let classes = [60, 40]
        .map(|mbit| clock.add_class(unbounded(Rate::from_bps(mbit * 1_000_000).unwrap(), 0)));
    for packet in 0..600 {
        for class in classes {
            clock.enqueue(class, packet, 1000, Instant::ORIGIN).unwrap();
        }
    }
    let sent = run(&mut clock, Instant::ORIGIN);
    for pair in sent.windows(2) {
        assert!(pair[1].2.ns_since(pair[0].2) >= 80_000, "{pair:?}");
    }
    // While both have packets, they share the link in proportion to their rates.
    let first = sent[..500].iter().filter(|sent| sent.0 == classes[0]);
    assert!((298..=302).contains(&first.count()));
}

#[test]
fn it_catches_up_at_the_peak_rate() {
    let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
    let class = clock.add_class(ClassOptions {
        peak: Some(rate("200mbit")),
        ..unbounded(rate("100mbit"), 15_000)
    });
    for packet in 0..30 {
        clock.enqueue(class, packet, 1500, Instant::ORIGIN).unwrap();
    }
    let at = |us: u64| Instant::from_ns(us * 1000);
    assert_eq!(clock.dequeue(at(0)), Dequeued::Send(class, 0));
    // No call is made for 600 us: five packets are due. At the peak rate, due times move by two packets at most.
    let sent = run(&mut clock, at(600));
    let times: Vec<u64> = sent.iter().map(|sent| sent.2.as_ns() / 1000).collect();
    assert_eq!(times[..6], [600, 600, 600, 660, 720, 780]);
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(*gaps.last().unwrap(), 120);
    assert_eq!(*times.last().unwrap(), 29 * 120, "the average is kept");
}

/// A sender that is late by up to 50 us each time keeps the rate, even with a peak rate slightly above it, and the
/// peak rate holds over any longer time.
#[test]
fn lateness_costs_no_rate() {
    let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
    let class = clock.add_class(ClassOptions {
        peak: Some(rate("115mbit")),
        ..unbounded(rate("100mbit"), 125_000)
    });
    let mut now = Instant::ORIGIN;
    let mut sent = Vec::new();
    for packet in 0..10_000u64 {
        clock.enqueue(class, packet, 1500, Instant::ORIGIN).unwrap();
    }
    let mut random = 1u64;
    loop {
        match clock.dequeue(now) {
            Dequeued::Send(..) => sent.push(now.as_ns()),
            Dequeued::Wait(due) => {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                now = due.add_ns((random >> 33) % 50_000);
            }
            Dequeued::Empty => break,
        }
    }
    let exact = 9_999 * 120_000;
    let last = *sent.last().unwrap();
    assert!((exact..exact + 50_000).contains(&last), "{last}");
    for window in sent.windows(11) {
        assert!(window[10] - window[0] >= 1_000_000, "11 within 1 ms");
    }
    assert!(sent.windows(2).all(|pair| pair[1] - pair[0] >= 50_000));
}

/// Late packets are made up for; time in which a class had no packets is not.
#[test]
fn lateness_is_not_idleness() {
    let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
    let class = clock.add_class(ClassOptions {
        peak: Some(rate("200mbit")),
        most_behind: Some(Duration::from_millis(10)),
        ..unbounded(rate("100mbit"), 1500)
    });
    let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
    for packet in 0..200 {
        clock.enqueue(class, packet, 1500, at(0)).unwrap();
    }
    assert_eq!(clock.dequeue(at(0)), Dequeued::Send(class, 0));
    let sent = run(&mut clock, at(10));
    assert_eq!(sent.last().unwrap().2.as_ns(), 199 * 120_000);
    for packet in 0..100 {
        clock.enqueue(class, packet, 1500, at(100)).unwrap();
    }
    let sent = run(&mut clock, at(100));
    let took = sent.last().unwrap().2.ns_since(at(100));
    assert!((98 * 120_000..=99 * 120_000).contains(&took), "{took}");
}

/// Idle time is not lateness, even with due times for transmissions: after it, packets leave at the peak rate from
/// the first one on, even if they are taken late or gathered.
#[test]
fn after_idleness_the_peak_rate_holds_from_the_first_packet_on() {
    for (tolerance_us, late_us) in [(0, 0), (0, 30), (200, 0), (200, 90)] {
        let mut clock = ByteClock::new(rate("10gbit"), Instant::ORIGIN);
        clock.set_tolerance(Duration::from_micros(tolerance_us));
        let class = clock.add_class(ClassOptions {
            peak: Some(rate("1gbit")),
            ..unbounded(rate("100mbit"), 125_000)
        });
        for second in 1..4 {
            let idle_until = Instant::from_ns(second * 1_000_000_000);
            for packet in 0..50 {
                clock.enqueue(class, packet, 1500, idle_until).unwrap();
            }
            let sent = run(&mut clock, idle_until.add_ns(late_us * 1000));
            for (number, &(_, _, at)) in (0..).zip(&sent) {
                let (earliest, took) = (number * 12_000, at.ns_since(idle_until));
                assert!(took >= earliest, "{number} after {took} ns");
                let latest = earliest + (tolerance_us + late_us) * 1000;
                assert!(took <= latest, "{number} after {took} ns");
            }
        }
    }
}

#[test]
fn an_idle_class_keeps_its_burst_and_no_more() {
    let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
    let class = clock.add_class(unbounded(rate("100mbit"), 3000));
    let late = Instant::from_ns(1_000_000_000);
    for packet in 0..10 {
        clock.enqueue(class, packet, 1500, late).unwrap();
    }
    let sent = run(&mut clock, late);
    let times: Vec<u64> = sent.iter().map(|sent| sent.2.ns_since(late)).collect();
    // Two packets of the burst and the one that is due, at the link's rate.
    assert_eq!(times[..4], [0, 12_000, 24_000, 120_000]);
}

#[test]
fn full_queues_give_back_and_say_why() {
    let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
    let options = ClassOptions {
        most_packets: 2,
        most_bytes: 2000,
        ..ClassOptions::of_rate(rate("1mbit"))
    };
    let class = clock.add_class(options);
    let mut enqueue = |packet, bytes| clock.enqueue(class, packet, bytes, Instant::ORIGIN);
    assert_eq!(enqueue('a', 1500), Ok(()));
    assert_eq!(enqueue('b', 600), Err(('b', DropReason::Bytes)));
    assert_eq!(enqueue('c', 500), Ok(()));
    assert_eq!(enqueue('d', 1), Err(('d', DropReason::Packets)));
    let statistics = clock.statistics(class);
    assert_eq!(statistics.dropped_for_bytes, 1);
    assert_eq!(statistics.dropped_for_packets, 1);
    assert_eq!(
        (statistics.queued_packets, statistics.queued_bytes),
        (2, 2000)
    );
    assert!(clock.drain(class).eq(['a', 'c']));
    assert_eq!(clock.dequeue(Instant::from_ns(1 << 40)), Dequeued::Empty);
}

#[test]
fn a_tolerance_gathers_classes_and_keeps_their_rates() {
    let wakes_and_end = |tolerance: u64| {
        let mut clock = ByteClock::new(rate("10gbit"), Instant::ORIGIN);
        clock.set_tolerance(Duration::from_micros(tolerance));
        // Rates that keep the classes out of step.
        for class in 0..200u64 {
            let rate = Rate::from_bps(1_000_000 + class * 1_009).unwrap();
            let id = clock.add_class(unbounded(rate, 3000));
            (0..20).for_each(|packet| clock.enqueue(id, packet, 1500, Instant::ORIGIN).unwrap());
        }
        let sent = run(&mut clock, Instant::ORIGIN);
        let mut times: Vec<Instant> = sent.iter().map(|sent| sent.2).collect();
        times.dedup();
        (times.len(), *times.last().unwrap())
    };
    let (exact, end) = wakes_and_end(0);
    let (gathered, later) = wakes_and_end(1000);
    assert!(gathered * 5 < exact, "{gathered} wake-ups, {exact} without");
    assert!(later >= end && later.ns_since(end) <= 1_200_000);
}

/// A tolerance shorter than the time between two packets of a class leaves that time unchanged.
#[test]
fn a_tolerance_below_the_distance_of_packets_keeps_it() {
    let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
    clock.set_tolerance(Duration::from_micros(50));
    let class = clock.add_class(ClassOptions::of_rate(rate("100mbit")));
    (0..10).for_each(|packet| clock.enqueue(class, packet, 1500, Instant::ORIGIN).unwrap());
    let sent = run(&mut clock, Instant::ORIGIN);
    let times: Vec<u64> = sent.iter().map(|sent| sent.2.as_ns()).collect();
    let expected = (1..10u64).map(|number| number * 120_000 + 50_000);
    assert!(times[1..].iter().copied().eq(expected), "{times:?}");
}

const SLOWEST: u64 = 1_000;
const FASTEST: u64 = 400_000_000_000;

/// Rates with all magnitudes equally likely.
fn any_rate() -> impl Strategy<Value = u64> {
    (SLOWEST.ilog2()..=FASTEST.ilog2(), any::<u64>())
        .prop_map(|(bits, low)| ((1 << bits) | (low % (1 << bits))).clamp(SLOWEST, FASTEST))
}

/// Packet n of a class that always has packets is sent at the instant that a single division of all preceding bytes
/// gives. A rate above the link's is limited to it.
fn goes_when_one_division_says(
    link: u64,
    class_rate: u64,
    sizes: &[u64],
) -> Result<(), TestCaseError> {
    let mut clock = ByteClock::new(Rate::from_bps(link).unwrap(), Instant::ORIGIN);
    let class = clock.add_class(unbounded(Rate::from_bps(class_rate).unwrap(), 1500));
    for (number, &size) in (0..).zip(sizes) {
        clock.enqueue(class, number, size, Instant::ORIGIN).unwrap();
    }
    let sent = run(&mut clock, Instant::ORIGIN);
    let class_rate = u128::from(class_rate.min(link));
    let mut before: u128 = 0;
    for (&size, &(_, _, at)) in sizes.iter().zip(&sent) {
        let advance = before * u128::from(link) / class_rate;
        let due = (advance * 8_000_000_000).div_ceil(u128::from(link));
        prop_assert_eq!(u128::from(at.as_ns()), due);
        before += u128::from(size);
    }
    prop_assert_eq!(sent.len(), sizes.len());
    Ok(())
}

proptest! {
    /// Rounding errors do not accumulate, at any rates.
    #[test]
    fn the_arithmetic_is_exact(
        link in any_rate(),
        class in any_rate(),
        sizes in prop::collection::vec(60u64..70_000, 1..60),
    ) {
        goes_when_one_division_says(link, class, &sizes)?;
    }

    /// Nor at the extremes of the rates.
    #[test]
    fn the_arithmetic_is_exact_at_the_extremes(
        sizes in prop::collection::vec(60u64..70_000, 1..60),
    ) {
        for [class, link] in [
            [SLOWEST, FASTEST],
            [SLOWEST, SLOWEST],
            [FASTEST, FASTEST],
        ] {
            goes_when_one_division_says(link, class, &sizes)?;
        }
    }

    /// For any times of arrivals and calls, no class exceeds its rate and its burst, the link is not exceeded, the
    /// order within a class is kept, and no packet is lost.
    #[test]
    fn no_class_gets_more_than_its_rate(
        steps in prop::collection::vec((0u64..400_000, 0usize..3, 60u64..1600, any::<bool>()), 1..300),
    ) {
        let link = rate("1gbit");
        let mut clock = ByteClock::new(link, Instant::ORIGIN);
        let options = [10, 100, 300].map(|mbit| {
            unbounded(Rate::from_bps(mbit * 1_000_000).unwrap(), 3000)
        });
        let classes = options.map(|options| clock.add_class(options));
        let mut now = Instant::ORIGIN;
        let mut waiting = vec![VecDeque::new(); 3];
        let mut sent = [0u64; 3];
        let mut on_link = 0u64;
        for (number, &(ns, class, bytes, ask)) in steps.iter().enumerate() {
            now = now.add_ns(ns);
            clock.enqueue(classes[class], number, bytes, now).unwrap();
            waiting[class].push_back((number, bytes));
            while ask && let Dequeued::Send(id, packet) = clock.dequeue(now) {
                let (first, bytes) = waiting[id.index()].pop_front().unwrap();
                prop_assert_eq!(packet, first);
                let rate = options[id.index()].rate;
                let allowed = rate.bytes_in(now.since(Instant::ORIGIN)) + 3000 + 1;
                let sent = &mut sent[id.index()];
                prop_assert!(*sent <= allowed, "{sent} of {allowed}");
                *sent += bytes;
                prop_assert!(on_link <= link.bytes_in(now.since(Instant::ORIGIN)) + 1);
                on_link += bytes;
            }
        }
        let rest: usize = waiting.iter().map(VecDeque::len).sum();
        prop_assert_eq!(run(&mut clock, now).len(), rest);
    }
}

/// Returns the bytes that each class sent in `time`. Classes always have packets of their size, or, if a rate is
/// given, as many as that rate offers.
fn run_for(
    clock: &mut ByteClock<u64>,
    offered: &[(ClassId, u64, Option<Rate>)],
    time: Duration,
) -> Vec<u64> {
    let end = Instant::ORIGIN + time;
    let mut sent = vec![0; offered.len()];
    let mut given = vec![0; offered.len()];
    let mut now = Instant::ORIGIN;
    while now < end {
        for (place, &(class, bytes, offer)) in offered.iter().enumerate() {
            let wanted = match offer {
                Some(rate) => rate.bytes_in(now.since(Instant::ORIGIN)),
                None => sent[place] + 20 * bytes,
            };
            while given[place] < wanted && clock.enqueue(class, bytes, bytes, now).is_ok() {
                given[place] += bytes;
            }
        }
        // Often enough for every offered rate.
        let next = now.add_ns(20_000);
        loop {
            match clock.dequeue(now) {
                Dequeued::Send(class, bytes) => sent[class.index()] += bytes,
                Dequeued::Wait(until) if until < next => now = until,
                _ => break,
            }
        }
        now = next;
    }
    sent
}

/// Asserts that each class sent `share` of the bytes that its rate allows in `time`.
fn assert_shares(rates: &[Rate], sent: &[u64], time: Duration, share: f64) {
    for (rate, &sent) in rates.iter().zip(sent) {
        let ratio = sent as f64 / rate.bytes_in(time) as f64;
        let error = (ratio / share - 1.0).abs();
        assert!(error < 0.02, "{rate}: {ratio} of its rate, not {share}");
    }
}

#[test]
fn a_link_promised_several_times_over_is_shared_as_rates_are() {
    let time = Duration::from_secs(4);
    for small_mbit in [10, 1] {
        let mut clock = ByteClock::new(rate("100mbit"), Instant::ORIGIN);
        let mut rates = vec![rate("100mbit")];
        rates.resize(11, Rate::from_bps(small_mbit * 1_000_000).unwrap());
        let offered: Vec<_> = rates
            .iter()
            .map(|&rate| (clock.add_class(ClassOptions::of_rate(rate)), 1500, None))
            .collect();
        let share = 100.0 / (100.0 + 10.0 * small_mbit as f64);
        let least = clock.least_rate(offered[0].0).bps() as f64;
        assert!((least / 1e8 / share - 1.0).abs() < 1e-6);
        let sent = run_for(&mut clock, &offered, time);
        assert_shares(&rates, &sent, time, share);
    }
}

/// The link is overbooked by 5 %, by classes with various rates and sizes of packets.
#[test]
fn a_little_too_much_costs_each_class_a_little() {
    let time = Duration::from_secs(4);
    let mut clock = ByteClock::new(rate("100mbit"), Instant::ORIGIN);
    let rates = ["60mbit", "30mbit", "9mbit", "3mbit", "2mbit", "1mbit"].map(rate);
    let sizes = [1500, 300, 1500, 100, 1000, 1500];
    let offered: Vec<_> = (rates.iter().zip(sizes))
        .map(|(&rate, bytes)| (clock.add_class(ClassOptions::of_rate(rate)), bytes, None))
        .collect();
    let sent = run_for(&mut clock, &offered, time);
    assert_shares(&rates, &sent, time, 100.0 / 105.0);
}

/// Classes without packets do not count: other classes get the link.
#[test]
fn classes_without_packets_take_no_share() {
    let time = Duration::from_secs(4);
    let mut clock = ByteClock::new(rate("100mbit"), Instant::ORIGIN);
    let rates = [rate("100mbit"); 5];
    let mut offered: Vec<_> = rates
        .iter()
        .map(|&rate| (clock.add_class(ClassOptions::of_rate(rate)), 1500, None))
        .collect();
    offered.truncate(1);
    let sent = run_for(&mut clock, &offered, time);
    assert_shares(&rates[..1], &sent, time, 1.0);
    // A class that sends less than its share leaves the rest to others.
    let mut clock = ByteClock::new(rate("100mbit"), Instant::ORIGIN);
    let offered: Vec<_> = [None, Some(rate("20mbit"))]
        .into_iter()
        .map(|offer| {
            let class = clock.add_class(ClassOptions::of_rate(rate("100mbit")));
            (class, 1500, offer)
        })
        .collect();
    let sent = run_for(&mut clock, &offered, time);
    assert_shares(&[rate("20mbit")], &sent[1..], time, 1.0);
    assert_shares(&[rate("80mbit")], &sent[..1], time, 1.0);
}

/// For any load of other classes and any overbooking, a class that always has packets gets its own share, and the
/// link is never idle while a class is behind its rate.
#[test]
fn no_offer_of_others_starves_a_class() {
    let time = Duration::from_secs(2);
    for tenths in [5, 8, 9, 10, 12] {
        let mut clock = ByteClock::new(rate("100mbit"), Instant::ORIGIN);
        let mut offered = vec![(
            clock.add_class(ClassOptions::of_rate(rate("100mbit"))),
            1500,
            None,
        )];
        for _ in 0..10 {
            let class = clock.add_class(ClassOptions::of_rate(rate("10mbit")));
            let offer = Rate::from_bps(1_000_000 * tenths);
            offered.push((class, 1500, offer));
        }
        let sent = run_for(&mut clock, &offered, time);
        let all = rate("100mbit").bytes_in(time) as f64;
        assert!(
            sent[0] as f64 > 0.48 * all,
            "{tenths}: {} of {all}",
            sent[0]
        );
        let sum: u64 = sent.iter().sum();
        assert!(sum as f64 > 0.98 * all, "{tenths}: {sum} of {all}");
    }
}

/// Many slow classes whose packets are due at the same time do not reduce the rate of a fast one.
#[test]
fn slow_classes_do_not_hold_up_a_fast_one() {
    let time = Duration::from_secs(2);
    let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
    let mut rates = vec![rate("900mbit")];
    rates.resize(101, rate("1mbit"));
    let offered: Vec<_> = rates
        .iter()
        .map(|&rate| (clock.add_class(ClassOptions::of_rate(rate)), 1500, None))
        .collect();
    let sent = run_for(&mut clock, &offered, time);
    assert_shares(&rates, &sent, time, 1.0);
}
