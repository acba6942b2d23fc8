//! A connection to an upstream: hyper's client, driven by whoever waits for it.

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};

use super::body::RequestBody;
use super::failure::Failure;
use super::stream::{UpstreamStream, Watch};
use crate::carrier::Stream;

/// A connection, with one exchange at a time.
pub(super) struct Link {
    sender: SendRequest<RequestBody>,
    driver: Connection<UpstreamStream, RequestBody>,
    /// The driver has ended, and the connection with it.
    has_ended: bool,
    /// It has carried an exchange before.
    pub(super) is_reused: bool,
    pub(super) watch: Rc<Watch>,
}

impl Link {
    /// Speaks HTTP/1.1 on `stream`.
    pub(super) async fn new(stream: Stream, watch: Rc<Watch>) -> Result<Box<Self>, Failure> {
        let stream = UpstreamStream::new(stream, Rc::clone(&watch));
        let mut builder = Builder::new();
        builder.max_buf_size(BUFFER_BYTES).writev(true);
        let (sender, driver) = builder.handshake(stream).await.map_err(|e| malformed(&e))?;
        Ok(Box::new(Self {
            sender,
            driver,
            has_ended: false,
            is_reused: false,
            watch,
        }))
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, Failure> {
        let mut response = pin!(self.sender.try_send_request(request));
        // Only the driver makes the response ready, so that needs no waker of its own.
        let mut quiet = Context::from_waker(Waker::noop());
        let result = poll_fn(|cx| {
            let _ = self.drive(cx);
            match response.as_mut().poll(&mut quiet) {
                Poll::Pending if self.has_ended => Poll::Ready(None),
                result => result.map(Some),
            }
        })
        .await;
        match result {
            Some(Ok(response)) => Ok(response),
            Some(Err(error)) => Err(self.failure(Some(error.error()))),
            None => Err(self.failure(None)),
        }
    }

    /// Reads and writes what can be; ready when the connection has ended.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.has_ended
            && let Poll::Ready(result) = Pin::new(&mut self.driver).poll(cx)
        {
            self.has_ended = true;
            if let Err(error) = result {
                tracing::debug!(%error, "connection to an upstream ended");
            }
        }
        match self.has_ended {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Whether it can carry another exchange, as far as is known. `cx` is told when that changes.
    pub(super) fn is_idle(&mut self, cx: &mut Context<'_>) -> bool {
        self.drive(cx).is_pending() && self.sender.is_ready()
    }

    /// Leaves the rest of the exchange to a task: the upload goes on, whether the response is read or not.
    pub(super) fn detach(mut self: Box<Self>) {
        softclock::spawn_local(async move { poll_fn(|cx| self.drive(cx)).await });
    }

    /// The socket and what was read from it, after the response that ends HTTP there.
    pub(super) async fn into_stream(mut self: Box<Self>) -> (Stream, Bytes) {
        poll_fn(|cx| self.drive(cx)).await;
        let parts = self.driver.into_parts();
        (parts.io.into_inner(), parts.read_buf)
    }

    fn failure(&self, error: Option<&hyper::Error>) -> Failure {
        if let Some(failure) = self.watch.failure() {
            return failure;
        }
        match (self.watch.has_received.get(), error) {
            (true, Some(error)) if !error.is_incomplete_message() => malformed(error),
            (true, _) => Failure::Malformed("it ended before its head was complete".into()),
            (false, _) if self.is_reused => Failure::Stale,
            (false, _) => Failure::Closed,
        }
    }
}

fn malformed(error: &hyper::Error) -> Failure {
    let cause = error.source().map(|cause| format!(": {cause}"));
    Failure::Malformed(format!("{error}{}", cause.unwrap_or_default()))
}

/// Bounds the head of a response, and what is read or written at once.
const BUFFER_BYTES: usize = 64 << 10;
