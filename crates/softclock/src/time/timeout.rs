//! A limit on the duration of a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::Sleep;
use super::sleep::limit;

/// Runs `future` for at most `duration`, and returns [`Elapsed`] if it has not completed by then.
///
/// Before that, the runtime checks the sockets once more and runs the tasks that are ready. An answer that has
/// arrived in time therefore counts, even if the process was stopped in between.
///
/// # Example
/// ```
/// use softclock::{Elapsed, timeout};
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let hour = softclock::sleep(Duration::from_secs(3600));
///     assert_eq!(timeout(Duration::from_millis(1), hour).await, Err(Elapsed));
///     assert_eq!(timeout(Duration::from_secs(1), async { 7 }).await, Ok(7));
/// });
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// Dropping the [`Timeout`] drops `future`. Nothing else is lost. To continue a future after its limit has passed, pin
/// it and pass `&mut future`.
///
/// # Panics
/// If called outside a runtime.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout {
        future,
        limit: limit(duration),
    }
}

impl<F> Timeout<F> {
    /// Allows the limit to end up to `slack` late, as [`Sleep::with_slack`] does.
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

/// The error of [`timeout`]: the future did not complete in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit has passed")
    }
}

impl std::error::Error for Elapsed {}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // The future comes first: a result that is ready counts, even after the limit.
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        this.limit.poll(cx).map(|()| Err(Elapsed))
    }
}
