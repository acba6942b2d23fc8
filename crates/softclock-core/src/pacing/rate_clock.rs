//! Rate-based clocking of one train of transmissions (*Soft Timers*, sections 4.1 and 5.6).

use core::time::Duration;

use crate::Instant;

/// When the next of a train of transmissions is to be sent.
///
/// One transmission is scheduled at a time. Normally it is due an interval after the one before; a soft timer sends it
/// some time later. So that the average since the train began comes out right, the next is then scheduled earlier, but
/// never less than the minimum interval after the last (the maximal allowable burst rate). Transmissions are so never
/// ahead of the target rate. A train ends when the source has nothing to send ([`end`](Self::end)): what a
/// source leaves unused is not made up.
///
/// The intervals are those of a whole transmission. One of which only a part was used takes as much less
/// ([`on_transmit_part`](Self::on_transmit_part)), and their size may change in mid-train
/// ([`set_intervals`](Self::set_intervals)).
///
/// All operations are a few additions, but for parts and changes, which divide; times are whole nanoseconds.
#[derive(Clone, Debug)]
pub struct RateClock {
    target_ns: u64,
    minimum_ns: u64,
    train: Option<Train>,
}

#[derive(Clone, Debug)]
struct Train {
    /// The source ran dry: the next transmission begins another.
    ended: bool,
    /// When the next transmission would be sent if none had ever been late.
    on_schedule: Instant,
    last: Instant,
    /// What the last transmission takes at the target rate.
    last_ns: u64,
    /// The same at the burst rate.
    last_minimum_ns: u64,
}

impl RateClock {
    /// One transmission each `target`, and when catching up each `minimum` at most; a minimum above the target is the
    /// target.
    pub fn new(target: Duration, minimum: Duration) -> Self {
        let target_ns = crate::time::saturating_ns(target).max(1);
        Self {
            target_ns,
            minimum_ns: crate::time::saturating_ns(minimum).min(target_ns),
            train: None,
        }
    }

    /// Whether a train is in progress.
    pub fn is_in_train(&self) -> bool {
        self.train.as_ref().is_some_and(|train| !train.ended)
    }

    /// The target interval.
    pub fn target(&self) -> Duration {
        Duration::from_nanos(self.target_ns)
    }

    /// Changes the intervals at the same target rate, for transmissions of another size or another burst rate. The present
    /// train keeps its schedule: what was sent took what its own size takes.
    pub fn set_intervals(&mut self, target: Duration, minimum: Duration) {
        self.change_intervals(target, minimum);
        if let Some(train) = &mut self.train {
            train.last_minimum_ns = scaled(self.minimum_ns, train.last_ns, self.target_ns);
        }
    }

    /// Changes the rates of transmissions of the same size. The present train goes on from its last transmission, which
    /// takes what it would at the new rates; how far the train was behind is forgotten.
    pub fn set_rates(&mut self, target: Duration, minimum: Duration) {
        let before = self.target_ns;
        self.change_intervals(target, minimum);
        if let Some(train) = &mut self.train {
            let share = train.last_ns;
            train.last_ns = scaled(self.target_ns, share, before);
            train.last_minimum_ns = scaled(self.minimum_ns, share, before);
            train.on_schedule = train.last.add_ns(train.last_ns);
        }
    }

    fn change_intervals(&mut self, target: Duration, minimum: Duration) {
        let train = self.train.take();
        *self = Self {
            train,
            ..Self::new(target, minimum)
        };
    }

    /// When the next transmission is to be scheduled: `now` if it begins a train.
    pub fn next_send(&self, now: Instant) -> Instant {
        match &self.train {
            None => now,
            Some(train) if train.ended => now.max(train.last.add_ns(train.last_ns)),
            Some(train) => train
                .on_schedule
                .max(train.last.add_ns(train.last_minimum_ns)),
        }
    }

