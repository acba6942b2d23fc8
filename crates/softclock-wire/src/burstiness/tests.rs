use alloc::vec::Vec;
use core::time::Duration;

use proptest::prelude::*;

use super::*;

fn rate(bps: u64) -> Rate {
    Rate::from_bps(bps).unwrap()
}

fn options(rate: Option<Rate>) -> Options {
    Options {
        rate,
        line: None,
        train_gap: Duration::from_micros(10),
        windows: Vec::from([1, 10, 100].map(Duration::from_millis)),
    }
}

fn analysed(options: &Options, packets: &[(u64, u32)]) -> Burstiness {
    let mut burstiness = Burstiness::new(options);
    for &(at_ns, bytes) in packets {
        burstiness.on_packet(Instant::from_ns(at_ns), bytes);
    }
    burstiness
}

/// A simple model of the queue: keeps the time at which the last bit of each packet leaves, in units of 10^-9 bits at
/// the rate, and returns the occupancy after each arrival.
fn model(rate: Rate, line: Option<Rate>, packets: &[(u64, u32)]) -> Vec<Occupancy> {
    let mut departures: Vec<(u128, u32)> = Vec::new();
    let arrive = |&(at_ns, bytes): &(u64, u32)| {
        let at = u128::from(at_ns) * u128::from(rate.bps());
        let work = u128::from(bytes) * 8_000_000_000;
        let begun = line.map_or(0, |line| {
            work * u128::from(rate.bps()) / u128::from(line.max(rate).bps())
        });
        let previous = departures.last().map_or(0, |&(departure, _)| departure);
        departures.push((previous.max(at.saturating_sub(begun)) + work, bytes));
        let before = departures.len() - 1;
        let waiting = departures[..before]
            .iter()
            .filter(|(departure, _)| *departure > at);
        waiting.fold(
            Occupancy {
                packets: 1,
                bytes: bytes.into(),
            },
            |sum, (_, bytes)| Occupancy {
                packets: sum.packets + 1,
                bytes: sum.bytes + u64::from(*bytes),
            },
        )
    };
    packets.iter().map(arrive).collect()
}

/// Bursts of `size` packets of 9 KB at 10 Gbit/s, at distances that give a mean of 5 Gbit/s.
fn bursts(size: u64) -> Vec<(u64, u32)> {
    let packet = |index: u64| {
        let slot = index / size * size * 2 + index % size;
        (1_000_000 + slot * 7_200, 9_000)
    };
    (0..size * 100).map(packet).collect()
}

#[test]
fn table_ii() {
    // A store-and-forward switch holds half a packet more, which shows if the burst has an even number of packets.
    for (size, theory, switch) in [(1, 1, 1), (7, 4, 4), (70, 35, 36)] {
        let mut options = options(Some(rate(5_000_000_000)));
        let max = analysed(&options, &bursts(size)).queue().unwrap().max;
        assert_eq!(max.packets, switch, "bursts of {size}");
        options.line = Some(rate(10_000_000_000));
        let max = analysed(&options, &bursts(size)).queue().unwrap().max;
        assert_eq!(max.packets, theory, "bursts of {size}");
        assert_eq!(max.bytes, theory * 9_000);
    }
}

#[test]
fn one_nanosecond_decides() {
    // 1500 bytes take 12 us at 1 Gbit/s.
    let second = |at_ns| {
        let mut queue = VirtualQueue::new(rate(1_000_000_000), None);
        queue.on_packet(Instant::from_ns(5), 1500).unwrap();
        queue
            .on_packet(Instant::from_ns(at_ns), 64)
            .unwrap()
            .packets
    };
    assert_eq!((second(12_004), second(12_005)), (2, 1));
}

