//! Late callers in virtual time: the queue at a bottleneck, the rate that remains, and the most bytes in a second.

use super::*;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;
use proptest::prelude::*;

/// A cause of lateness.
#[derive(Clone, Copy, Debug)]
enum Late {
    /// Each wait is late by a time in this range, in nanoseconds.
    Waits(u64, u64),
    /// A percentage of the time is stolen, in slices within this range, in nanoseconds.
    Stolen { percent: u64, from: u64, to: u64 },
    /// The caller is away for `for_ns`, every `every_ns`.
    Away { for_ns: u64, every_ns: u64 },
}

/// A caller that waits for instants, reads the clock when it acts, and is late for the reasons in `late`.
struct Caller {
    random: u64,
    late: Vec<Late>,
    /// For each reason, when the caller is next kept away.
    next: Vec<u64>,
}

impl Caller {
    fn new(seed: u64, late: &[Late]) -> Self {
        let mut caller = Self {
            random: seed,
            late: late.into(),
            next: Vec::new(),
        };
        caller.next = late.iter().map(|&late| caller.pause(late, 0)).collect();
        caller
    }

    fn between(&mut self, from: u64, to: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        from + (z ^ (z >> 31)) % (to - from + 1)
    }

    /// Returns the time until the caller is next kept away, after an absence of `slice`.
    fn pause(&mut self, late: Late, slice: u64) -> u64 {
        match late {
            Late::Waits(..) => u64::MAX,
            Late::Stolen { percent, from, to } => {
                let slice = match slice {
                    0 => (from + to) / 2,
                    slice => slice,
                };
                let mean = slice * (100 - percent) / percent;
                self.between(mean / 2, mean * 3 / 2)
            }
            Late::Away { every_ns, .. } => every_ns,
        }
    }

    /// Returns when a caller that waits for `at` is awake.
    fn wake(&mut self, at: u64) -> u64 {
        let mut now = at;
        for place in 0..self.late.len() {
            let late = self.late[place];
            if let Late::Waits(from, to) = late {
                now += self.between(from, to);
            }
            while self.next[place] <= now {
                let slice = match late {
                    Late::Waits(..) => unreachable!("never"),
                    Late::Stolen { from, to, .. } => self.between(from, to),
                    Late::Away { for_ns, .. } => for_ns,
                };
                let end = self.next[place] + slice;
                now = now.max(end);
                self.next[place] = end + self.pause(late, slice);
            }
        }
        now
    }
}

/// The packets sent in a run.
struct Outcome {
    /// Times in nanoseconds, and sizes in bytes.
    sent: Vec<(u64, u64)>,
    forgotten: u64,
}

impl Outcome {
    fn bytes(&self) -> u64 {
        self.sent.iter().map(|&(_, bytes)| bytes).sum()
    }

    /// Returns the sent bytes as a share of those that the rate allowed in this time.
    fn share(&self, rate: Rate, time: Duration) -> f64 {
        self.bytes() as f64 / rate.bytes_in(time) as f64
    }

    /// Returns the largest queue, in packets and bytes, at a bottleneck of this rate that handles whole packets,
    /// first in, first out. A packet is queued until its last bit has left.
    fn bottleneck(&self, rate: Rate) -> (u64, u64) {
        let mut waiting = VecDeque::new();
        let (mut free_at, mut bytes_waiting, mut most) = (0, 0, (0, 0));
        for &(at_ns, bytes) in &self.sent {
            // Times are exact: in bits over 10^9, of which a rate of r bits per second sends r each nanosecond.
            let now = u128::from(at_ns) * u128::from(rate.bps());
            while let Some((_, left)) = waiting.pop_front_if(|(leaves, _)| *leaves <= now) {
                bytes_waiting -= left;
            }
            free_at = now.max(free_at) + u128::from(bytes) * 8_000_000_000;
            waiting.push_back((free_at, bytes));
            bytes_waiting += bytes;
            most = (most.0.max(waiting.len() as u64), most.1.max(bytes_waiting));
        }
        most
    }

