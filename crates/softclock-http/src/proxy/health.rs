//! Whether an upstream gets requests: judged by those it got before, and by nothing else.
//!
//! One that fails several times in a row is left out for a while. Then one request tries it again: it comes back or is
//! left out anew. What succeeds is a response as long as its client wants it, so that one that breaks off all of its bodies is left out, too. While
//! the body of a trial takes its time, others may try: one each [`HealthOptions::fail_time`].
//!
//! A request that has failed once goes to upstreams that are up, and to those first that have not failed just now. So it
//! meets one at most that was left out, as long as others are up.

use std::time::Duration;

use softclock::Instant;

/// When an upstream is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthOptions {
    /// After so many failures in a row; 0 for never.
    pub max_fails: u32,
    /// For how long.
    pub fail_time: Duration,
}

impl Default for HealthOptions {
    fn default() -> Self {
        Self {
            max_fails: 3,
            fail_time: Duration::from_secs(10),
        }
    }
}

/// What is known of one upstream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Health {
    /// In a row.
    failures: u32,
    out: Option<Out>,
}

#[derive(Clone, Copy, Debug)]
struct Out {
    since: Instant,
    until: Instant,
    /// One request is finding out whether it is back.
    on_trial: bool,
}

impl Health {
    /// Whether requests are sent there as a rule.
    pub(super) fn is_up(&self) -> bool {
        self.out.is_none()
    }

    /// Whether the next request may be sent there.
    pub(super) fn admits(&self, now: Instant) -> bool {
        self.out.is_none_or(|out| now >= out.until && !out.on_trial)
    }

    /// Since when, or from when on, it may be tried.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.out.map(|out| out.until)
    }

    /// A request is sent.
    pub(super) fn on_attempt(&mut self) {
        if let Some(out) = &mut self.out {
            out.on_trial = true;
        }
    }

    /// A request that was sent at `begun` ended without telling anything about the upstream.
    pub(super) fn on_abandoned(&mut self, begun: Instant) {
        if let Some(out) = self.out.as_mut().filter(|out| begun >= out.since) {
            out.on_trial = false;
        }
    }

    /// A response to a request that was sent at `begun` has come, but for its body.
    pub(super) fn on_head(&mut self, begun: Instant, now: Instant, options: HealthOptions) {
        if let Some(out) = self.out.as_mut().filter(|out| begun >= out.since) {
            out.on_trial = false;
            out.until = now + options.fail_time;
        }
    }

    /// All of a response to a request that was sent at `begun` has come; true if the upstream is back.
    pub(super) fn on_success(&mut self, begun: Instant) -> bool {
        if self.is_of_before(begun) {
            return false;
        }
        self.failures = 0;
        self.out.take().is_some()
    }

    /// A request that was sent at `begun` failed; true if the upstream is left out from now on.
    pub(super) fn on_failure(
        &mut self,
        begun: Instant,
        now: Instant,
        options: HealthOptions,
    ) -> bool {
        if self.is_of_before(begun) {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        if options.max_fails == 0 || self.failures < options.max_fails {
            return false;
        }
        let was_up = self.is_up();
        self.out = Some(Out {
            since: self.out.map_or(now, |out| out.since),
            until: now + options.fail_time,
            on_trial: false,
        });
        was_up
    }

    /// What began before an upstream was left out tells nothing of whether it is back.
    fn is_of_before(&self, begun: Instant) -> bool {
        self.out.is_some_and(|out| begun < out.since)
    }
}

/// The tries of one request; no upstream gets two.
pub(super) struct Tries {
    limit: u32,
    tried: Vec<usize>,
    /// Those in which something of the request was sent.
    sent: u32,
}

impl Tries {
    /// `limit` counts those that reached somebody. One that reached nobody counts only where upstreams left out are asked
    /// for want of others: then all may be silent, and the client waits.
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit,
            tried: Vec::new(),
            sent: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tried.is_empty()
    }

    pub(super) fn on_failure(&mut self, place: usize, has_sent: bool) {
        self.tried.push(place);
        self.sent += u32::from(has_sent);
    }

    fn allow(&self, health: Health) -> bool {
        match health.is_up() {
            true => self.sent < self.limit,
            false => self.tried.len() < self.limit as usize,
        }
    }
}

/// The next of `count` upstreams, in turn from `first` on: one that is not full, was not tried, and admits a request at
/// `now`; after a failure one that is up; or else the one left out for longest, as any answer is better than none.
pub(super) fn choose(
    first: usize,
    count: usize,
    now: Instant,
    tries: &Tries,
    health: impl Fn(usize) -> Health,
    is_full: impl Fn(usize) -> bool,
) -> Option<usize> {
    let possible = || {
        let in_turn = (0..count).map(|step| (first + step) % count);
        in_turn.filter(|place| !tries.tried.contains(place) && !is_full(*place))
    };
    let surest = || {
        let up = possible().filter(|&place| health(place).is_up());
        up.min_by_key(|&place| health(place).failures)
    };
    let chosen = if tries.is_empty() { None } else { surest() };
    let chosen = chosen
        .or_else(|| possible().find(|&place| health(place).admits(now)))
        .or_else(|| possible().min_by_key(|&place| health(place).retry_at()))?;
    tries.allow(health(chosen)).then_some(chosen)
}

#[cfg(test)]
mod tests;
