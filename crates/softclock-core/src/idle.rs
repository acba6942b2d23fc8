//! The idle rule: whether an idle thread halts, blocks or spins (*Soft Timers*, section 5.1).
//!
//! The paper's idle loop checks for events, and halts when none is due before the next interrupt. A process cannot
//! halt for microseconds: a blocking wait returns some tens of microseconds late. This rule therefore blocks until
//! shortly before the next event, by a margin learnt from the lateness of earlier waits, and spins for the rest, up
//! to a configured share of the processor's time.

use core::time::Duration;

use crate::Instant;

/// The next step of an idle thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleStep {
    /// Block until something arrives: no event is pending.
    Halt,
    /// Block, but no longer than this.
    Block(Duration),
    /// Check again at once: the next event is closer than a blocking wait is accurate.
    Spin,
}

/// Chooses the next step of an idle thread from the lateness of its waits and the time that it may spin.
///
/// # Example
/// ```
/// use softclock_core::{IdleRule, IdleStep, Instant};
/// use std::time::Duration;
///
/// // A share of 0: never spin.
/// let mut rule = IdleRule::new(0.0);
/// let now = Instant::ORIGIN;
/// assert_eq!(rule.next_step(now, None), IdleStep::Halt);
/// let wait = Duration::from_millis(1);
/// assert_eq!(rule.next_step(now, Some(now + wait)), IdleStep::Block(wait));
/// ```
#[derive(Clone, Debug)]
pub struct IdleRule {
    /// Time before an event at which a blocking wait should return.
    margin_ns: u64,
    /// Share of the time that the thread may spend spinning, 0 to 1.
    cap: f64,
    /// Time that the thread may still spin, as of `credited`.
    credit_ns: u64,
    credited: Option<Instant>,
    spinning_since: Option<Instant>,
    spun_ns: u64,
}

impl IdleRule {
    /// Creates a rule that spins for at most the share `cap` (0 to 1) of the time. 0 never spins.
    pub fn new(cap: f64) -> Self {
        Self {
            margin_ns: START_MARGIN_NS,
            cap: share(cap),
            credit_ns: 0,
            credited: None,
            spinning_since: None,
            spun_ns: 0,
        }
    }

    /// Changes the share of the time for which the rule spins at most; it counts from the last
    /// [`settle`](Self::settle) on.
    pub fn set_cap(&mut self, cap: f64) {
        self.cap = share(cap);
    }

    /// Returns the next step at `now`, with the next event due at `next_due`, if any is pending.
    pub fn next_step(&mut self, now: Instant, next_due: Option<Instant>) -> IdleStep {
        self.settle(now);
        let Some(due) = next_due else {
            return IdleStep::Halt;
        };
        let left_ns = due.ns_since(now);
        if self.cap == 0.0 || left_ns == 0 {
            return block_or_look(left_ns);
        }
        // With little credit left, every wait is a little late. Otherwise most would be on time and some late by the
        // whole margin.
        let margin_ns = self.margin_ns.min(self.credit_ns);
        if left_ns > margin_ns {
            return IdleStep::Block(Duration::from_nanos(left_ns - margin_ns));
        }
        self.spinning_since = Some(now);
        IdleStep::Spin
    }

    /// Like [`next_step`](Self::next_step), but never spins: for events that may be as late as a blocking wait.
    pub fn next_rough_step(&mut self, now: Instant, next_due: Option<Instant>) -> IdleStep {
        self.settle(now);
        next_due.map_or(IdleStep::Halt, |due| block_or_look(due.ns_since(now)))
    }

    /// Charges the time spun so far. Call it when the thread has work again, or is about to block.
    pub fn settle(&mut self, now: Instant) {
        let since = self.credited.replace(now).unwrap_or(now);
        // Credit grows with all time that passes, whether the thread works or waits.
        let earned = (now.ns_since(since) as f64 * self.cap) as u64;
        self.credit_ns = (self.credit_ns + earned).min(MAX_CREDIT_NS);
        if let Some(start) = self.spinning_since.take() {
            let spun = now.ns_since(start);
            self.spun_ns += spun;
            self.credit_ns = self.credit_ns.saturating_sub(spun);
        }
    }

    /// Cancels the charge for the current spin: its check for events found some, so the time was work.
    pub fn on_found(&mut self) {
        self.spinning_since = None;
    }

    /// Adjusts the margin after a wait that should have ended at `asked` returned at `now` without an event.
    ///
    /// The margin follows the 95th percentile of the observed lateness, in small steps.
    pub fn on_timed_out(&mut self, asked: Instant, now: Instant) {
        let late_ns = now.ns_since(asked);
        self.margin_ns = if late_ns > self.margin_ns {
            (self.margin_ns + STEP_NS * 19).min(MAX_MARGIN_NS)
        } else {
            self.margin_ns.saturating_sub(STEP_NS).max(MIN_MARGIN_NS)
        };
    }

    /// Returns the time before an event at which a blocking wait is currently asked to return.
    pub const fn margin(&self) -> Duration {
        Duration::from_nanos(self.margin_ns)
    }

