//! Soft timers for quinn.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use quinn::AsyncTimer;
use softclock::{FireWindow, Sleep};

use super::sleep_within;

/// A timer, which is registered when it is first polled.
#[derive(Debug)]
pub(super) struct Timer {
    deadline: Instant,
    sleep: Option<Sleep>,
}

impl Timer {
    pub(super) fn new(deadline: Instant) -> Self {
        Self {
            deadline,
            sleep: None,
        }
    }
}

/// Returns `deadline` on the clock of the runtime.
fn on_softclock(deadline: Instant) -> softclock::Instant {
    let left = deadline.saturating_duration_since(Instant::now());
    softclock::now() + left
}

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.deadline = deadline;
        if let Some(sleep) = &mut self.sleep {
            sleep.reset(on_softclock(deadline));
        }
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        // An idle thread does not spin for it: quinn's pacing makes lateness up, and its other timers are timeouts.
        let new = || sleep_within(FireWindow::roughly(on_softclock(deadline)));
        let sleep = self.sleep.get_or_insert_with(new);
        Pin::new(sleep).poll(cx)
    }
}
