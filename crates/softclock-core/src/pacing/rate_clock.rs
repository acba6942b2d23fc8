//! Rate-based clocking of one train of transmissions (*Soft Timers*, sections 4.1 and 5.6).

use core::time::Duration;

use crate::Instant;

/// Computes when to send the next transmission of a train.
///
/// One transmission is scheduled at a time, normally one target interval after the preceding one. A soft timer sends
/// it somewhat late. To keep the average rate since the train began, the next transmission is then scheduled earlier,
/// but at least the minimum interval after the last one, which is the maximal allowable burst rate
/// ([`on_limited_bytes`](Self::on_limited_bytes) allows for lateness there, too). Transmissions are thus never ahead of
/// the target rate. A train ends when the source has no data to send ([`end`](Self::end)); unused time of the source is
/// not made up.
///
/// A train that is behind by more than [`set_most_behind`](Self::set_most_behind) allows forgets the excess
/// ([`forgotten`](Self::forgotten)): a process that was stopped for seconds does not catch up for them.
///
/// A thread that shares its processor with computing processes may run only once every few milliseconds. If it sent
/// one transmission each time, it would never catch up. Several transmissions may therefore be sent together
/// ([`due`](Self::due)): as many as are due and as the burst rate allows since the last one, limited to 5 ms. Those
/// for which the sender had no data at that moment may follow without an interval.
///
/// Intervals are those of a full transmission. For a transmission of another size they are scaled
/// ([`on_transmit_bytes`](Self::on_transmit_bytes)), and the full size may change within a train
/// ([`set_intervals`](Self::set_intervals)).
///
/// [`next_send`](Self::next_send) and [`on_transmit`](Self::on_transmit) take a few additions; other methods also
/// divide. Times are in whole nanoseconds.
///
/// # Example
/// ```
/// use softclock_core::Instant;
/// use softclock_core::pacing::RateClock;
/// use std::time::Duration;
///
/// let at = |us: u64| Instant::from_ns(us * 1_000);
/// // Every 100 us; every 50 us while catching up.
/// let mut clock = RateClock::new(Duration::from_micros(100), Duration::from_micros(50));
/// assert_eq!(clock.next_send(at(0)), at(0));
/// clock.on_transmit(at(0));
/// assert_eq!(clock.next_send(at(0)), at(100));
/// // Sent 60 us late: the next follows at the burst rate, at 210 us instead of 260 us.
/// clock.on_transmit(at(160));
/// assert_eq!(clock.next_send(at(160)), at(210));
/// ```
#[derive(Clone, Debug)]
pub struct RateClock {
    target_ns: u64,
    minimum_ns: u64,
    most_behind_ns: u64,
    forgotten_ns: u64,
    train: Option<Train>,
}

#[derive(Clone, Debug)]
struct Train {
    /// Whether the source ran out of data: the next transmission begins another train.
    ended: bool,
    /// Time at which the next transmission would be sent if none had been late.
    on_schedule: Instant,
    last: Instant,
    /// Time from which the burst rate counts: the last transmission, or earlier if more could have been sent with it.
    burst_from: Instant,
    /// Time that the last transmission takes at the target rate, without the part that was overdue.
    last_ns: u64,
    /// Time that this takes at the burst rate.
    last_minimum_ns: u64,
}

impl RateClock {
    /// Creates a clock for one transmission per `target`, and at most one per `minimum` when catching up. A minimum
    /// above the target is reduced to the target.
    pub fn new(target: Duration, minimum: Duration) -> Self {
        let target_ns = crate::time::saturating_ns(target).max(1);
        Self {
            target_ns,
            minimum_ns: crate::time::saturating_ns(minimum).min(target_ns),
            most_behind_ns: crate::time::saturating_ns(MOST_BEHIND),
            forgotten_ns: 0,
            train: None,
        }
    }

    /// Returns whether a train is in progress.
    pub fn is_in_train(&self) -> bool {
        self.train.as_ref().is_some_and(|train| !train.ended)
    }

    /// Returns the target interval.
    pub fn target(&self) -> Duration {
        Duration::from_nanos(self.target_ns)
    }

    /// Sets how far a train may fall behind its schedule and still catch up, at least one target interval. The
    /// default is [`MOST_BEHIND`].
    pub fn set_most_behind(&mut self, most: Duration) {
        self.most_behind_ns = crate::time::saturating_ns(most);
    }