#[test]
fn a_rate_below_the_traffic_is_told() {
    let mut burstiness = Burstiness::new(&options(Some(rate(1))));
    for index in 0..=MOST_RUNS as u32 {
        assert!(burstiness.queue().unwrap().full_at.is_none());
        burstiness.on_packet(Instant::from_ns(index.into()), 60 + index % 2);
    }
    burstiness.on_packet(Instant::from_ns(1 << 40), 60);
    let queue = burstiness.queue().unwrap();
    assert_eq!(queue.full_at, Some(Instant::from_ns(MOST_RUNS as u64)));
    assert_eq!(queue.max.packets, MOST_RUNS as u64);
    assert_eq!(burstiness.volume().packets(), MOST_RUNS as u64 + 2);

    // Packets of equal length share one entry.
    let mut queue = VirtualQueue::new(rate(1), None);
    for _ in 0..=MOST_RUNS {
        queue.on_packet(Instant::ORIGIN, 60).unwrap();
    }
}

#[test]
fn nothing_and_little() {
    let none = analysed(&options(Some(rate(1))), &[]);
    assert_eq!((none.trains().count(), none.volume().packets()), (0, 0));
    assert_eq!(
        (none.gaps().mean_ns(), none.gaps().variation()),
        (None, None)
    );
    assert_eq!(none.volume().mean_rate(), None);
    assert_eq!(none.queue().unwrap().mean_packets(), 0.0);

    let one = analysed(&options(Some(rate(1))), &[(7, 100)]);
    assert_eq!((one.trains().count(), one.trains().longest()), (1, 1));
    assert_eq!(one.volume().mean_rate(), None, "no time passed");
    assert_eq!(one.windows()[0].peak_over_mean(), None, "no window is over");
    assert_eq!(one.queue().unwrap().max.packets, 1);

    let empty = analysed(&options(Some(rate(1))), &[(0, 0), (1_000, 0)]);
    assert_eq!(empty.volume().mean_rate(), None, "no bytes");
    assert_eq!(empty.queue().unwrap().max.packets, 1);
}

#[test]
fn time_that_goes_backwards_stands_still() {
    let packets = [(100, 1), (50, 1), (120, 1), (119, 1)];
    let burstiness = analysed(&options(None), &packets);
    assert_eq!(burstiness.volume().reversals(), 2);
    assert_eq!(burstiness.volume().duration(), Duration::from_nanos(20));
    assert_eq!(burstiness.gaps().histogram().max_ns(), 20);
    assert_eq!(burstiness.gaps().histogram().count(), 3);
}

#[test]
fn trains_end_at_the_threshold() {
    let packets = [0, 9_999, 19_998, 29_998, 60_000, 60_001].map(|at| (at, 60));
    let burstiness = analysed(&options(None), &packets);
    let trains = burstiness.trains();
    assert_eq!((trains.count(), trains.longest()), (3, 3));
    let lengths: Vec<_> = trains.lengths().buckets().collect();
    assert_eq!(lengths, [(1, 1), (2, 1), (3, 1)]);
}

#[test]
fn a_metronome_has_no_peaks() {
    let packets: Vec<_> = (0..100_000u64).map(|n| (n * 10_000, 1250)).collect();
    let burstiness = analysed(&options(None), &packets);
    let rate = burstiness.volume().mean_rate().unwrap();
    assert_eq!(rate.bps(), 1_000_010_001, "one packet more than gaps");
    assert_eq!(burstiness.gaps().variation(), Some(0.0));
    for window in burstiness.windows() {
        assert_eq!(window.peak_over_mean(), Some(1.0));
    }
}

#[test]
fn silence_counts_as_empty_windows() {
    // 1 packet each 5 ms: four of five windows of 1 ms are empty, and years pass before the last.
    let mut packets: Vec<_> = (0..1000u64).map(|n| (n * 5_000_000, 100)).collect();
    let burstiness = analysed(&options(None), &packets);
    let window = &burstiness.windows()[0];
    // The last packet's window is not over.
    assert_eq!((window.count(), window.peak_bytes()), (4995, 100));
    assert_eq!(window.peak_over_mean(), Some(5.0));
    packets.push((u64::MAX, 100));
    let burstiness = analysed(&options(None), &packets);
    let window = &burstiness.windows()[0];
    assert_eq!(window.count(), u64::MAX / 1_000_000);
    assert_eq!(window.p999_over_mean(), Some(0.0));
}

