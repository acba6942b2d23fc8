//! Signalling by the measured load: as [`Hybrid`](super::hybrid) under light load, and as
//! [`SoftPoll`](super::soft_poll) with an automatic quota otherwise.
//!
//! Soft polling pays if the thread is busy, so that it has trigger states to look at and interrupts would disturb it,
//! and if packets arrive often enough for looks to find some. A thread that computes and seldom gets a packet is better
//! served by its interrupt than by many looks in vain. Both conditions have hysteresis. They hold for the last
//! milliseconds, so a step in the load is followed within about two.
//!
//! In both states a thread that is about to wait enables interrupts and looks once more, unless its
//! [wake-ups](super::Wakeups) may be left to a timer or deferred.

use super::Next;
use super::deferral::Deferral;
use super::load::{Load, WHOLE, expected_16};
use super::policy::{LatencyBound, Quota, Wakeups};
use super::rule::{Looked, Rule};
use super::soft_poll::SoftPoll;
use crate::Instant;

#[derive(Clone, Debug)]
pub(super) struct Automatic {
    bound_ns: u64,
    soft: SoftPoll,
    is_loaded: bool,
    wakeups: Wakeups,
    deferral: Deferral,
    /// Whether the next look is at the time at which the thread wakes up anyway, and so tells nothing about the
    /// interval.
    is_borrowed: bool,
}

impl Automatic {
    pub(super) fn new(bound: LatencyBound, wakeups: Wakeups, now: Instant) -> Self {
        Self {
            bound_ns: bound.as_ns(),
            soft: SoftPoll::new(Quota::AUTOMATIC, bound, now),
            is_loaded: false,
            wakeups,
            deferral: Deferral::default(),
            is_borrowed: false,
        }
    }

    pub(super) const fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    pub(super) const fn interval_ns(&self) -> u64 {
        self.soft.interval_ns()
    }

    fn judge(&mut self, now: Instant, load: &Load) {
        let arriving_16 = expected_16(load.rate(), self.bound_ns);
        self.is_loaded = match self.is_loaded {
            false => load.share() >= BEGIN_SHARE && arriving_16 >= BEGIN_ARRIVING_16,
            true => load.share() >= END_SHARE && arriving_16 >= END_ARRIVING_16,
        };
        // The rate of a load that has just begun is not known.
        if !self.is_loaded {
            self.deferral.pause(now);
        }
    }

    /// Returns the time up to which a wait needs no interrupts, if any.
    fn deferred_until(
        &mut self,
        now: Instant,
        wakes_at: Option<Instant>,
        load: &Load,
    ) -> Option<Instant> {
        if self.wakeups == Wakeups::AtOnce {
            return None;
        }
        let latest = self.soft.last_look().add_ns(self.soft.most_ns());
        if let Some(at) = wakes_at.filter(|&at| at <= latest) {
            self.is_borrowed = true;
            return Some(at);
        }
        if self.wakeups == Wakeups::ByTimer {
            return None;
        }
        let due = self.soft.due();
        let interval_ns = self.soft.interval_ns();
        let is_deferred =
            self.is_loaded && due > now && self.deferral.begin(now, load.rate(), interval_ns);
        is_deferred.then_some(due)
    }
}

impl Rule for Automatic {
    fn on_interrupt(&mut self, now: Instant) -> Next {
        Next::masked_until(now)
    }

    fn on_look(&mut self, looked: &Looked, load: &Load) -> Next {
        self.judge(looked.now, load);
        self.deferral.on_look(looked);
        let mut looked = *looked;
        if core::mem::take(&mut self.is_borrowed) {
            looked.late_ns = None;
        }
        let soft = self.soft.on_look(&looked, load);
        match self.is_loaded || looked.look.has_more {
            true => soft,
            false => Next::INTERRUPTED,
        }
    }

    fn before_wait(&mut self, now: Instant, wakes_at: Option<Instant>, load: &Load) -> Next {
        self.judge(now, load);
        self.deferred_until(now, wakes_at, load)
            .map_or(Next::INTERRUPTED, Next::masked_until)
    }

    fn after_wait(&mut self, now: Instant) -> Next {
        match self.is_loaded {
            true => self.soft.after_wait(now),
            false => Next::INTERRUPTED,
        }
    }
}

/// Soft polling begins when the thread is busy for a quarter of the time, and ends at an eighth.
const BEGIN_SHARE: u32 = WHOLE / 4;
const END_SHARE: u32 = WHOLE / 8;

/// It begins when a packet arrives in every second interval of the longest kind, and ends at one in eight, in
/// sixteenths: a look costs several times less than an interrupt (*Soft Timers*, 5.1), so it may find nothing for
/// several times.
const BEGIN_ARRIVING_16: u64 = 8;
const END_ARRIVING_16: u64 = 2;
