//! A timer for deadlines that mostly pass by.
//!
//! What is waited for usually comes, and then the next thing is waited for, with a later deadline. So progress does not
//! touch the timer: one that fires early is set anew. A connection in use costs a timer's setting once a timeout, not
//! once a request. And since nobody minds some milliseconds, the timers of all connections end at few instants, for
//! which the thread does not spin: else a server in moderate use would wake up for timers more often than for requests.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use softclock::{Instant, Sleep, Timeout, sleep_until};

/// One timer for all deadlines of a connection, set when the first is waited for.
#[derive(Debug, Default)]
pub(crate) struct LateTimer {
    sleep: Option<Sleep>,
}

impl LateTimer {
    /// Ready at `deadline`, or up to [`SLACK`] later, once no event from before then can still end the wait.
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
        // A timer in the past was set for an earlier deadline, which progress has moved since.
        if deadline < set || (set < deadline && set <= now) {
            sleep.reset(deadline);
        }
        Pin::new(sleep).poll(cx)
    }
}

/// Runs `future` for no longer than `limit`, or up to [`SLACK`] longer.
pub(crate) fn timeout<F: Future>(limit: Duration, future: F) -> Timeout<F> {
    softclock::timeout(limit, future).with_slack(SLACK)
}

/// No more than the shortest of the waits, which is for the next request.
const SLACK: Duration = Duration::from_millis(10);
