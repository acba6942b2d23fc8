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
    /// Whether the rates have changed since the last transmission.
    is_rescaled: bool,
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
    /// rescaled to the new rates, and is no longer behind: the next transmission makes up for at most half of the minimum
    /// interval, so that a late timer costs no rate.
    pub fn set_rates(&mut self, target: Duration, minimum: Duration) {
        let before = self.target_ns;
        self.change_intervals(target, minimum);
        if let Some(train) = &mut self.train {
            // The last transmission keeps its size, so its time scales with the target interval. It may have been
            // recorded in parts.
            let share = train.last_ns;
            let whole = share.max(train.on_schedule.ns_since(train.last));
            train.last_ns = scaled(self.target_ns, share, before);
            train.last_minimum_ns = scaled(self.minimum_ns, share, before);
            train.on_schedule = train.last.add_ns(scaled(self.target_ns, whole, before));
            train.burst_from = train.last;
            train.is_rescaled = true;
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

    /// Records a transmission at `now`. Call it once for each of those that are sent together, with the same time.
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
                if !train.is_rescaled {
                    self.forgotten_ns += due.ns_since(train.on_schedule);
                }
                due
            }
            _ => now,
        };
        self.train = Some(Train {
            ended: false,
            is_rescaled: false,
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
        let most = match train.is_rescaled {
            // The wait at the former rate may have been longer, and is not lateness. Without this part, a timer that is
            // a little late would lower the rate with each change.
            true => self.minimum_ns / 2,
            false => self.most_behind_ns.max(self.target_ns),
        };
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

/// A minimum interval, and the mean and the deviation of the resulting intervals.
#[cfg(any(test, feature = "experiments"))]
type TrainLine = (u64, f64, f64);

/// Trains of transmissions in a busy server by target interval, in microseconds: Tables VIII and IX.
#[cfg(any(test, feature = "experiments"))]
pub const TRAINS_US: [(u64, [TrainLine; 6]); 2] = [
    (
        40,
        [
            (12, 40.0, 34.5),
            (15, 48.0, 31.6),
            (20, 51.9, 30.9),
            (25, 57.5, 30.9),
            (30, 61.0, 30.5),
            (35, 65.9, 30.1),
        ],
    ),
    (
        60,
        [
            (12, 60.0, 35.9),
            (15, 60.0, 33.2),
            (20, 60.0, 32.3),
            (25, 60.0, 31.2),
            (30, 61.0, 30.5),
            (35, 65.9, 30.0),
        ],
    ),
];

#[cfg(test)]
mod tests;
