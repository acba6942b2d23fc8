//! The thread looks once a period, and has no interrupts (*Clocked Interrupts*, 1.2 and 3).
//!
//! The times are multiples of the period from the start, as those of the paper's hardware clock are, so that neither
//! lateness nor an early look shifts them. Periods that have passed without a look are skipped. An idle thread wakes up
//! each period. A packet waits for at most a period, half of it on average.

use super::Next;
use super::load::Load;
use super::policy::Period;
use super::rule::{Looked, Rule};
use crate::Instant;

#[derive(Clone, Debug)]
pub(super) struct Clocked {
    period_ns: u64,
    /// The next time of the clock.
    tick: Instant,
}

impl Clocked {
    pub(super) const fn new(period: Period, now: Instant) -> Self {
        Self {
            period_ns: period.as_ns(),
            tick: now,
        }
    }

    const fn next(&self) -> Next {
        Next::masked_until(self.tick)
    }
}

impl Rule for Clocked {
    fn on_interrupt(&mut self, now: Instant) -> Next {
        Next::masked_until(now)
    }

    fn on_look(&mut self, looked: &Looked, _load: &Load) -> Next {
        if self.tick <= looked.now {
            let passed = looked.now.ns_since(self.tick) / self.period_ns + 1;
            self.tick = self.tick.add_ns(passed.saturating_mul(self.period_ns));
        }
        self.next()
    }

    fn before_wait(&mut self, _now: Instant, _wakes_at: Option<Instant>, _load: &Load) -> Next {
        self.next()
    }

    fn after_wait(&mut self, _now: Instant) -> Next {
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use crate::Instant;
    use crate::signalling::{Interrupts, Look, Next, Period, Policy, Signalling};

    const fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    fn clocked(period_us: u64) -> Signalling {
        let period = Period::new(Duration::from_micros(period_us)).unwrap();
        Signalling::new(Policy::Clocked(period), at(1_000))
    }

    #[test]
    fn looks_are_at_multiples_of_the_period_and_missed_ones_are_skipped() {
        let mut queue = clocked(250);
        assert!(queue.is_due(at(1_000)));
        let look = |queue: &mut Signalling, us| queue.on_look(at(us), Look::EMPTY).look;
        assert_eq!(look(&mut queue, 1_001), Some(at(1_250)));
        assert_eq!(look(&mut queue, 1_100), Some(at(1_250)), "an early look");
        assert_eq!(look(&mut queue, 1_290), Some(at(1_500)), "a late look");
        assert_eq!(look(&mut queue, 2_010), Some(at(2_250)), "missed periods");
        assert_eq!(look(&mut queue, 2_250), Some(at(2_500)), "on time");
    }

    #[test]
    fn a_look_that_leaves_packets_is_followed_at_once_and_the_clock_goes_on() {
        let mut queue = clocked(250);
        let some = |has_more| Look {
            packets: 32,
            completions: 0,
            has_more,
        };
        let next = queue.on_look(at(1_000), some(true));
        assert_eq!(next.look, Some(at(1_000)));
        assert_eq!(queue.on_look(at(1_010), some(false)).look, Some(at(1_250)));
    }

    #[test]
    fn a_waiting_thread_has_no_interrupts_and_wakes_up_for_the_clock() {
        let mut queue = clocked(250);
        let _ = queue.on_look(at(1_000), Look::EMPTY);
        let expected = Next {
            interrupts: Interrupts::Masked,
            look: Some(at(1_250)),
        };
        assert_eq!(queue.before_wait(at(1_020), None), expected);
        assert_eq!(queue.after_wait(at(1_260)), expected);
        assert!(queue.is_due(at(1_260)));
        let counts = queue.counts(at(1_260));
        assert_eq!((counts.waits, counts.masked_waits), (1, 1));
        assert_eq!((counts.waited_ns, counts.masked_ns), (240_000, 260_000));
    }
}