    /// Returns the most bytes sent in any period of a second.
    fn most_in_a_second(&self) -> u64 {
        let (mut first, mut sum, mut most) = (0, 0, 0);
        for &(at, bytes) in &self.sent {
            sum += bytes;
            while self.sent[first].0 + 1_000_000_000 <= at {
                sum -= self.sent[first].1;
                first += 1;
            }
            most = most.max(sum);
        }
        most
    }
}

/// Runs a class that always has packets, with these sizes in turn, served by a late caller.
fn serve(
    clock: &mut ByteClock<u64>,
    class: ClassId,
    sizes: &[u64],
    time: Duration,
    caller: &mut Caller,
) -> Outcome {
    let end = crate::time::saturating_ns(time);
    let mut next_size = sizes.iter().copied().cycle();
    let mut sent = Vec::new();
    let mut now = 0;
    while now < end {
        let at = Instant::from_ns(now);
        while clock.statistics(class).queued_packets < 100 {
            let bytes = next_size.next().unwrap();
            clock.enqueue(class, bytes, bytes, at).unwrap();
        }
        match clock.dequeue(at) {
            Dequeued::Send(_, bytes) => sent.push((now, bytes)),
            Dequeued::Wait(until) => now = caller.wake(until.as_ns()),
            Dequeued::Empty => unreachable!("it always has packets"),
        }
    }
    Outcome {
        sent,
        forgotten: clock.statistics(class).forgotten_bytes,
    }
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn serve_late(link: &str, class: Rate, sizes: &[u64], time: Duration, late: &[Late]) -> Outcome {
    let mut clock = ByteClock::new(rate(link), Instant::ORIGIN);
    let class = clock.add_class(ClassOptions {
        most_bytes: u64::MAX,
        ..ClassOptions::of_rate(class)
    });
    serve(&mut clock, class, sizes, time, &mut Caller::new(7, late))
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const STOLEN: Late = Late::Stolen {
    percent: 25,
    from: MS,
    to: 10 * MS,
};

/// No lateness causes a burst of more than eight packets, and no second exceeds the rate by more than a thousandth or
/// two packets, and one packet that begins in it.
fn assert_bounded(outcome: &Outcome, class: Rate, bytes: u64, what: &str) {
    let (packets, _) = outcome.bottleneck(class);
    assert!(packets <= 8, "{what}: {packets} wait");
    let second = class.bytes_in(Duration::from_secs(1));
    let over = (second / 1000).max(2 * bytes) + bytes;
    let most = outcome.most_in_a_second();
    assert!(most <= second + over + 1, "{what}: {most} of {second}");
}

#[test]
fn lateness_is_bounded_and_costs_what_it_must() {
    let time = Duration::from_secs(4);
    for (class, bytes, late, least) in [
        // A gap is 1.2 ms, 120 us or 12 us.
        ("10mbit", 1500, &[Late::Waits(10 * US, 100 * US)][..], 0.999),
        ("10mbit", 1500, &[Late::Waits(0, 2_300 * US)], 0.999),
        ("100mbit", 1500, &[Late::Waits(10 * US, 100 * US)], 0.999),
        ("100mbit", 1500, &[Late::Waits(100 * US, 240 * US)], 0.999),
        ("100mbit", 200, &[Late::Waits(10 * US, 80 * US)], 0.999),
        ("1gbit", 1500, &[Late::Waits(20 * US, 20 * US)], 0.999),
        ("1gbit", 1500, &[Late::Waits(10 * US, 80 * US)], 0.999),
        ("1gbit", 1500, &[Late::Waits(10 * US, 100 * US)], 0.97),
        ("100mbit", 1500, &[STOLEN], 0.74),
        ("10mbit", 1500, &[STOLEN], 0.74),
        (
            "100mbit",
            1500,
            &[STOLEN, Late::Waits(10 * US, 100 * US)],
            0.74,
        ),
        (
            "1gbit",
            1500,
            &[STOLEN, Late::Waits(10 * US, 50 * US)],
            0.74,
        ),
        (
            "100mbit",
            1500,
            &[Late::Away {
                for_ns: 300 * MS,
                every_ns: 900 * MS,
            }],
            0.74,
        ),
        (
            "1mbit",
            1500,
            &[Late::Away {
                for_ns: 40 * MS,
                every_ns: 700 * MS,
            }],
            0.94,
        ),
    ] {
        let class = rate(class);
        for link in ["1gbit", "10gbit"] {
            let outcome = serve_late(link, class, &[bytes], time, late);
            let what = alloc::format!("{class} of {link}, {bytes} bytes, {late:?}");
            assert_bounded(&outcome, class, bytes, &what);
            let share = outcome.share(class, time);
            assert!(share >= least, "{what}: {share}");
            let all = (outcome.bytes() + outcome.forgotten) as f64;
            let expected = class.bytes_in(time) as f64;
            // Sent and forgotten bytes add up to those of the rate, except for the last absence.
            assert!(
                (all / expected - 1.0).abs() < 0.08,
                "{what}: {all} of {expected}"
            );
        }
    }
}

/// On a full link where each wait is late by more than a packet takes, the link's clock also counts from due times.
#[test]
fn a_class_of_the_link_s_rate_keeps_it() {
    let time = Duration::from_secs(1);
    for (class, late_us) in [("1gbit", 20), ("100mbit", 100), ("10mbit", 1_000)] {
        let late = [Late::Waits(late_us * US, late_us * US)];
        let outcome = serve_late(class, rate(class), &[1500], time, &late);
        let share = outcome.share(rate(class), time);
        assert!(share > 0.999, "{class}, {late_us} us: {share}");
    }
}

/// The packets gathered in a tolerance are made up for, at any rate.
#[test]
fn a_tolerance_costs_no_rate() {
    let time = Duration::from_secs(1);
    for tolerance_us in [50, 1_000, 5_000] {
        for link in ["1gbit", "10gbit"] {
            for class in ["1mbit", "100mbit", "1gbit"] {
                for late in [0, 20 * US] {
                    let mut clock = ByteClock::new(rate(link), Instant::ORIGIN);
                    clock.set_tolerance(Duration::from_micros(tolerance_us));
                    let id = clock.add_class(ClassOptions {
                        most_packets: usize::MAX,
                        most_bytes: u64::MAX,
                        ..ClassOptions::of_rate(rate(class))
                    });
                    let mut caller = Caller::new(7, &[Late::Waits(late, late)]);
                    let outcome = serve(&mut clock, id, &[1500], time, &mut caller);
                    let share = outcome.share(rate(class), time);
                    let what = alloc::format!("{class} of {link}, {tolerance_us} us: {share}");
                    assert!(share > 0.994, "{what}");
                    let (_, bytes) = outcome.bottleneck(rate(class));
                    let gathered = rate(class).bytes_in(Duration::from_micros(tolerance_us));
                    assert!(bytes <= gathered + 8 * 1500, "{what}: {bytes} wait");
                }
            }
        }
    }
}

/// With the option, the class makes up for all lateness at the peak rate, and a bottleneck queues it.
#[test]
fn more_is_made_up_for_where_a_class_says_so() {
    let (class, time) = (rate("100mbit"), Duration::from_secs(4));
    let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
    let id = clock.add_class(ClassOptions {
        peak: Some(rate("150mbit")),
        most_behind: Some(Duration::from_millis(100)),
        ..ClassOptions::of_rate(class)
    });
    let mut caller = Caller::new(7, &[STOLEN]);
    let outcome = serve(&mut clock, id, &[1500], time, &mut caller);
    assert!(outcome.share(class, time) > 0.99);
    assert_eq!(outcome.forgotten, 0);
    let (_, bytes) = outcome.bottleneck(class);
    assert!(bytes > 8 * 1500 && bytes <= class.bytes_in(Duration::from_millis(100)));
}

/// With packets of all sizes, a bottleneck queues at most the bytes of eight of the longest.
#[test]
fn packets_of_all_lengths_are_bounded_by_the_longest() {
    let time = Duration::from_secs(2);
    let class = rate("100mbit");
    let sizes = [1500, 64, 64, 600, 1500, 90, 200];
    for late in [&[STOLEN][..], &[Late::Waits(10 * US, 100 * US)]] {
        let outcome = serve_late("1gbit", class, &sizes, time, late);
        let (_, bytes) = outcome.bottleneck(class);
        // The packet that is leaving counts as a whole.
        assert!(bytes <= 9 * 1500, "{late:?}: {bytes}");
    }
    let outcome = serve_late(
        "1gbit",
        class,
        &sizes,
        time,
        &[Late::Waits(10 * US, 100 * US)],
    );
    assert!(outcome.share(class, time) > 0.999);
}

/// An idle class causes no larger burst either.
#[test]
fn an_idle_class_catches_up_by_as_much() {
    let class = rate("100mbit");
    let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
    let id = clock.add_class(ClassOptions::of_rate(class));
    let mut sent = Vec::new();
    for second in 1..4 {
        let mut now = Instant::from_ns(second * 1_000_000_000);
        (0..50).for_each(|_| clock.enqueue(id, 1500, 1500, now).unwrap());
        loop {
            match clock.dequeue(now) {
                Dequeued::Send(_, bytes) => sent.push((now.as_ns(), bytes)),
                Dequeued::Wait(until) => now = until,
                Dequeued::Empty => break,
            }
        }
    }
    assert_eq!(
        clock.statistics(id).forgotten_bytes,
        0,
        "idleness is not lateness"
    );
    let outcome = Outcome { sent, forgotten: 0 };
    assert_eq!(outcome.bottleneck(class).0, 8);
}

#[test]
fn a_peak_below_the_rate_is_the_rate() {
    let (class, time) = (rate("100mbit"), Duration::from_secs(1));
    let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
    let id = clock.add_class(ClassOptions {
        peak: Some(rate("10mbit")),
        ..ClassOptions::of_rate(class)
    });
    let outcome = serve(&mut clock, id, &[1500], time, &mut Caller::new(7, &[]));
    assert!(outcome.share(class, time) > 0.999);
}

/// Extreme sizes are counted and cause no failure.
#[test]
fn no_size_overflows() {
    for class in ["1bit", "1gbit"] {
        let mut clock = ByteClock::new(rate("1gbit"), Instant::ORIGIN);
        let options = ClassOptions::of_rate(rate(class));
        let bounded = clock.add_class(options);
        let unbounded = clock.add_class(ClassOptions {
            most_bytes: u64::MAX,
            peak: Some(rate("1gbit")),
            ..options
        });
        let now = Instant::from_ns(1_000_000_000);
        clock.enqueue(bounded, 0, 1, now).unwrap();
        let refused = clock.enqueue(bounded, 1, u64::MAX, now);
        assert_eq!(refused, Err((1, DropReason::Bytes)));
        clock.enqueue(unbounded, 0, u64::MAX, now).unwrap();
        assert_eq!(
            clock.enqueue(unbounded, 1, 1, now),
            Err((1, DropReason::Bytes))
        );
        let mut now = now;
        for _ in 0..4 {
            match clock.dequeue(now) {
                Dequeued::Send(..) => {}
                Dequeued::Wait(until) => now = until,
                Dequeued::Empty => break,
            }
        }
        assert_eq!(clock.dequeue(Instant::FAR_FUTURE), Dequeued::Empty);
    }
}

/// Waits of callers that are late for all reasons at once.
fn any_late() -> impl Strategy<Value = Vec<Late>> {
    let waits =
        (0u64..100, 0u64..400).prop_map(|(from, more)| Late::Waits(from * US, (from + more) * US));
    let stolen =
        (1u64..60, 1u64..20_000, 0u64..20_000).prop_map(|(percent, from, more)| Late::Stolen {
            percent,
            from: from * US,
            to: (from + more) * US,
        });
    let away = (1u64..800, 1u64..900).prop_map(|(away, every)| Late::Away {
        for_ns: away * MS,
        every_ns: every * MS,
    });
    prop::collection::vec(prop_oneof![waits, stolen, away], 0..3)
}

/// A class that is idle between its packets loses no bytes to lateness, for any sizes and any packets of other
/// classes.
#[test]
fn idleness_is_not_lateness() {
    let mut clock = ByteClock::new(rate("1Gbit"), Instant::ORIGIN);
    let class = clock.add_class(ClassOptions::of_rate(rate("10Mbit")));
    let other = clock.add_class(ClassOptions::of_rate(rate("995Mbit")));
    for packet in 0..1000 {
        let now = Instant::from_ns((packet + 1) * 5 * MS);
        let bytes = if packet % 7 == 0 { 1518 } else { 84 };
        clock.enqueue(class, packet, bytes, now).unwrap();
        if packet % 3 == 0 {
            clock.enqueue(other, packet, 1518, now).unwrap();
        }
        let mut at = now;
        loop {
            match clock.dequeue(at) {
                Dequeued::Send(..) => {}
                Dequeued::Wait(until) => at = until,
                Dequeued::Empty => break,
            }
        }
    }
    assert_eq!(clock.statistics(class).forgotten_bytes, 0);
    assert_eq!(clock.statistics(other).forgotten_bytes, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Holds for any lateness of the caller, at gaps above 7.2 us. At shorter ones a ninth may wait: with waits of 50
    /// us, at 785 Mbit/s and 700 bytes.
    #[test]
    fn at_most_eight_wait(
        late in any_late(),
        mbit in 1u64..770,
        bytes in 700u64..1600,
    ) {
        let class = Rate::from_bps(mbit * 1_000_000).unwrap();
        let time = Duration::from_millis(2_000);
        let outcome = serve_late("10gbit", class, &[bytes], time, &late);
        assert_bounded(&outcome, class, bytes, "any");
        prop_assert!(outcome.share(class, time) < 1.0 + 8.0 * bytes as f64 / outcome.bytes() as f64);
    }

    /// With waits late by up to two gaps, and up to 7 within a millisecond, the class loses at most the lateness of
    /// one wait.
    #[test]
    fn lateness_by_about_a_gap_costs_nothing(
        late_percent in 0u64..200,
        mbit in 1u64..800,
        bytes in 700u64..1600,
    ) {
        let class = Rate::from_bps(mbit * 1_000_000).unwrap();
        let gap = crate::time::saturating_ns(class.time_of(bytes));
        let late = [Late::Waits(0, gap * late_percent / 100)];
        let outcome = serve_late("10gbit", class, &[bytes], Duration::from_secs(1), &late);
        let due = class.bytes_in(Duration::from_secs(1));
        prop_assert!(outcome.bytes() + 4 * bytes > due, "{} of {}", outcome.bytes(), due);
        prop_assert_eq!(outcome.forgotten, 0);
    }

    /// Classes whose rates fit into the link keep their rates beside each other when all have packets.
    #[test]
    fn classes_within_the_link_keep_their_rates(
        parts in prop::collection::vec((1u64..100, 60u64..1600), 1..20),
        over in 0u64..20,
    ) {
        let sum: u64 = parts.iter().map(|&(part, _)| part).sum::<u64>() + over;
        let link = rate("1gbit");
        let time = Duration::from_millis(500);
        let mut clock = ByteClock::new(link, Instant::ORIGIN);
        let rates: Vec<_> = parts.iter().map(|&(part, _)| Rate::from_bps(link.bps() * part / sum).unwrap()).collect();
        let classes: Vec<_> = rates.iter().map(|&rate| clock.add_class(ClassOptions::of_rate(rate))).collect();
        let mut sent = alloc::vec![0; classes.len()];
        let mut now = Instant::ORIGIN;
        while now < Instant::ORIGIN + time {
            for (&class, &(_, bytes)) in classes.iter().zip(&parts) {
                while clock.enqueue(class, bytes, bytes, now).is_ok() {}
            }
            for _ in 0..100 {
                match clock.dequeue(now) {
                    Dequeued::Send(class, bytes) => sent[class.index()] += bytes,
                    Dequeued::Wait(until) => now = until,
                    Dequeued::Empty => unreachable!("all have packets"),
                }
            }
        }
        for ((&rate, &class), &sent) in rates.iter().zip(&classes).zip(&sent) {
            let due = rate.bytes_in(now.since(Instant::ORIGIN));
            prop_assert!(sent + 2 * 1600 > due, "{} of {} at {}", sent, due, rate);
            prop_assert_eq!(clock.statistics(class).forgotten_bytes, 0);
        }
    }
}
