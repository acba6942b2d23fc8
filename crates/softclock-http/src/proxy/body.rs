//! Bodies on their way: a frame at a time, when the other side has room for it.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::ProxyOptions;
use super::link::Link;
use super::stream::Watch;
use super::upstream::Attempt;

/// The body of a client's request. It outlives a try that has not touched it.
pub(super) struct Upload {
    incoming: RefCell<Incoming>,
    is_touched: Cell<bool>,
}

impl Upload {
    /// Nothing where there is no body.
    pub(super) fn of(incoming: Incoming) -> Option<Rc<Self>> {
        if incoming.is_end_stream() {
            return None;
        }
        Some(Rc::new(Self {
            incoming: RefCell::new(incoming),
            is_touched: Cell::new(false),
        }))
    }

    /// Whether a part of it is gone.
    pub(super) fn is_touched(&self) -> bool {
        self.is_touched.get()
    }
}

/// The same as one upstream gets it.
pub(super) struct RequestBody {
    upload: Option<Rc<Upload>>,
    watch: Rc<Watch>,
}

impl RequestBody {
    pub(super) fn new(upload: Option<Rc<Upload>>, watch: Rc<Watch>) -> Self {
        watch.body_taken.set(upload.is_none());
        Self { upload, watch }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(upload) = &self.upload else {
            return Poll::Ready(None);
        };
        let mut incoming = upload.incoming.borrow_mut();
        let frame = Pin::new(&mut *incoming).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                upload.is_touched.set(true);
                // Behind trailers hyper asks for nothing more.
                let is_last = frame.is_trailers() || incoming.is_end_stream();
                self.watch.body_taken.set(is_last);
            }
            Poll::Ready(Some(Err(_))) => {
                upload.is_touched.set(true);
                self.watch.body_failed.set(true);
            }
            Poll::Ready(None) => self.watch.body_taken.set(true),
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        let ended = |upload: &Rc<Upload>| upload.incoming.borrow().is_end_stream();
        self.upload.as_ref().is_none_or(ended)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.upload {
            Some(upload) => upload.incoming.borrow().size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

/// The body of an upstream's response. Who reads it drives the connection that it comes from.
pub(crate) struct ResponseBody {
    incoming: Incoming,
    /// Until the end of the body; nothing where the connection is driven by a task.
    link: Option<Box<Link>>,
    attempt: Attempt,
    options: ProxyOptions,
    failed: Option<io::Error>,
}

impl ResponseBody {
    pub(super) fn new(
        incoming: Incoming,
        link: Box<Link>,
        attempt: Attempt,
        options: ProxyOptions,
    ) -> Self {
        let mut body = Self {
            incoming,
            link: None,
            attempt,
            options,
            failed: None,
        };
        // A client that does not read the response yet must be able to send the rest of its request.
        match link.watch.body_taken.get() {
            true => body.link = Some(link),
            false => link.detach(),
        }
        if body.incoming.is_end_stream() {
            body.finish();
        }
        body
    }

    /// Gives the connection back once nothing more comes from it.
    fn finish(&mut self) {
        if let Some(link) = self.link.take() {
            let options = &self.options;
            let pool = &self.attempt.upstream.pool;
            pool.park(link, options.idle_connections, options.idle_time);
        }
    }

    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(link) = &mut self.link else {
            return Pin::new(&mut self.incoming).poll_frame(cx);
        };
        // Only the driver makes a frame ready, so that needs no waker of its own. Asking before tells the driver that
        // one is wanted.
        let mut quiet = Context::from_waker(Waker::noop());
        let frame = Pin::new(&mut self.incoming).poll_frame(&mut quiet);
        if frame.is_ready() {
            return frame;
        }
        let ended = link.drive(cx).is_ready();
        let frame = Pin::new(&mut self.incoming).poll_frame(&mut quiet);
        match ended && frame.is_pending() {
            // It cannot be: the end of the connection ends the body.
            true => Poll::Ready(None),
            false => frame,
        }
    }

    fn on_error(&mut self, error: hyper::Error) -> io::Error {
        let link = self.link.take();
        let reason = link.and_then(|link| link.watch.failure());
        let reason = reason.map_or_else(|| error.to_string(), |failure| failure.to_string());
        tracing::warn!(upstream = %self.attempt.upstream, %reason, "the response ended too soon");
        self.attempt.on_failure(self.options.health);
        io::Error::other(error)
    }
}

impl Body for ResponseBody {
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
        match ready!(this.poll_incoming(cx)) {
            Some(Ok(frame)) => {
                // hyper does not ask for more behind these.
                if frame.is_trailers() {
                    // The driver reads the end only if somebody asks.
                    let mut quiet = Context::from_waker(Waker::noop());
                    let _ = Pin::new(&mut this.incoming).poll_frame(&mut quiet);
                    this.finish();
                } else if this.incoming.is_end_stream() {
                    this.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                // hyper drops what it has not written yet when it learns of an error, so not before the next turn.
                this.failed = Some(this.on_error(error));
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => {
                this.finish();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
