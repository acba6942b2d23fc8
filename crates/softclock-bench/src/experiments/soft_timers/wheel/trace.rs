//! The trace that every timer structure plays, generated from a fixed seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::random::Random;

/// One step of the trace: the clock has moved to `at_ns`, and timer `id` gets the due time `due_ns`. Its previous timer
/// has fired by now (`expired`) or is cancelled.
#[derive(Clone, Copy, Default)]
pub(super) struct Step {
    pub(super) at_ns: u64,
    pub(super) due_ns: u64,
    pub(super) id: u32,
    pub(super) expired: bool,
}

/// The pattern of the timers.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// As in a network server: 90 % are cancelled, and delays are log-uniform from 10 us to 30 s.
    Network,
    /// Every timer fires, about one per microsecond: delays are uniform up to a bound that grows with the number of
    /// timers.
    Firing,
}

/// A source of steps for a fixed population of timers, each of which always has one due time.
pub(super) struct Trace {
    kind: Kind,
    longest_ns: u64,
    random: Random,
    /// The time of each timer's next step, earliest first.
    ahead: BinaryHeap<Reverse<(u64, u32, bool)>>,
    /// The due times of the timers before the first step.
    pub(super) initial_ns: Vec<u64>,
}

impl Trace {
    /// Creates a trace in its steady state: a long timer is more likely to be pending at a given moment, so initial
    /// lifetimes are uniform although new delays are log-uniform.
    pub(super) fn new(kind: Kind, timers: usize, seed: u64) -> Self {
        let longest_ns = match kind {
            Kind::Network => LONGEST_NS,
            Kind::Firing => (2_000 * timers as u64).max(2 * SHORTEST_NS),
        };
        let mut trace = Self {
            kind,
            longest_ns,
            random: Random(seed),
            ahead: BinaryHeap::with_capacity(timers),
            initial_ns: Vec::with_capacity(timers),
        };
        for id in 0..timers as u32 {
            let delay = SHORTEST_NS + trace.random.below(longest_ns - SHORTEST_NS);
            let age = trace.random.below(delay);
            trace.initial_ns.push(delay - age);
            trace.plan(0, delay - age, id);
        }
        trace
    }

    /// Decides whether and when a timer is cancelled before it is due.
    fn plan(&mut self, at_ns: u64, delay_ns: u64, id: u32) {
        let expires = match self.kind {
            Kind::Network => self.random.below(100) >= CANCELLED_PERCENT,
            Kind::Firing => true,
        };
        // An owner comes back after its timer has fired, or at a random time before that to cancel it.
        let next_ns = if expires {
            at_ns + delay_ns + GRACE_NS
        } else {
            at_ns + self.random.below(delay_ns)
        };
        self.ahead.push(Reverse((next_ns, id, expires)));
    }
}

impl Iterator for Trace {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let Reverse((at_ns, id, expired)) = self.ahead.pop()?;
        let delay_ns = match self.kind {
            Kind::Network => delay_ns(&mut self.random),
            Kind::Firing => SHORTEST_NS + self.random.below(self.longest_ns - SHORTEST_NS),
        };
        // The timer's next step is planned now, so that there is always one per timer.
        self.plan(at_ns, delay_ns, id);
        Some(Step {
            at_ns,
            due_ns: at_ns + delay_ns,
            id,
            expired,
        })
    }
}

/// Returns a log-uniform delay: 10 us to 100 us is as likely as 1 s to 10 s.
pub(super) fn delay_ns(random: &mut Random) -> u64 {
    let unit = random.draw() as f64 / u64::MAX as f64;
    let ratio = LONGEST_NS as f64 / SHORTEST_NS as f64;
    (SHORTEST_NS as f64 * ratio.powf(unit)) as u64
}

const SHORTEST_NS: u64 = 10_000;
const LONGEST_NS: u64 = 30_000_000_000;
const CANCELLED_PERCENT: u64 = 90;
/// The wait after the due time. A due timer fires one tick later, so two ticks separate late from on time.
const GRACE_NS: u64 = 2_000;
