//! A busy thread looks at soft events, without interrupts; a thread that would wait has interrupts (*Soft Timers*, 4.2
//! and 5.8).
//!
//! A thread that is about to wait enables interrupts, looks once more, and waits if that look finds nothing. So a
//! processor never idles while packets wait, and packets that are found later than they arrived were found when the
//! thread had time for them. A thread that was woken, for any reason, masks interrupts until it is about to wait again.
//!
//! The paper gives no bound for the interval; here the latency bound is one, and without arrivals a busy thread looks
//! about once per bound.

use super::interval::Interval;
use super::load::Load;
use super::policy::{LatencyBound, Quota};
use super::rule::{Looked, Rule};
use super::{Interrupts, Next};
use crate::Instant;

#[derive(Clone, Debug)]
pub(super) struct SoftPoll {
    interval: Interval,
    last_look: Instant,
    /// The looks that follow each other at once, as each has left packets: together they are one poll.
    series: Option<Series>,
}

#[derive(Clone, Debug)]
struct Series {
    packets: u32,
    /// The time of the look before the first.
    since: Instant,
    /// The lateness of the first, if it was on schedule.
    late_ns: Option<u64>,
}

impl SoftPoll {
    pub(super) fn new(quota: Quota, bound: LatencyBound, now: Instant) -> Self {
        Self {
            interval: Interval::new(quota.target(), bound.as_ns()),
            last_look: now,
            series: None,
        }
    }

    pub(super) const fn interval_ns(&self) -> u64 {
        self.interval.ns()
    }

    /// The longest interval that keeps the latency bound.
    pub(super) fn most_ns(&self) -> u64 {
        self.interval.most_ns()
    }

    pub(super) const fn last_look(&self) -> Instant {
        self.last_look
    }

    /// The end of the present interval.
    pub(super) const fn due(&self) -> Instant {
        self.last_look.add_ns(self.interval.ns())
    }

    fn adapt(&mut self, looked: &Looked) {
        self.last_look = looked.now;
        let series = self.series.get_or_insert(Series {
            packets: 0,
            since: looked.before,
            late_ns: looked.late_ns,
        });
        series.packets = series.packets.saturating_add(looked.look.packets);
        if looked.look.has_more {
            return;
        }
        if let Some(series) = self.series.take() {
            if let Some(late_ns) = series.late_ns {
                self.interval.on_schedule(series.packets, late_ns);
            }
            let since_ns = looked.now.ns_since(series.since);
            self.interval.on_burst(series.packets, since_ns);
        }
    }
}

impl Rule for SoftPoll {
    fn on_interrupt(&mut self, now: Instant) -> Next {
        Next::masked_until(now)
    }

    fn on_look(&mut self, looked: &Looked, _load: &Load) -> Next {
        self.adapt(looked);
        // The look before a wait, after which the thread still has nothing to do.
        let is_idle = looked.was == Interrupts::Enabled && !looked.look.has_found();
        match is_idle {
            true => Next::INTERRUPTED,
            false => Next::masked_until(self.due()),
        }
    }

    fn before_wait(&mut self, _now: Instant, _wakes_at: Option<Instant>, _load: &Load) -> Next {
        Next::INTERRUPTED
    }

    fn after_wait(&mut self, now: Instant) -> Next {
        Next::masked_until(self.due().max(now))
    }
}