    /// A transmission was sent.
    pub fn on_transmit(&mut self, now: Instant) {
        let due = match &self.train {
            Some(train) if !train.ended => train.on_schedule,
            _ => now,
        };
        self.train = Some(Train {
            ended: false,
            on_schedule: due.add_ns(self.target_ns),
            last: now,
            last_ns: self.target_ns,
            last_minimum_ns: self.minimum_ns,
        });
    }

    /// A transmission was sent of which only the part `bytes` of `full` bytes was used: the next is due as much sooner.
    pub fn on_transmit_part(&mut self, now: Instant, bytes: u64, full: u64) {
        self.on_transmit(now);
        if let Some(train) = &mut self.train
            && bytes < full
        {
            let unused = scaled(self.target_ns, full - bytes, full);
            train.on_schedule = train.on_schedule.sub_ns(unused);
            train.last_ns -= unused;
            train.last_minimum_ns -= scaled(self.minimum_ns, full - bytes, full);
        }
    }

    /// How far the train is behind its schedule.
    pub fn behind(&self, now: Instant) -> Duration {
        let train = self.train.as_ref().filter(|train| !train.ended);
        let schedule = train.map(|train| train.on_schedule);
        schedule.map_or(Duration::ZERO, |schedule| now.since(schedule))
    }

    /// The source has run dry. The next transmission begins a train, but not before the time has passed that the last
    /// takes at the target rate.
    pub fn end(&mut self) {
        if let Some(train) = &mut self.train {
            train.ended = true;
        }
    }
}

/// `ns * part / whole`.
fn scaled(ns: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(ns) * u128::from(part) / u128::from(whole);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// A distribution of the intervals between trigger states, for simulations: lower and upper bound in microseconds of what
/// is uniform in between, and how many of 10 000. Mean 31.5, median 18, deviation 32, 5.3 % above 100, maximum 476:
/// ST-Apache in Table IV.
pub const ST_APACHE_US: [(f64, f64, u32); 7] = [
    (2.0, 11.0, 2720),
    (11.0, 18.0, 2280),
    (18.0, 32.0, 2040),
    (32.0, 60.0, 1350),
    (60.0, 100.0, 1080),
    (100.0, 140.0, 526),
    (140.0, 476.0, 4),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// xorshift64*: the same trigger states everywhere.
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
        // Newton's method: there is no square root without an operating system's library.
        let mut root = variance.max(1.0);
        for _ in 0..60 {
            root = (root + variance / root) / 2.0;
        }
        (mean, root)
    }

    /// The intervals of a train whose transmissions fire at the first trigger state after they are due.
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
        let viii = [
            (12, 40.0, 34.5),
            (15, 48.0, 31.6),
            (20, 51.9, 30.9),
            (25, 57.5, 30.9),
            (30, 61.0, 30.5),
            (35, 65.9, 30.1),
        ];
        let ix = [
            (12, 60.0, 35.9),
            (15, 60.0, 33.2),
            (20, 60.0, 32.3),
            (25, 60.0, 31.2),
            (30, 61.0, 30.5),
            (35, 65.9, 30.0),
        ];
        for (target, table) in [(40, viii), (60, ix)] {
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

    /// Pieces change their size every few of them, as where a thread is busy now and then. At each, all is sent that the
    /// rate had time for before it, but for what trigger states were late by, and no more.
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
        clock.on_transmit_part(us(1000), 500, 1000);
        clock.set_rates(micros(40), micros(40));
        assert_eq!(clock.next_send(us(1001)), us(1020), "half of one was sent");
        clock.end();
        clock.set_rates(micros(4), micros(4));
        assert_eq!(clock.next_send(us(1001)), us(1002), "of the next train too");
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
    fn a_smaller_transmission_brings_the_next_forward() {
        let us = |us: u64| Instant::from_ns(us * 1000);
        let mut clock = RateClock::new(Duration::from_micros(40), Duration::from_micros(4));
        clock.on_transmit_part(us(0), 500, 1000);
        assert_eq!(clock.next_send(us(1)), us(20));
        clock.end();
        assert_eq!(clock.next_send(us(1)), us(20), "of the next train too");
    }
}
