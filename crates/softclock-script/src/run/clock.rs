//! Virtual time, and what happens while it advances.

use std::ops::RangeInclusive;
use std::time::Duration;

use softclock_core::Instant;

use super::{Runner, START, Stop};
use crate::host::Host;
use crate::syntax::{Owner, Time};

/// The times at which an event may happen, without the tolerance.
pub(super) type Window = RangeInclusive<Instant>;

/// What ends the advance of time early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Until {
    /// Nothing.
    Target,
    /// The host has sent a packet.
    Packet,
    /// The call that blocks has returned.
    Return,
}

impl<H: Host> Runner<'_, H> {
    /// The instant from which a time of the script counts.
    pub(super) fn origin(&self, time: Time) -> Instant {
        match time {
            Time::Absolute(_) | Time::AbsoluteRange(..) => START,
            Time::Next | Time::Any | Time::Relative(_) | Time::RelativeRange(..) => self.base,
        }
    }

    pub(super) fn window(&self, time: Time) -> Window {
        let origin = self.origin(time);
        match time {
            Time::Next => self.now..=self.now,
            Time::Any => self.now..=self.now + LONGEST_WAIT,
            Time::Absolute(at) | Time::Relative(at) => origin + at..=origin + at,
            Time::AbsoluteRange(from, to) | Time::RelativeRange(from, to) => {
                origin + from..=origin + to
            }
        }
    }

    /// Advances time to the event's. An event that comes later than its time, since the packets before it came late, is
    /// a difference.
    pub(super) fn advance_to_event(&mut self, window: Window) -> Result<(), Stop> {
        if self.now > *window.end() + self.environment.tolerance {
            let (now, end) = (self.show_time(self.now), self.show_time(*window.end()));
            return Err(Stop::Failed(format!(
                "the event is due at {end}, but the time is {now}"
            )));
        }
        self.advance(*window.start(), Until::Target)
    }

    /// Advances time to `target`, or only until something else happens before that.
    pub(super) fn advance(&mut self, target: Instant, until: Until) -> Result<(), Stop> {
        let mut steps_at_one_time = 0;
        loop {
            self.settle()?;
            let has_happened = match until {
                Until::Target => false,
                Until::Packet => !self.sent.is_empty(),
                Until::Return => self.blocked.is_none(),
            };
            if has_happened {
                return Ok(());
            }
            let visit = self.next_visit();
            let next = [self.host.next_timeout(), visit]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|next| *next <= target) else {
                self.now = self.now.max(target);
                return Ok(());
            };
            // A timer of the past fires now.
            steps_at_one_time = match next > self.now {
                true => 0,
                false => steps_at_one_time + 1,
            };
            if steps_at_one_time > MOST_STEPS_AT_ONE_TIME {
                return Err(Stop::failed("the host's timers do not stop firing"));
            }
            self.now = self.now.max(next);
            self.host.on_timer(self.now);
            if visit.is_some_and(|visit| visit <= self.now) {
                self.host.visit(self.now);
            }
        }
    }

    /// Collects what the host sends, and finishes a call that need not wait any longer.
    pub(super) fn settle(&mut self) -> Result<(), Stop> {
        if self.owner == Owner::Prompt {
            self.host.visit(self.now);
        }
        self.collect()?;
        self.retry_blocked()?;
        self.collect()
    }

    fn collect(&mut self) -> Result<(), Stop> {
        while let Some(packet) = self.host.next_packet(self.now) {
            self.sent.push_back((self.now, packet));
            if self.sent.len() > MOST_UNEXPECTED {
                return Err(Stop::failed("the host does not stop sending"));
            }
        }
        Ok(())
    }

    /// When an owner that comes at times comes next, after this moment.
    fn next_visit(&self) -> Option<Instant> {
        match self.owner {
            Owner::Every(time) => {
                let period = time.as_nanos().max(1);
                let since_start = u128::from(self.now.ns_since(START));
                let next = (since_start / period + 1) * period;
                Some(START.add_ns(u64::try_from(next).unwrap_or(u64::MAX)))
            }
            Owner::Prompt | Owner::Calls => None,
        }
    }

    /// A time as scripts write it.
    pub(super) fn show_time(&self, time: Instant) -> String {
        let since = Duration::from_nanos(time.ns_since(START));
        format!("{:.6}", since.as_secs_f64())
    }
}

/// For how long a packet at any time is waited for: longer than keep-alive after two hours.
const LONGEST_WAIT: Duration = Duration::from_secs(4 * 3600);

/// A host whose timer is due again as often as this at one time loops.
const MOST_STEPS_AT_ONE_TIME: u32 = 10_000;

/// The most packets that wait for an event: more than any window of segments.
const MOST_UNEXPECTED: usize = 100_000;
