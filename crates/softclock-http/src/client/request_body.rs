//! Request bodies of HTTP/1 and HTTP/2.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::header::{EXPECT, HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use softclock::Instant;

/// A request body as it arrives.
pub(crate) enum RequestBody {
    /// A body that hyper reads, of HTTP/1.
    Http1(Incoming),
    /// A body on an HTTP/2 stream.
    Http2(StreamBody),
}

impl RequestBody {
    /// Returns the body on an HTTP/2 stream. Drops `in_use` with the body.
    pub(crate) fn of_stream(
        stream: RecvStream,
        in_use: Option<Rc<impl BodyUse + 'static>>,
    ) -> Self {
        Self::Http2(StreamBody {
            stream,
            data_ended: false,
            in_use: in_use.map(|in_use| in_use as Rc<dyn BodyUse>),
        })
    }

    /// Returns the time until which other bodies kept the client from sending this one: `now` while they do; `None` if
    /// they never did.
    pub(crate) fn held_back_until(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(body) => body.in_use.as_ref()?.held_back_until(now),
        }
    }
}

/// A body on an HTTP/2 stream. Reading a piece gives the client as many bytes of flow-control window again.
pub(crate) struct StreamBody {
    stream: RecvStream,
    /// Whether only trailers can follow.
    data_ended: bool,
    /// `None` without a body.
    in_use: Option<Rc<dyn BodyUse>>,
}

/// The stream of a body. The body holds it until it is dropped.
pub(crate) trait BodyUse {
    /// Records that the body is read and has not arrived: a client that waits for a 100 response must get it.
    fn on_awaited(&self);

    /// Returns the time until which the client could send no body, as the window of the connection was used up: `now`
    /// while it is; `None` if it never was.
    fn held_back_until(&self, now: Instant) -> Option<Instant>;
}

impl From<Incoming> for RequestBody {
    fn from(incoming: Incoming) -> Self {
        Self::Http1(incoming)
    }
}

impl StreamBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.data_ended {
            let data = self.stream.poll_data(cx);
            if let (Poll::Pending, Some(in_use)) = (&data, &self.in_use) {
                in_use.on_awaited();
            }
            match ready!(data) {
                Some(Ok(data)) => {
                    // This fails only if more is released than was received.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                // Also if the reason is NO_ERROR: h2 reports a reset here only if the client has not sent END_STREAM, so
                // the body is incomplete.
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.data_ended = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx)).transpose();
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)))
    }
}

/// Returns whether the client may send the body only after a 100 response (RFC 9110, section 10.1.1).
pub(crate) fn awaits_continue(headers: &HeaderMap) -> bool {
    let expected = headers.get(EXPECT).map(HeaderValue::as_bytes);
    expected.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Http1(incoming) => {
                let frame = Pin::new(incoming).poll_frame(cx);
                frame.map(|frame| frame.map(|frame| frame.map_err(io::Error::other)))
            }
            Self::Http2(body) => {
                let frame = body.poll_frame(cx);
                frame.map(|frame| frame.map(|frame| frame.map_err(io::Error::other)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(incoming) => incoming.is_end_stream(),
            Self::Http2(body) => body.stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(incoming) => incoming.size_hint(),
            Self::Http2(_) => SizeHint::default(),
        }
    }
}
