//! The body of an upstream's response. Polling the body drives the connection to the upstream.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::headers::prepare_trailers;
use super::link::Link;
use super::options::ProxyOptions;
use super::upstream::Attempt;
use crate::site::body::Body;

/// The body of a response, made by this server or by an upstream.
pub(crate) enum AnyBody {
    /// A body that is in memory or in a file. This includes short bodies of upstreams, which arrived with their head.
    Own(Body),
    /// A body that still arrives from an upstream.
    Passed(ResponseBody),
}

/// A body of which more is to come from an upstream.
pub(crate) struct ResponseBody {
    /// The content that arrived with the head.
    first: Bytes,
    /// The connection, until the end of the body.
    link: Option<Box<Link>>,
    attempt: Attempt,
    options: Rc<ProxyOptions>,
    /// An error that the next poll returns.
    failed: Option<io::Error>,
}

impl ResponseBody {
    /// Returns the body that follows a head. A body that has arrived completely is in memory, and its connection is
    /// free for the next request.
    pub(super) fn of(mut link: Box<Link>, attempt: Attempt, options: &Rc<ProxyOptions>) -> AnyBody {
        let first = link.receiving.take_first();
        let reader = &link.receiving.reader;
        let is_whole = reader.is_complete() && !reader.has_trailers();
        let mut body = Self {
            first,
            link: Some(link),
            attempt,
            options: Rc::clone(options),
            failed: None,
        };
        if is_whole {
            body.finish();
            return AnyBody::Own(Body::Bytes(body.first));
        }
        AnyBody::Passed(body)
    }

    /// Returns whether the exchange continues without limit after the client has ended its side
    /// ([`ProxyOptions::half_close`]).
    pub(crate) fn keeps_half_closed(&self) -> bool {
        self.options.half_close
    }

    /// Returns the connection to the pool at the end of the body.
    fn finish(&mut self) {
        if let Some(mut link) = self.link.take() {
            self.attempt.on_success();
            link.is_reused = true;
            let options = &self.options;
            let pool = &self.attempt.upstream.pool;
            pool.park(link, options.idle_connections, options.idle_time);
        }
    }

    /// Ready with the next content or the trailers; `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Frame<Bytes>>>> {
        let Some(link) = &mut self.link else {
            return Poll::Ready(Ok(None));
        };
        let content = match self.first.is_empty() {
            true => ready!(link.receiving.poll_content(cx))?,
            false => Some(std::mem::take(&mut self.first)),
        };
        let reader = &mut link.receiving.reader;
        let frame = match content {
            Some(content) => Some(Frame::data(content)),
            None => {
                let trailers = reader.take_trailers().and_then(prepare_trailers);
                trailers.map(Frame::trailers)
            }
        };
        if reader.is_complete() && !reader.has_trailers() {
            self.finish();
        }
        Poll::Ready(Ok(frame))
    }

    /// Closes the connection, and counts and logs the failure.
    fn on_error(&mut self, error: &io::Error) {
        self.link = None;
        let upstream = &self.attempt.upstream;
        upstream.warn(|held_back| {
            tracing::warn!(%upstream, reason = %error, held_back, "the response ended too soon");
        });
        self.attempt.on_failure(self.options.health);
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if let Some(error) = this.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match ready!(this.poll_next(cx)) {
            Ok(frame) => Poll::Ready(frame.map(Ok)),
            Err(error) => {
                // hyper discards buffered output when a body fails. Returning the error in the next turn lets hyper
                // write the buffered part of the response first.
                this.on_error(&error);
                this.failed = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.link.is_none() && self.failed.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let remaining = |link: &Link| link.receiving.reader.remaining();
        match self.link.as_deref().and_then(remaining) {
            Some(bytes) => SizeHint::with_exact(bytes + self.first.len() as u64),
            None => SizeHint::default(),
        }
    }
}