    /// Returns the time by which trains were behind beyond the limit, and which they did not make up.
    pub const fn forgotten(&self) -> Duration {
        Duration::from_nanos(self.forgotten_ns)
    }

    /// Changes the intervals for transmissions of another size, at the same target rate, or for another burst rate.
    /// The present train keeps its schedule.
    pub fn set_intervals(&mut self, target: Duration, minimum: Duration) {
        self.change_intervals(target, minimum);
        if let Some(train) = &mut self.train {
            train.last_minimum_ns = scaled(self.minimum_ns, train.last_ns, self.target_ns);
        }
    }

    /// Changes the rates for transmissions of the same size. The present train continues from its last transmission,
    /// rescaled to the new rates, and is no longer behind.
    pub fn set_rates(&mut self, target: Duration, minimum: Duration) {
        let before = self.target_ns;
        self.change_intervals(target, minimum);
        if let Some(train) = &mut self.train {
            // The last transmission keeps its size, so its time scales with the target interval.
            let share = train.last_ns;
            train.last_ns = scaled(self.target_ns, share, before);
            train.last_minimum_ns = scaled(self.minimum_ns, share, before);
            train.on_schedule = train.last.add_ns(train.last_ns);
            train.burst_from = train.last;
        }
    }

    fn change_intervals(&mut self, target: Duration, minimum: Duration) {
        let new = Self::new(target, minimum);
        (self.target_ns, self.minimum_ns) = (new.target_ns, new.minimum_ns);
    }

    /// Returns the time for which to schedule the next transmission: `now` if it begins a train.
    pub fn next_send(&self, now: Instant) -> Instant {
        match &self.train {
            None => now,
            Some(train) if train.ended => now
                .max(train.on_schedule)
                .max(train.last.add_ns(train.last_ns)),
            Some(train) => train
                .on_schedule
                .max(train.burst_from.add_ns(train.last_minimum_ns)),
        }
    }

    /// Returns the number of transmissions that may be sent together once [`next_send`](Self::next_send) has come:
    /// one, or if the train is behind, as many as are due, limited by the burst rate since the last one and by 5 ms.
    pub fn due(&self, now: Instant) -> u64 {
        let Some(train) = self.train.as_ref().filter(|train| !train.ended) else {
            return 1;
        };
        let on_schedule = self.schedule(train, now);
        // As many as the schedule has time for, and as the burst rate allows since the last transmission.
        let more = now.ns_since(on_schedule) / self.target_ns;
        let since = now.ns_since(train.burst_from.add_ns(train.last_minimum_ns));
        let allowed = since.min(TOGETHER_NS).checked_div(self.minimum_ns);
        1 + allowed.map_or(more, |allowed| more.min(allowed))
    }

    /// Records a transmission at `now`.
    pub fn on_transmit(&mut self, now: Instant) {
        self.transmit(now, 1, 1);
    }

    /// Records that `bytes` were sent, where a full transmission has `full` bytes. After fewer bytes, the next is due
    /// proportionally sooner. More are allowed up to [`due`](Self::due); transmissions that it allowed beyond them
    /// may follow at once. After more bytes than that, such as a message that cannot be cut, the next is due
    /// proportionally later, also that of the next train.
    pub fn on_transmit_bytes(&mut self, now: Instant, bytes: u64, full: u64) {
        let left = self.due(now).saturating_sub(bytes.div_ceil(full));
        self.transmit(now, bytes, full);
        if let Some(train) = &mut self.train {
            let left_ns = left.saturating_mul(self.minimum_ns);
            train.burst_from = now.sub_ns(left_ns);
        }
    }

