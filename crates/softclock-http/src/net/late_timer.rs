//! A timer for deadlines that rarely expire.
//!
//! The awaited input usually arrives in time, and the next deadline is later. So progress does not touch the timer:
//! when it fires before the deadline, it is set again. A connection in use thus sets a timer once per timeout instead
//! of once per request.
//!
//! The timer may fire up to [`SLACK`] late, so the timers of many connections fire together and the thread does not
//! spin for them. Otherwise a server under moderate load would wake up more often for timers than for requests.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use softclock::{Instant, Sleep, Timeout, sleep_until};

/// One timer for all deadlines of a connection, created when the first deadline is waited for.
#[derive(Debug, Default)]
pub(crate) struct LateTimer {
    sleep: Option<Sleep>,
}

impl LateTimer {
    /// Ready at `deadline` or up to [`SLACK`] later, after events from before the deadline have been handled.
    pub(crate) fn poll_until(
        &mut self,
        deadline: Instant,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let sleep = self
            .sleep
            .get_or_insert_with(|| sleep_until(deadline).with_slack(SLACK));
        let set = sleep.deadline();
        // A timer in the past was set for an earlier deadline, which progress has moved since then. One in the future
        // fires in time to be set again, so it stays.
        if deadline < set || (set < deadline && set <= now) {
            sleep.reset(deadline);
        }
        Pin::new(sleep).poll(cx)
    }
}

/// Runs `future` for at most `limit`, or up to [`SLACK`] longer.
pub(crate) fn timeout<F: Future>(limit: Duration, future: F) -> Timeout<F> {
    softclock::timeout(limit, future).with_slack(SLACK)
}

/// At most the shortest timeout, which is the wait for the next request.
const SLACK: Duration = Duration::from_millis(10);
