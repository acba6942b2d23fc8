//! The receiving half of a connection to an upstream. Reads responses as fast as the client accepts them.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderMap;

use super::budget::CountedCarrier;
use super::failure::Failure;
use super::options::UpstreamTimeouts;
use super::patience::{Phase, UpstreamPatience};
use crate::net::buffers::{self, with_scratch};
use crate::syntax::response::{Head, ResponseReader};

/// The half of a connection that receives.
pub(super) struct Receiving {
    carrier: Rc<CountedCarrier>,
    timeouts: UpstreamTimeouts,
    patience: UpstreamPatience,
    pub(super) reader: ResponseReader,
    /// The bytes that arrived with the head: content, or after an upgrade the first bytes of the tunnel.
    first: Bytes,
    /// Whether any byte of a response was read, including interim responses.
    pub(super) has_received: bool,
}

impl Receiving {
    pub(super) fn new(carrier: Rc<CountedCarrier>) -> Self {
        Self {
            carrier,
            timeouts: UpstreamTimeouts::default(),
            patience: UpstreamPatience::default(),
            reader: ResponseReader::new(),
            first: Bytes::new(),
            has_received: false,
        }
    }

    /// Begins to wait for the response to a request; `is_head` if its method is HEAD, so that no body follows.
    pub(super) fn begin(&mut self, timeouts: UpstreamTimeouts, is_head: bool) {
        self.timeouts = timeouts;
        self.has_received = false;
        self.patience.on_progress();
        self.reader.begin(is_head);
    }

    /// Reads the head of the response, whose fields replace `fields`, and skips interim responses. The timeouts apply
    /// once the head `is_due` or has begun; an interim response does not start them, as it does not announce when the
    /// final one follows.
    pub(super) fn poll_head(
        &mut self,
        is_due: bool,
        fields: &mut HeaderMap,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, Failure>> {
        loop {
            let phase = match self.reader.is_in_head() {
                true => Some(Phase::More),
                false => is_due.then_some(Phase::FirstByte),
            };
            let read = |reader: &mut ResponseReader, bytes: &[u8]| match bytes {
                // The end of the connection.
                [] => Err(Failure::Closed),
                bytes => {
                    let head = reader.read_head(bytes, fields);
                    let head = head.map_err(|fault| Failure::Malformed(fault.to_string()))?;
                    Ok(head.map(|(head, end)| {
                        let first = content_behind(head.status, &bytes[end..], reader);
                        (head, first)
                    }))
                }
            };
            let head = ready!(self.poll_receive(phase, cx, read));
            return Poll::Ready(match head.and_then(|head| head) {
                Ok(None) => continue,
                Ok(Some((head, first))) => {
                    self.first = first;
                    Ok(head)
                }
                // A connection that ends within a response is the upstream's fault, and no reason to try again.
                Err(Failure::Closed) if self.has_received => Err(Failure::Malformed(
                    "it ended before its head was complete".into(),
                )),
                Err(failure) => Err(failure),
            });
        }
    }

    /// Takes the bytes that arrived with the head.
    pub(super) fn take_first(&mut self) -> Bytes {
        std::mem::take(&mut self.first)
    }

    /// Ready with the next content; `None` at the end of the body, after which the reader may have trailers.
    pub(super) fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        while self.reader.fault().is_none() && !self.reader.is_complete() {
            let read = |reader: &mut ResponseReader, bytes: &[u8]| match bytes {
                [] => {
                    reader.on_close();
                    Bytes::new()
                }
                bytes => content_of(bytes, reader),
            };
            let content = ready!(self.poll_receive(Some(Phase::More), cx, read));
            let content = content.map_err(|failure| io::Error::other(failure.to_string()))?;
            if !content.is_empty() {
                return Poll::Ready(Ok(Some(content)));
            }
        }
        Poll::Ready(match self.reader.fault() {
            Some(fault) => Err(io::Error::other(fault)),
            None => Ok(None),
        })
    }

    /// Ready when an idle connection has received bytes or an end, most likely its end.
    pub(super) fn poll_unexpected(&self, cx: &Context<'_>) -> Poll<()> {
        self.carrier.poll_receive(cx, &mut [0]).map(|_| ())
    }

    pub(super) fn carrier(&self) -> &CountedCarrier {
        &self.carrier
    }

    pub(super) fn into_carrier(self) -> Rc<CountedCarrier> {
        self.carrier
    }

    /// Passes the bytes that have arrived to `take`, none at the end of the connection. A lost connection is
    /// [`Failure::Closed`]. While no bytes arrive, the timeout of `phase` applies, if any.
    fn poll_receive<R>(
        &mut self,
        phase: Option<Phase>,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut ResponseReader, &[u8]) -> R,
    ) -> Poll<Result<R, Failure>> {
        // Parsed in the thread's scratch buffer, so that a waiting connection needs no buffer.
        let (carrier, reader) = (&self.carrier, &mut self.reader);
        let received = with_scratch(|scratch| {
            let received = carrier.poll_receive(cx, scratch);
            received.map_ok(|n| (n, take(reader, &scratch[..n])))
        });
        match received {
            Poll::Ready(Ok((bytes, result))) => {
                self.patience.on_progress();
                self.has_received |= bytes > 0;
                Poll::Ready(Ok(result))
            }
            Poll::Ready(Err(error)) => {
                // A reset is handled like an end; only the log shows the difference.
                tracing::debug!(%error, "connection to an upstream lost");
                Poll::Ready(Err(Failure::Closed))
            }
            Poll::Pending => match phase {
                Some(phase) => {
                    let late = self.patience.poll_late(phase, &self.timeouts, cx);
                    late.map(Err)
                }
                // Without a phase the upstream is not expected to send: the time before does not count.
                None => {
                    self.patience.on_progress();
                    Poll::Pending
                }
            },
        }
    }
}

/// Returns the content in the bytes that follow a head.
fn content_behind(status: StatusCode, bytes: &[u8], reader: &mut ResponseReader) -> Bytes {
    match status {
        StatusCode::SWITCHING_PROTOCOLS => Bytes::copy_from_slice(bytes),
        _ => content_of(bytes, reader),
    }
}

/// Removes the framing from bytes of a body. Returns their content.
fn content_of(bytes: &[u8], reader: &mut ResponseReader) -> Bytes {
    let mut content = buffers::buffer(bytes.len());
    reader.read_body(bytes, |piece| content.extend_from_slice(piece));
    buffers::into_bytes(content)
}
