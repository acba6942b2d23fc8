//! Signalling: how a thread learns that a device has work, by interrupts, by polling, or by both in turn.
//!
//! | policy | while the thread runs | while it waits | source |
//! |---|---|---|---|
//! | [`Interrupt`](Policy::Interrupt) | interrupts | interrupts | |
//! | [`Poll`](Policy::Poll) | looks at once | does not wait | |
//! | [`Clocked`](Policy::Clocked) | a look each period | a look each period | *Clocked Interrupts*, 1.2, 3 |
//! | [`Hybrid`](Policy::Hybrid) | interrupts, or looks while they find much | interrupts | *Receive Livelock*; NAPI |
//! | [`SoftPoll`](Policy::SoftPoll) | looks at an interval that adapts | interrupts | *Soft Timers*, 4.2, 5.8 |
//! | [`Automatic`](Policy::Automatic) | as `Hybrid` or `SoftPoll` | interrupts; none if deferred | |
//!
//! *Receive Livelock* is Mogul and Ramakrishnan: *Eliminating Receive Livelock in an Interrupt-Driven Kernel*, 1996.
//!
//! A [`Signalling`] serves one queue, or several that a thread looks at together: the rings of a device, for which a
//! look takes packets from each, or a kernel's queue of events, of which each is then a packet. What is said of a queue
//! holds for all of them then: the quota is that of a look at all, and interrupts are enabled or masked for all. Queues
//! that are looked at apart from each other have one each, joined by [`Wait::of`]. For several rings in memory, looks
//! at all cost less: see `docs/decisions/signalling.md`.
//!
//! A look serves both directions. It also takes the completions of transmissions, which count in the reports and do not
//! steer the interval. A driver enables interrupts for completions only while a sender waits for room.
//!
//! # Contract
//! Each verb returns a [`Next`], which the driver carries out at once: it enables or masks interrupts, and schedules a
//! look. Then:
//!
//! 1. At a trigger state at or after [`Next::look`], the driver looks once, and reports it by
//!    [`on_look`](Signalling::on_look). It may look earlier. A look is bounded; if it may have left packets, the driver
//!    says so, and the next look is due at once. Work that a look makes ready runs before the next look.
//! 2. When an interrupt comes, the driver calls [`on_interrupt`](Signalling::on_interrupt). One that was raised before
//!    the driver masked interrupts may be dropped.
//! 3. When the thread has no work, the driver calls [`before_wait`](Signalling::before_wait), and
//!    [`after_wait`](Signalling::after_wait) when the wait ends, for any reason, or when it does not wait after all.
//! 4. **No wake-up is lost.** Whenever interrupts become enabled, a look is due at once: a packet that arrived while
//!    they were masked raises none. The driver enables interrupts first, then looks, then asks `before_wait` again. The
//!    thread may wait only if [`Wait::of`] allows it.
//!
//! # Latency
//! Without interrupts, a packet waits for at most the period or the latency bound, and then until the next trigger
//! state. A soft poll's interval leaves room for the usual time to a trigger state. A look that says that more is left
//! is followed by another at the next opportunity. A thread that waits without interrupts is woken at the time of the
//! look, with the lateness of a blocking wait. Soft polls measure that lateness and leave room for it, too.
//!
//! # Cost
//! Nothing is allocated. [`is_due`](Signalling::is_due) is a comparison; the other verbs take a few dozen arithmetic
//! instructions, and at most four divisions.
//!
//! # Example
//! ```
//! use softclock_core::Instant;
//! use softclock_core::signalling::{Interrupts, Look, Policy, Signalling, Wait};
//!
//! let at = |us: u64| Instant::from_ns(us * 1_000);
//! let mut queue = Signalling::new(Policy::default(), at(0));
//! assert!(queue.is_due(at(0)));
//! let next = queue.on_look(at(0), Look::EMPTY);
//! // Interrupts are enabled now, so a packet that came just before needs one more look.
//! assert_eq!(next.interrupts, Interrupts::Enabled);
//! assert_eq!(Wait::of(at(1), [queue.before_wait(at(1), None)]), Wait::Refused);
//! queue.on_look(at(1), Look::EMPTY);
//! assert_eq!(Wait::of(at(2), [queue.before_wait(at(2), None)]), Wait::UntilInterrupt);
//! // A packet arrives.
//! queue.after_wait(at(900));
//! assert!(queue.on_interrupt(at(900)).look.is_some());
//! let look = Look { packets: 1, ..Look::EMPTY };
//! queue.on_look(at(901), look);
//! assert_eq!(queue.counts(at(901)).packets, 1);
//! ```

