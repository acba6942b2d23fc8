//! The body of an upstream's response. Who reads it drives the connection that it comes from.

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

/// The body of a response, whoever has made it.
pub(crate) enum AnyBody {
    Own(Body),
    Passed(ResponseBody),
}

/// A body that did not come whole with its head.
pub(crate) struct ResponseBody {
    /// What came with the head.
    first: Bytes,
    /// Until the end of the body.
    link: Option<Box<Link>>,
    attempt: Attempt,
    options: Rc<ProxyOptions>,
    failed: Option<io::Error>,
}

impl ResponseBody {
    /// What follows on a head: a body in memory if all of it is there.
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

    /// Whether a client that ends its side is waited for as long as others.
    pub(crate) fn keeps_half_closed(&self) -> bool {
        self.options.half_close
    }

    /// Gives the connection back once nothing more comes from it.
    fn finish(&mut self) {
        if let Some(link) = self.link.take() {
            self.attempt.on_success();
            let options = &self.options;
            let pool = &self.attempt.upstream.pool;
            pool.park(link, options.idle_connections, options.idle_time);
        }
    }

    /// The next content, which waits for no read if it has come, or the trailers.
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
                // hyper drops what it has not written yet when it learns of an error, so not before the next turn.
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
