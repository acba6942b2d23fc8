//! Estimates the best size of pieces for the paced sockets of a runtime, from the frequency of its trigger states and
//! its idle time.

use std::cell::{Cell, RefCell};
use std::mem;
use std::time::Duration;

use softclock_core::{Histogram, Instant};

use super::LONGEST_PIECE;
use super::buffer::SpareBuffers;
use crate::net::common::Common;
use crate::runtime::inner::Inner;

/// The time that a piece should cover, for all paced sockets of a runtime, and memory for their buffers.
#[derive(Default)]
pub(crate) struct Estimator {
    pub(super) spare: SpareBuffers,
    /// Number of streams that wait for an event.
    waiting: Cell<u32>,
    interval: Cell<Duration>,
    grain: Cell<Duration>,
    next_look: Cell<Option<Instant>>,
    looks: Cell<u32>,
    last_look: RefCell<LastLook>,
}

/// The values found by the last look, to compare with.
#[derive(Default)]
struct LastLook {
    at: Option<Instant>,
    /// All intervals between trigger states until then.
    intervals: Option<Box<Histogram>>,
    /// Total idle time of the thread until then.
    idle: Duration,
    grain: Duration,
}

impl Estimator {
    /// Returns the estimator of `runtime`.
    #[inline]
    pub(super) fn of(runtime: &Inner) -> &Self {
        &Common::of(runtime).estimator
    }

    pub(crate) fn on_wait(&self) {
        self.waiting.set(self.waiting.get() + 1);
    }

    pub(crate) fn on_waited(&self) {
        self.waiting.set(self.waiting.get() - 1);
    }

    /// Returns the time between two turns of a stream if each trigger state served one stream: the recent median time
    /// between trigger states, times the number of waiting streams. It is updated at most ten times a second, as this
    /// takes tens of microseconds; in between, the call costs a comparison.
    pub(crate) fn trigger_interval(&self, runtime: &Inner, now: Instant) -> Duration {
        self.look_if_due(runtime, now);
        self.interval.get()
    }

    /// Returns the time that a piece should cover: [`trigger_interval`](Self::trigger_interval), or more if the
    /// thread is hardly ever idle.
    pub(crate) fn turn(&self, runtime: &Inner, now: Instant) -> Duration {
        self.look_if_due(runtime, now);
        self.interval.get().max(self.grain.get())
    }

    fn look_if_due(&self, runtime: &Inner, now: Instant) {
        if self.next_look.get().is_none_or(|next| next <= now) {
            self.next_look.set(Some(now + LOOK_EVERY));
            let looks = self.looks.replace(self.looks.get().wrapping_add(1));
            let intervals = || runtime.timers.borrow_mut().triggers().intervals();
            let all = looks.is_multiple_of(INTERVALS_EVERY).then(intervals);
            self.look(now, all, runtime.idle_time());
        }
    }

    fn look(&self, now: Instant, all: Option<Histogram>, idle: Duration) {
        let last = &mut *self.last_look.borrow_mut();
        // With too few intervals, keep the last median.
        if let Some(median) = all.and_then(|all| last.median_until(all)) {
            self.interval.set(median * self.waiting.get().max(1));
        }
        self.grain.set(last.grain_until(now, idle));
    }
}

impl LastLook {
    /// Returns the median interval between trigger states since the last call, or `None` if they are too few.
    fn median_until(&mut self, all: Histogram) -> Option<Duration> {
        let recent = match &self.intervals {
            Some(before) => all.since(before),
            None => all.clone(),
        };
        (recent.count() >= FEW).then(|| {
            self.intervals = Some(Box::new(all));
            Duration::from_nanos(recent.quantile_ns(0.5))
        })
    }

    /// Updates the time that a piece covers at least. Small pieces take processor time: pieces grow look by look
    /// while the thread has none to spare, and shrink while it has.
    fn grain_until(&mut self, now: Instant, idle: Duration) -> Duration {
        let idle_since = idle.saturating_sub(mem::replace(&mut self.idle, idle));
        let elapsed = self.at.replace(now).map(|before| now.since(before));
        match elapsed {
            Some(elapsed) if idle_since < elapsed / BUSY => {
                self.grain = (self.grain * 2).clamp(LEAST_GRAIN, LONGEST_PIECE);
            }
            Some(elapsed) if idle_since > elapsed / IDLE => self.grain /= 2,
            _ => {}
        }
        self.grain
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The intervals between trigger states are large histograms, so only every fifth look reads them.
const INTERVALS_EVERY: u32 = 5;

/// Fewest intervals with a meaningful median.
const FEW: u64 = 100;

/// A thread is busy if it was idle for less than this part of the time.
const BUSY: u32 = 16;

/// A thread has time to spare if it was idle for more than this part of the time.
const IDLE: u32 = 4;

/// Time of one segment at a gigabit per second; smaller values have no effect.
const LEAST_GRAIN: Duration = Duration::from_micros(12);

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks like [`Estimator::look`], a second after the last look, of which the thread was idle for `idle`.
    fn look(estimator: &Estimator, all: &Histogram, idle: Duration) {
        let last = estimator.last_look.borrow();
        let now = last.at.unwrap_or(Instant::ORIGIN) + Duration::from_secs(1);
        let idle = last.idle + idle;
        drop(last);
        estimator.look(now, Some(all.clone()), idle);
    }

    #[test]
    fn the_interval_is_that_of_late() {
        let estimator = Estimator::default();
        let interval_after = |all: &Histogram| {
            look(&estimator, all, Duration::ZERO);
            estimator.interval.get()
        };
        let mut all = Histogram::new();
        (0..FEW - 1).for_each(|_| all.record(1_000));
        assert_eq!(interval_after(&all), Duration::ZERO, "too few");
        all.record(1_000);
        let early = interval_after(&all);
        (0..FEW).for_each(|_| all.record(50_000));
        let late = interval_after(&all);
        assert!(late > early * 10);
        (0..3).for_each(|_| estimator.on_wait());
        estimator.on_waited();
        (0..2 * FEW).for_each(|_| all.record(50_000));
        assert_eq!(interval_after(&all), 2 * late);
    }

    #[test]
    fn without_time_to_spare_pieces_grow_to_a_millisecond() {
        let estimator = Estimator::default();
        let grain_after = |idle_ms| {
            look(
                &estimator,
                &Histogram::new(),
                Duration::from_millis(idle_ms),
            );
            estimator.grain.get()
        };
        assert_eq!(grain_after(0), Duration::ZERO, "nothing known yet");
        assert_eq!(
            [0, 0, 100].map(grain_after),
            [1, 2, 2].map(|n| LEAST_GRAIN * n)
        );
        (0..10).for_each(|_| assert!(grain_after(0) <= LONGEST_PIECE));
        assert_eq!(
            [0, 300].map(grain_after),
            [LONGEST_PIECE, LONGEST_PIECE / 2]
        );
        (0..10).for_each(|_| assert!(grain_after(300) < LONGEST_PIECE));
        assert!(grain_after(300) < Duration::from_micros(1));
    }
}