mod automatic;
mod clocked;
mod counts;
mod deferral;
mod hybrid;
mod interrupt;
mod interval;
mod lateness;
mod load;
mod machine;
mod policy;
mod poll;
mod rule;
mod soft_poll;
#[cfg(test)]
mod tests;
mod text;
mod wait;

use core::time::Duration;

use crate::Instant;
use counts::Counters;
use load::Load;
use machine::Machine;
use rule::Looked;

pub use counts::SignallingCounts;
pub use policy::{LatencyBound, Period, Policy, PolicyError, Quota, Wakeups};
pub use text::ParsePolicyError;
pub use wait::Wait;

/// Whether arrivals at a queue interrupt or wake its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interrupts {
    /// An arrival is reported at once.
    Enabled,
    /// An arrival is seen by the next look.
    Masked,
}

/// The next steps of a driver with a queue: the state of its interrupts, and the time of the next look.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Next {
    /// Whether interrupts are to be enabled.
    pub interrupts: Interrupts,
    /// The time from which on a trigger state looks at the queue; without one, only an interrupt leads to a look.
    pub look: Option<Instant>,
}

/// The result of one look at a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// Packets received.
    pub packets: u32,
    /// Transmissions that were found complete.
    pub completions: u32,
    /// Whether the queue may have more, for example because the look took as many as it takes at most.
    pub has_more: bool,
}

impl Look {
    /// A look that found nothing.
    pub const EMPTY: Self = Self {
        packets: 0,
        completions: 0,
        has_more: false,
    };

    /// Returns whether the look found a packet or a completion.
    pub const fn has_found(&self) -> bool {
        self.packets > 0 || self.completions > 0
    }
}

/// The signalling of a queue, or of several that are looked at together; see the [module](self).
#[derive(Clone, Debug)]
pub struct Signalling {
    policy: Policy,
    machine: Machine,
    interrupts: Interrupts,
    /// The time of the next look, or the far future.
    look: Instant,
    /// Whether a look is due at once, since there may be packets for which nothing else is scheduled.
    owes_look: bool,
    /// Whether interrupts were masked since the last look, so that its successor shows the rate of arrivals.
    is_masked_since_look: bool,
    last_look: Instant,
    load: Load,
    counters: Counters,
}

impl Signalling {
    /// Creates the signalling of a queue that may have packets already: a look is due at once.
    pub fn new(policy: Policy, now: Instant) -> Self {
        let mut signalling = Self {
            policy,
            machine: Machine::new(policy, now),
            interrupts: match policy {
                Policy::Interrupt => Interrupts::Enabled,
                _ => Interrupts::Masked,
            },
            look: now,
            owes_look: true,
            is_masked_since_look: false,
            last_look: now,
            load: Load::new(now),
            counters: Counters::new(now),
        };
        let interrupts = signalling.interrupts;
        signalling.counters.set_interrupts(now, interrupts);
        signalling
    }