proptest! {
    #[test]
    fn the_queue_is_the_plain_one(
        gaps in prop::collection::vec((0u64..4_000, prop_oneof![Just(9000u32), Just(64), 0u32..1600]), 1..300),
        bps in 1_000_000_000u64..200_000_000_000,
        line in prop::option::of(1_000_000_000u64..400_000_000_000),
        begin in 0u64..1 << 61,
    ) {
        let mut now = begin;
        let packets: Vec<_> = gaps.into_iter().map(|(gap, bytes)| { now += gap; (now, bytes) }).collect();
        let (rate, line) = (rate(bps), line.map(rate));
        let mut queue = VirtualQueue::new(rate, line);
        let told: Vec<_> = packets.iter().map(|&(at, bytes)| queue.on_packet(Instant::from_ns(at), bytes).unwrap()).collect();
        let plain = model(rate, line, &packets);
        prop_assert_eq!(&told, &plain);

        let options = Options { line, ..options(Some(rate)) };
        let burstiness = analysed(&options, &packets);
        let queue = burstiness.queue().unwrap();
        let sum: u64 = plain.iter().map(|occupancy| occupancy.packets).sum();
        prop_assert_eq!(queue.max.packets, plain.iter().map(|occupancy| occupancy.packets).max().unwrap());
        prop_assert_eq!(queue.mean_packets(), sum as f64 / plain.len() as f64);
        let alone = plain.iter().rposition(|occupancy| occupancy.packets == 1).unwrap();
        prop_assert_eq!(queue.busy_since, Some(Instant::from_ns(packets[alone].0)));
        prop_assert_eq!(queue.envelope.cells().map(|(_, most)| most).max(), Some(queue.max.packets));
    }

    #[test]
    fn gaps_have_the_mean_and_variation_of_the_textbook(gaps in prop::collection::vec(0u64..1 << 40, 1..200)) {
        let mut told = Gaps::default();
        gaps.iter().for_each(|&gap| told.record(gap));
        let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
        let variance = gaps.iter().map(|&gap| (gap as f64 - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        prop_assert!((told.mean_ns().unwrap() / mean.max(1e-9) - 1.0).abs() < 1e-9 || mean == 0.0);
        if mean > 0.0 {
            let expected = variance.sqrt() / mean;
            let variation = told.variation().unwrap();
            prop_assert!((variation - expected).abs() < 1e-6, "{} for {}", variation, expected);
        }
    }

    #[test]
    fn windows_are_those_of_a_plain_table(gaps in prop::collection::vec((0u64..5_000, 0u32..2000), 1..300), length in 1u64..3_000) {
        let mut now = 0;
        let mut window = Window::new(Duration::from_nanos(length));
        let mut table = Vec::new();
        for (index, (gap, bytes)) in gaps.into_iter().enumerate() {
            now += if index == 0 { 0 } else { gap };
            window.on_packet(now, bytes);
            table.resize((now / length) as usize + 1, 0u64);
            *table.last_mut().unwrap() += u64::from(bytes);
        }
        table.pop();
        prop_assert_eq!(window.count(), table.len() as u64);
        prop_assert_eq!(window.peak_bytes(), table.iter().copied().max().unwrap_or(0));
        let sum: u64 = table.iter().sum();
        prop_assert_eq!(window.peak_over_mean().is_some(), sum > 0);
        if let Some(told) = window.p999_over_mean() {
            let mean = sum as f64 / table.len() as f64;
            table.sort_unstable();
            let exact = table[(table.len() * 999 / 1000).min(table.len() - 1)] as f64 / mean;
            prop_assert!(told >= exact * 0.999 && told <= exact * 1.0626 + 1.0 / mean, "{} for {}", told, exact);
        }
    }

    #[test]
    fn nothing_overflows(packets in prop::collection::vec((any::<u64>(), any::<u32>()), 0..50), bps in 1u64.., line in prop::option::of(1u64..)) {
        let options = Options { line: line.map(rate), ..options(Some(rate(bps))) };
        let burstiness = analysed(&options, &packets);
        let _ = (burstiness.gaps().variation(), burstiness.volume().mean_rate());
        prop_assert!(burstiness.trains().count() <= packets.len() as u64);
    }
}
