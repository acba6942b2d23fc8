//! A future that reports its end: a result, a panic, or a drop.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::join_error::JoinError;

pin_project! {
    /// Runs a future and passes its result to `R`, or its panic, or the fact that it was dropped before its end.
    pub(crate) struct Reported<F, T, R>
    where
        R: FnOnce(Result<T, JoinError>),
    {
        #[pin]
        future: F,
        // Dropped after the future, as fields are dropped in order.
        report: Report<T, R>,
    }
}

struct Report<T, R: FnOnce(Result<T, JoinError>)> {
    /// `None` once it was called.
    call: Option<R>,
    result: PhantomData<T>,
}

impl<F, T, R> Reported<F, T, R>
where
    F: Future<Output = T>,
    R: FnOnce(Result<T, JoinError>),
{
    pub(crate) fn new(future: F, call: R) -> Self {
        let report = Report {
            call: Some(call),
            result: PhantomData,
        };
        Self { future, report }
    }
}

impl<F, T, R> Future for Reported<F, T, R>
where
    F: Future<Output = T>,
    R: FnOnce(Result<T, JoinError>),
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let outcome = match catch_unwind(AssertUnwindSafe(|| this.future.poll(cx))) {
            Ok(polled) => Ok(ready!(polled)),
            Err(panic) => Err(JoinError::panicked(panic)),
        };
        this.report.make(outcome);
        Poll::Ready(())
    }
}

impl<T, R: FnOnce(Result<T, JoinError>)> Report<T, R> {
    fn make(&mut self, outcome: Result<T, JoinError>) {
        if let Some(call) = self.call.take() {
            call(outcome);
        }
    }
}

impl<T, R: FnOnce(Result<T, JoinError>)> Drop for Report<T, R> {
    fn drop(&mut self) {
        self.make(Err(JoinError::aborted()));
    }
}
