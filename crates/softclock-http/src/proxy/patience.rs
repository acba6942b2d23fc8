//! How long an upstream may take, in each phase.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use softclock::Instant;

use super::failure::Failure;
use super::options::UpstreamTimeouts;
use crate::net::late_timer::LateTimer;
use crate::observe::limit::Limit;

/// What an upstream may take its time for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Send,
    FirstByte,
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

    /// The failure, and the limit, of a time that is up.
    fn late(self) -> (Failure, Limit) {
        match self {
            Self::Send => (Failure::SendLate, Limit::UpstreamSendTimeout),
            Self::FirstByte => (Failure::FirstByteLate, Limit::ResponseTimeout),
            Self::More => (Failure::MoreLate, Limit::UpstreamReadTimeout),
        }
    }
}

/// The patience with an upstream in one direction.
#[derive(Default)]
pub(super) struct UpstreamPatience {
    /// What is waited for, and since when.
    waiting: Option<(Phase, Instant)>,
    timer: LateTimer,
}

impl UpstreamPatience {
    /// What was waited for has come.
    pub(super) fn on_progress(&mut self) {
        self.waiting = None;
    }

    /// Nothing has happened: ready when that has lasted too long.
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
        // The failure is logged with the upstream and the request.
        limit.count_one();
        Poll::Ready(failure)
    }
}
