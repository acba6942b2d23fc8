//! The timeouts of an upstream in each phase of an exchange.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use softclock::Instant;

use super::failure::Failure;
use super::options::UpstreamTimeouts;
use crate::net::late_timer::LateTimer;
use crate::observe::limit::Limit;

/// A phase of an exchange that waits for the upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Until the upstream accepts more of the request.
    Send,
    /// Until the first byte of a response.
    FirstByte,
    /// Until more of a response.
    More,
}

impl Phase {
    fn limit(self, timeouts: &UpstreamTimeouts) -> Option<Duration> {
        match self {
            Self::Send => timeouts.send,
            Self::FirstByte => timeouts.first_byte,
            Self::More => timeouts.read,
        }
    }

    /// Returns the failure, and the limit to count, when the time of this phase is up.
    fn late(self) -> (Failure, Limit) {
        match self {
            Self::Send => (Failure::SendLate, Limit::UpstreamSendTimeout),
            Self::FirstByte => (Failure::FirstByteLate, Limit::ResponseTimeout),
            Self::More => (Failure::MoreLate, Limit::UpstreamReadTimeout),
        }
    }
}

/// The timeout of one direction of a connection to an upstream.
#[derive(Default)]
pub(super) struct UpstreamPatience {
    /// The current phase of waiting, and its begin.
    waiting: Option<(Phase, Instant)>,
    timer: LateTimer,
}

impl UpstreamPatience {
    /// Ends the current wait, as the upstream has made progress.
    pub(super) fn on_progress(&mut self) {
        self.waiting = None;
    }

    /// Begins a wait, or continues one of the same phase. Ready with the failure when it has lasted too long.
    pub(super) fn poll_late(
        &mut self,
        phase: Phase,
        timeouts: &UpstreamTimeouts,
        cx: &mut Context<'_>,
    ) -> Poll<Failure> {
        let now = softclock::now();
        let since = match self.waiting {
            Some((waiting, since)) if waiting == phase => since,
            _ => now,
        };
        self.waiting = Some((phase, since));
        let Some(limit) = phase.limit(timeouts) else {
            return Poll::Pending;
        };
        ready!(self.timer.poll_until(since + limit, now, cx));
        let (failure, limit) = phase.late();
        // Only counted here: the failure is logged later, with the upstream and the request.
        limit.count_one();
        Poll::Ready(failure)
    }
}