    /// Returns the time spent spinning so far.
    pub const fn spun(&self) -> Duration {
        Duration::from_nanos(self.spun_ns)
    }
}

/// Limits a share to 0 to 1; those that are no number count as 0.
fn share(cap: f64) -> f64 {
    if cap.is_finite() {
        cap.clamp(0.0, 1.0)
    } else {
        0.0
    }
}

/// Returns the step for an event due in `left_ns`: block until then, or check at once if it is due.
fn block_or_look(left_ns: u64) -> IdleStep {
    match left_ns {
        0 => IdleStep::Spin,
        _ => IdleStep::Block(Duration::from_nanos(left_ns)),
    }
}

const START_MARGIN_NS: u64 = 40_000;
const MIN_MARGIN_NS: u64 = 5_000;
const MAX_MARGIN_NS: u64 = 200_000;
/// The margin falls by one step after a wait that was late by less, and rises by 19 after one that was late by more,
/// so it settles where 1 of 20 waits is later.
const STEP_NS: u64 = 200;
/// The most spinning time that a busy thread saves up: one tick of a kernel with 250 Hz.
const MAX_CREDIT_NS: u64 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * US)
    }

    #[test]
    fn nothing_is_spun_for_what_may_be_late() {
        let mut rule = IdleRule::new(0.5);
        rule.next_step(at(0), None);
        let near = Some(at(1_030));
        assert_eq!(
            rule.next_rough_step(at(1_000), near),
            IdleStep::Block(Duration::from_micros(30))
        );
        assert_eq!(rule.next_step(at(1_000), near), IdleStep::Spin);
        // A due event is checked at once.
        assert_eq!(rule.next_rough_step(at(1_030), near), IdleStep::Spin);
        assert_eq!(rule.next_rough_step(at(1_030), None), IdleStep::Halt);
    }

    #[test]
    fn halts_without_timers() {
        assert_eq!(IdleRule::new(0.1).next_step(at(5), None), IdleStep::Halt);
    }

    #[test]
    fn blocks_until_shortly_before_then_spins() {
        let mut rule = IdleRule::new(0.5);
        rule.next_step(at(0), None);
        let IdleStep::Block(wait) = rule.next_step(at(1_000), Some(at(2_000))) else {
            panic!("should block")
        };
        assert_eq!(wait, Duration::from_micros(960));
        assert_eq!(rule.next_step(at(1_970), Some(at(2_000))), IdleStep::Spin);
    }

    #[test]
    fn spins_as_much_as_it_may() {
        let mut rule = IdleRule::new(0.5);
        rule.next_step(at(0), None);
        // Of the 40 us by which a wait may be late, 10 us may be spun.
        let step = rule.next_step(at(20), Some(at(50)));
        assert_eq!(step, IdleStep::Block(Duration::from_micros(20)));
        assert_eq!(rule.next_step(at(40), Some(at(50))), IdleStep::Spin);
    }

    #[test]
    fn never_spins_at_cap_zero() {
        let mut rule = IdleRule::new(0.0);
        rule.next_step(at(0), None);
        let step = rule.next_step(at(1_990), Some(at(2_000)));
        assert_eq!(step, IdleStep::Block(Duration::from_micros(10)));
    }

    #[test]
    fn a_look_that_finds_something_is_no_spin() {
        let mut rule = IdleRule::new(0.5);
        rule.next_step(at(0), None);
        assert_eq!(
            rule.next_step(at(4_000_000), Some(at(4_000_010))),
            IdleStep::Spin
        );
        rule.on_found();
        rule.settle(at(4_000_009));
        assert_eq!(rule.spun(), Duration::ZERO);
    }

    #[test]
    fn spinning_stays_within_its_share() {
        let mut rule = IdleRule::new(0.05);
        let (mut now, mut spun) = (0, 0);
        // An event every 50 us, for a second, with waits that return on time.
        while now < 1_000_000 {
            let due = (now / 50 + 1) * 50;
            match rule.next_step(at(now), Some(at(due))) {
                IdleStep::Spin => {
                    spun += 1;
                    now += 1;
                }
                IdleStep::Block(wait) => now += wait.as_micros() as u64,
                IdleStep::Halt => unreachable!("a timer is pending"),
            }
        }
        assert!(spun <= 51_000, "{spun} us spun");
        assert!(spun >= 20_000, "{spun} us spun: the share is not used");
    }

    #[test]
    fn the_margin_follows_the_delays() {
        let mut rule = IdleRule::new(0.5);
        for _ in 0..1_000 {
            rule.on_timed_out(at(0), at(100));
        }
        assert!(
            rule.margin() >= Duration::from_micros(95),
            "{:?}",
            rule.margin()
        );
        for _ in 0..10_000 {
            rule.on_timed_out(at(0), at(6));
        }
        assert!(
            rule.margin() <= Duration::from_micros(12),
            "{:?}",
            rule.margin()
        );
    }
}