    /// Returns whether a look is due at the trigger state `now`. Costs a comparison.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.look <= now
    }

    /// Returns the present state: the result of the last verb, or the initial state.
    pub fn current(&self) -> Next {
        Next {
            interrupts: self.interrupts,
            look: (self.look != Instant::FAR_FUTURE).then_some(self.look),
        }
    }

    /// Records that an interrupt has come. A look is due at once.
    pub fn on_interrupt(&mut self, now: Instant) -> Next {
        self.end_wait(now);
        self.counters.on_interrupt();
        self.owes_look = true;
        let next = self.machine.rule().on_interrupt(now);
        self.settle(now, next)
    }

    /// Records a look at the queue that ended at `now`, whether it was due or not.
    pub fn on_look(&mut self, now: Instant, look: Look) -> Next {
        self.end_wait(now);
        self.counters.on_look(look);
        self.load.on_packets(now, look.packets);
        let is_scheduled = self.is_masked_since_look && !self.owes_look && self.look <= now;
        let looked = Looked {
            now,
            look,
            was: self.interrupts,
            before: self.last_look,
            late_ns: is_scheduled.then(|| now.ns_since(self.look)),
        };
        self.last_look = now;
        self.owes_look = look.has_more;
        self.is_masked_since_look = true;
        let next = self.machine.rule().on_look(&looked, &self.load);
        self.settle(now, next)
    }

    /// Decides how a thread without work waits. `wakes_at` is the time at which it wakes up in any case, such as for
    /// its next timer. Looks at queues do not count: cancel their events first, or a thread without work would go on to
    /// look.
    ///
    /// If the returned look is due at `now`, the thread must not wait. Otherwise the wait begins.
    pub fn before_wait(&mut self, now: Instant, wakes_at: Option<Instant>) -> Next {
        let wakes_at = wakes_at.filter(|&at| at > now);
        let rule = self.machine.rule();
        let next = rule.before_wait(now, wakes_at, &self.load);
        let next = self.settle(now, next);
        if !self.is_due(now) {
            self.counters.begin_wait(now);
            self.load.on_wait(now);
        }
        next
    }

    /// Records that the thread runs again: after a wait that anything has ended, or instead of a wait that this queue
    /// allowed.
    pub fn after_wait(&mut self, now: Instant) -> Next {
        self.end_wait(now);
        let next = match self.interrupts {
            // The look for which it waited stays due when it was, so that its lateness is known.
            Interrupts::Masked => self.current(),
            Interrupts::Enabled => self.machine.rule().after_wait(now),
        };
        self.settle(now, next)
    }

    /// Drops the look that is due because interrupts became enabled, and returns whether there was one. Call it for a
    /// queue that needs no such look, since its waits also report earlier arrivals: the kernel's queue of events, for
    /// example.
    pub fn forgive_look(&mut self) -> bool {
        let is_owed = self.owes_look && self.interrupts == Interrupts::Enabled;
        if is_owed {
            self.owes_look = false;
            self.look = Instant::FAR_FUTURE;
        }
        is_owed
    }

    /// Returns the policy.
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns whether the policy polls softly at present: at soft events, with an interval that adapts.
    pub const fn is_soft_polling(&self) -> bool {
        match &self.machine {
            Machine::SoftPoll(_) => true,
            Machine::Automatic(automatic) => automatic.is_loaded(),
            _ => false,
        }
    }

    /// Returns the present interval of soft polls, if the policy has any.
    pub const fn interval(&self) -> Option<Duration> {
        let ns = match &self.machine {
            Machine::SoftPoll(soft) => soft.interval_ns(),
            Machine::Automatic(automatic) => automatic.interval_ns(),
            _ => return None,
        };
        Some(Duration::from_nanos(ns))
    }

    /// Returns the share of the last milliseconds in which the thread did not wait, 0 to 1.
    pub fn busy_share(&self) -> f64 {
        f64::from(self.load.share()) / f64::from(load::WHOLE)
    }

    /// Returns the counters up to `now`.
    pub fn counts(&self, now: Instant) -> SignallingCounts {
        self.counters.at(now)
    }

    fn end_wait(&mut self, now: Instant) {
        self.counters.end_wait(now);
        self.load.on_run(now);
    }

    /// Makes `next` the present state, except that a look that is owed comes first.
    fn settle(&mut self, now: Instant, next: Next) -> Next {
        if next.interrupts == Interrupts::Enabled {
            // Packets that arrived while they were masked have raised no interrupt.
            self.owes_look |= self.interrupts == Interrupts::Masked;
            self.is_masked_since_look = false;
        }
        self.interrupts = next.interrupts;
        self.counters.set_interrupts(now, next.interrupts);
        self.look = match (self.owes_look, next.look) {
            (true, _) => now,
            (false, Some(at)) => at,
            (false, None) => Instant::FAR_FUTURE,
        };
        debug_assert!(
            self.interrupts == Interrupts::Enabled || self.look != Instant::FAR_FUTURE,
            "a queue without interrupts has a look"
        );
        self.current()
    }
}
