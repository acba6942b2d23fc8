//! Passive health checks: judges an upstream by the requests that it got, and chooses the upstream of the next request.
//!
//! An upstream that fails several times in a row is left out for a while. Then one request tries it again, and the
//! upstream is up again or left out anew. A response succeeds when it is complete, or when its client has left: so an
//! upstream that breaks off all of its bodies is left out, too. While the body of a trial is still arriving, further
//! requests may try the upstream, one in each [`HealthOptions::fail_time`].
//!
//! A request that has failed once is sent to upstreams that are up, first to those with the fewest recent failures. So
//! while others are up, a request is the trial of at most one upstream that was left out.

use std::time::Duration;

use softclock::Instant;

/// The conditions under which an upstream is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthOptions {
    /// The number of failures in a row after which an upstream is left out; 0 for never.
    pub max_fails: u32,
    /// The time for which an upstream is left out.
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

/// The health of one upstream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Health {
    /// The number of failures in a row.
    failures: u32,
    /// Set while the upstream is left out.
    out: Option<Out>,
}

/// The state of an upstream that is left out.
#[derive(Clone, Copy, Debug)]
struct Out {
    /// The time at which the upstream was first left out.
    since: Instant,
    /// The time from which a request may try the upstream.
    until: Instant,
    /// Whether a request in progress tries the upstream.
    on_trial: bool,
}

impl Health {
    /// Returns whether the upstream is in normal use, and not left out.
    pub(super) fn is_up(&self) -> bool {
        self.out.is_none()
    }

    /// Returns whether the next request may be sent to the upstream: it is up, or due for a trial.
    pub(super) fn admits(&self, now: Instant) -> bool {
        self.out.is_none_or(|out| now >= out.until && !out.on_trial)
    }

    /// Returns the time from which an upstream that is left out may be tried; `None` if it is up.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.out.map(|out| out.until)
    }

    /// Records that a request is about to be sent.
    pub(super) fn on_attempt(&mut self) {
        if let Some(out) = &mut self.out {
            out.on_trial = true;
        }
    }

    /// Records that a request sent at `begun` ended without evidence about the upstream, so that another may try.
    pub(super) fn on_abandoned(&mut self, begun: Instant) {
        if let Some(out) = self.out.as_mut().filter(|out| begun >= out.since) {
            out.on_trial = false;
        }
    }

    /// Records the head of a response to a request sent at `begun`. The upstream is not up before the end of the body;
    /// meanwhile another request may try after [`HealthOptions::fail_time`].
    pub(super) fn on_head(&mut self, begun: Instant, now: Instant, options: HealthOptions) {
        if let Some(out) = self.out.as_mut().filter(|out| begun >= out.since) {
            out.on_trial = false;
            out.until = now + options.fail_time;
        }
    }

    /// Records a complete response to a request sent at `begun`. Returns true if the upstream was left out until now.
    pub(super) fn on_success(&mut self, begun: Instant) -> bool {
        if self.is_of_before(begun) {
            return false;
        }
        self.failures = 0;
        self.out.take().is_some()
    }

    /// Records that a request sent at `begun` failed. Returns true if the upstream was up and is now left out.
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
            // It may be left out because of a lower limit, before a reload.
            self.out = None;
            return false;
        }
        let was_up = self.is_up();
        // `since` stays over several failed trials, so that results of all trials count.
        self.out = Some(Out {
            since: self.out.map_or(now, |out| out.since),
            until: now + options.fail_time,
            on_trial: false,
        });
        was_up
    }

    /// Returns whether a request began before the upstream was left out, so that its result is no evidence of recovery.
    fn is_of_before(&self, begun: Instant) -> bool {
        self.out.is_some_and(|out| begun < out.since)
    }
}

/// The tries of one request. Each upstream is tried at most once.
pub(super) struct Tries {
    limit: u32,
    tried: Vec<usize>,
    /// The number of tries that sent any byte of the request.
    sent: u32,
}

impl Tries {
    /// Allows `limit` tries. While upstreams are up, only tries that sent a byte of the request count: unreachable
    /// upstreams fail quickly. Before a try of an upstream that is left out all tries count, as all upstreams may be
    /// silent then, and the client waits.
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

/// Chooses the next of `count` upstreams, in turn from `first` on, among those that are not full and were not tried.
///
/// The first try of a request takes the next upstream that admits a request at `now`. Later tries prefer the upstream
/// that is up and has the fewest failures. If no upstream admits a request, takes the one that has been left out for
/// longest, as any answer is better than none. Returns `None` if no upstream remains or the tries are used up.
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
    // The first try may be the trial of an upstream that was left out. After a failure upstreams that are up come
    // first.
    let chosen = if tries.is_empty() { None } else { surest() };
    let chosen = chosen
        .or_else(|| possible().find(|&place| health(place).admits(now)))
        .or_else(|| possible().min_by_key(|&place| health(place).retry_at()))?;
    tries.allow(health(chosen)).then_some(chosen)
}

#[cfg(test)]
mod tests;
