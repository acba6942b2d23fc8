//! The idle rule: halt, block or spin (*Soft Timers*, section 5.1).
//!
//! The paper's idle loop checks for events and halts when none is due before the next interrupt.
//! A process cannot halt for microseconds: a blocking wait returns some tens of microseconds late.
//! So it blocks until shortly before the next event, by as much as such waits were late before, and
//! spins for the rest, within a share of the CPU that it may burn.

use core::time::Duration;

use crate::Instant;

/// What an idle thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleStep {
    /// Block until something arrives: no timer is pending.
    Halt,
    /// Block, but no longer than this.
    Block(Duration),
    /// Check again at once: the next event is closer than a blocking wait is exact.
    Spin,
}

/// Decides what an idle thread does, from how late its waits returned and how much it may spin.
#[derive(Clone, Debug)]
pub struct IdleRule {
    /// How long before an event to return from blocking.
    margin_ns: u64,
    /// Share of the time that may be spent spinning.
    cap: f64,
    /// What is left to spin, and as of when.
    credit_ns: u64,
    credited: Option<Instant>,
    spinning_since: Option<Instant>,
    spun_ns: u64,
}

impl IdleRule {
    /// A rule that spins for at most the share `cap` (0 to 1) of the time; 0 never spins.
    pub fn new(cap: f64) -> Self {
        Self {
            margin_ns: START_MARGIN_NS,
            cap: if cap.is_finite() {
                cap.clamp(0.0, 1.0)
            } else {
                0.0
            },
            credit_ns: 0,
            credited: None,
            spinning_since: None,
            spun_ns: 0,
        }
    }

    /// What to do at `now`, with the next event due at `next_due`, or none.
    pub fn next_step(&mut self, now: Instant, next_due: Option<Instant>) -> IdleStep {
        self.settle(now);
        let Some(due) = next_due else {
            return IdleStep::Halt;
        };
        let left_ns = due.ns_since(now);
        if self.cap == 0.0 || left_ns == 0 {
            return block_or_look(left_ns);
        }
        // With less to spin than a wait is late by, some of that is late rather than all of it every now and then.
        let margin_ns = self.margin_ns.min(self.credit_ns);
        if left_ns > margin_ns {
            return IdleStep::Block(Duration::from_nanos(left_ns - margin_ns));
        }
        self.spinning_since = Some(now);
        IdleStep::Spin
    }

    /// As [`next_step`](Self::next_step), where nobody minds that the next event is as late as a blocking wait: it is not
    /// spun for.
    pub fn next_rough_step(&mut self, now: Instant, next_due: Option<Instant>) -> IdleStep {
        self.settle(now);
        next_due.map_or(IdleStep::Halt, |due| block_or_look(due.ns_since(now)))
    }

    /// The thread has something to do again, or is about to block: what it spun is charged.
    pub fn settle(&mut self, now: Instant) {
        let since = self.credited.replace(now).unwrap_or(now);
        let earned = (now.ns_since(since) as f64 * self.cap) as u64;
        self.credit_ns = (self.credit_ns + earned).min(MAX_CREDIT_NS);
        if let Some(start) = self.spinning_since.take() {
            let spun = now.ns_since(start);
            self.spun_ns += spun;
            self.credit_ns = self.credit_ns.saturating_sub(spun);
        }
    }

    /// The look for events that was to be the next step of a spin found some: it was work, and is not charged.
    pub fn on_found(&mut self) {
        self.spinning_since = None;
    }

    /// A wait that should have ended at `asked` returned at `now` without an event: calibrates the margin.
    ///
    /// The margin follows the 95th percentile of the delays seen, in small steps.
    pub fn on_timed_out(&mut self, asked: Instant, now: Instant) {
        let late_ns = now.ns_since(asked);
        self.margin_ns = if late_ns > self.margin_ns {
            (self.margin_ns + STEP_NS * 19).min(MAX_MARGIN_NS)
        } else {
            self.margin_ns.saturating_sub(STEP_NS).max(MIN_MARGIN_NS)
        };
    }

    /// How long before an event a blocking wait is now asked to return.
    pub const fn margin(&self) -> Duration {
        Duration::from_nanos(self.margin_ns)
    }

    /// The time spent spinning so far.
    pub const fn spun(&self) -> Duration {
        Duration::from_nanos(self.spun_ns)
    }
}

/// Until an event that is so far away.
fn block_or_look(left_ns: u64) -> IdleStep {
    match left_ns {
        0 => IdleStep::Spin,
        _ => IdleStep::Block(Duration::from_nanos(left_ns)),
    }
}

const START_MARGIN_NS: u64 = 40_000;
const MIN_MARGIN_NS: u64 = 5_000;
const MAX_MARGIN_NS: u64 = 200_000;
/// 1/20 of it down when a wait was shorter than the margin, 19/20 up when it was longer.
const STEP_NS: u64 = 200;
/// A thread that was busy for long may not spin for long: one tick of a usual kernel.
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
        // What is due is looked at.
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
        // Of the 40 us that a wait may be late by, 10 us are allowed.
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
        // An event every 50 us, for a second, with waits that are exact.
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
