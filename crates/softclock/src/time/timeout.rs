//! A limit on the time that a future may take.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::Sleep;
use super::sleep::limit;

/// Runs `future` for no longer than `duration`.
///
/// Before it gives up on `future`, the runtime checks the sockets once more and runs the tasks that are ready then. So
/// an answer that arrives in time counts, even if the process was stopped meanwhile.
///
/// # Panics
/// Outside a runtime.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout {
        future,
        limit: limit(duration),
    }
}

impl<F> Timeout<F> {
    /// Lets the time end up to `slack` later, as [`Sleep::with_slack`] does.
    pub fn with_slack(self, slack: Duration) -> Self {
        Self {
            limit: self.limit.with_slack(slack),
            ..self
        }
    }
}

pin_project! {
    /// The future of [`timeout`].
    #[derive(Debug)]
    #[must_use = "a Timeout does nothing unless awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        #[pin]
        limit: Sleep,
    }
}

/// The time was up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was up")
    }
}

impl std::error::Error for Elapsed {}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        this.limit.poll(cx).map(|()| Err(Elapsed))
    }
}