    /// Like [`on_transmit_bytes`](Self::on_transmit_bytes), for a sender that limits the transmissions sent together:
    /// none of those that were due beyond them follows at once. They are sent one by one, at the burst rate on average.
    ///
    /// If all that were due are sent, the burst rate counts from when the last of them was allowed, but from no more
    /// than half of the transmission's minimum interval ago: the next one follows after the other half at least. So a
    /// timer that is late each time by less than that does not lower the average rate, however close the burst rate is
    /// to the target.
    ///
    /// # Example
    /// ```
    /// use softclock_core::Instant;
    /// use softclock_core::pacing::RateClock;
    /// use std::time::Duration;
    ///
    /// let at = |us: u64| Instant::from_ns(us * 1_000);
    /// let mut clock = RateClock::new(Duration::from_micros(100), Duration::from_micros(80));
    /// clock.on_transmit(at(0));
    /// // 900 us late. The sender sends two of ten.
    /// assert_eq!(clock.due(at(1000)), 10);
    /// clock.on_limited_bytes(at(1000), 2 * 1500, 1500);
    /// assert_eq!(clock.next_send(at(1000)), at(1080));
    /// assert_eq!(clock.due(at(1080)), 1);
    /// ```
    pub fn on_limited_bytes(&mut self, now: Instant, bytes: u64, full: u64) {
        let due = self.due(now);
        let late_ns = match bytes.div_ceil(full) >= due {
            true => self.late_ns(now, due),
            false => 0,
        };
        self.transmit(now, bytes, full);
        if let Some(train) = &mut self.train {
            train.burst_from = now.sub_ns(late_ns.min(train.last_minimum_ns / 2));
        }
    }

    /// Returns the time since the burst rate has allowed the last of the `due` transmissions.
    fn late_ns(&self, now: Instant, due: u64) -> u64 {
        let Some(train) = self.train.as_ref().filter(|train| !train.ended) else {
            return 0;
        };
        let since = now.ns_since(train.burst_from.add_ns(train.last_minimum_ns));
        let more = (due - 1).saturating_mul(self.minimum_ns);
        // Nothing before the schedule allowed it.
        let scheduled = now.ns_since(self.schedule(train, now));
        since.saturating_sub(more).min(scheduled)
    }

    fn transmit(&mut self, now: Instant, bytes: u64, full: u64) {
        let part = |ns: u64| match bytes == full {
            true => ns,
            false => scaled(ns, bytes, full),
        };
        // Transmissions sent together delay the next one only like a single one, since they were due before.
        let overdue = match bytes > full {
            true => (self.due(now) - 1).saturating_mul(full),
            false => 0,
        };
        let last = bytes.saturating_sub(overdue).max(bytes.min(full));
        let of_last = |ns: u64| match last == full {
            true => ns,
            false => scaled(ns, last, full),
        };
        // The schedule counts from when the transmission was due, so that lateness does not lower the rate.
        let due = match &self.train {
            Some(train) if !train.ended => {
                let due = self.schedule(train, now);
                self.forgotten_ns += due.ns_since(train.on_schedule);
                due
            }
            _ => now,
        };
        self.train = Some(Train {
            ended: false,
            on_schedule: due.add_ns(part(self.target_ns)),
            last: now,
            burst_from: now,
            last_ns: of_last(self.target_ns),
            last_minimum_ns: of_last(self.minimum_ns),
        });
    }

    /// Returns how far the train is behind its schedule, as far as it will catch up.
    pub fn behind(&self, now: Instant) -> Duration {
        let train = self.train.as_ref().filter(|train| !train.ended);
        train.map_or(Duration::ZERO, |train| now.since(self.schedule(train, now)))
    }

    /// Returns when the next transmission would be sent if none of the recent ones had been late.
    fn schedule(&self, train: &Train, now: Instant) -> Instant {
        let most = self.most_behind_ns.max(self.target_ns);
        train.on_schedule.max(now.sub_ns(most))
    }

    /// Ends the train, since the source has no data. The next transmission begins a new one, but not before the last
    /// one's time at the target rate has passed.
    pub fn end(&mut self) {
        if let Some(train) = &mut self.train {
            train.ended = true;
        }
    }
}

/// Default limit of how far a train may fall behind and still catch up: longer than a process that shares a processor
/// with some others waits for its turn (slices are 3 to 30 ms), and short compared with a stop that a user would
/// notice.
pub const MOST_BEHIND: Duration = Duration::from_millis(50);

/// Limit of transmissions sent together. A thread that shares a processor runs again after about one slice of the
/// others, 3 to 4 ms; at twice the rate, 5 ms make up for 10 between two turns. More would exceed the burst rate.
const TOGETHER_NS: u64 = 5_000_000;

/// Returns `ns * part / whole`.
fn scaled(ns: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(ns) * u128::from(part) / u128::from(whole);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// A distribution of the intervals between trigger states, for simulations: bounds in microseconds between which
/// values are uniform, and their frequency per 10 000. Mean 31.5, median 18, deviation 32, 5.3 % above 100, maximum
/// 476: ST-Apache in Table IV.
#[cfg(any(test, feature = "experiments"))]
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
}
