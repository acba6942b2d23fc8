//! The body of a client's request. Its beginning is read before an upstream is chosen, the rest as fast as the upstream
//! accepts it.
//!
//! While the beginning is read, a slow client occupies no upstream. Most bodies are no longer than the beginning, so no
//! upstream ever waits for their clients. The beginning is kept until more of the body is read, so that a request whose
//! try has failed can be sent again. Memory is bounded by the length of the beginning and of one read.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::HeaderMap;
use http_body::{Body, Frame};

use super::failure::Failure;
use super::upload_patience::UploadPatience;
use super::upload_share::UploadPermit;
use crate::client::options::ConnectionOptions;
use crate::client::request_body::RequestBody;
use crate::net::carrier::Peer;
use crate::observe::limit::Limit;
use crate::syntax::head::field_count;

/// The body of a request, as it arrives from the client.
pub(super) struct Upload {
    incoming: RequestBody,
    kept: Kept,
    /// The trailers, once read. Kept for further tries.
    trailers: Option<Box<HeaderMap>>,
    /// Whether the client has sent all.
    has_ended: bool,
    patience: UploadPatience,
    /// The permit among the uploads in progress, held while the client still sends.
    permit: Option<UploadPermit>,
    peer: Peer,
    /// The limit of fields in trailers.
    most_fields: usize,
}

/// The part of a body that is kept for further tries.
enum Kept {
    /// All bytes read so far.
    All {
        bytes: Bytes,
        /// Whether the current try has sent them.
        is_sent: bool,
    },
    /// Nothing: more was read than can be kept.
    Gone,
}

impl Upload {
    /// Returns `None` if there is no body. Boxed, so that requests without a body, which are most, stay small to move.
    pub(super) fn of(
        incoming: RequestBody,
        peer: Peer,
        options: &ConnectionOptions,
    ) -> Option<Box<Self>> {
        if incoming.is_end_stream() {
            return None;
        }
        Some(Box::new(Self {
            incoming,
            kept: Kept::All {
                bytes: Bytes::new(),
                is_sent: false,
            },
            trailers: None,
            has_ended: false,
            patience: UploadPatience::new(&options.timeouts),
            permit: None,
            peer,
            most_fields: options.head.fields,
        }))
    }

    /// Reads at least `bytes` of the body, or all of a shorter one, before the first try. The first read makes the
    /// connection send 100 Continue.
    pub(super) async fn take_beginning(&mut self, bytes: usize) -> Result<(), Failure> {
        let mut beginning = Beginning::default();
        while beginning.len() < bytes && !self.has_ended && !self.incoming.is_end_stream() {
            match poll_fn(|cx| self.poll_frame(cx))
                .await?
                .map(Frame::into_data)
            {
                Some(Ok(piece)) => beginning.add(piece),
                Some(Err(frame)) => self.on_trailers(frame)?,
                None => {}
            }
        }
        self.kept = Kept::All {
            bytes: beginning.into_bytes(),
            is_sent: false,
        };
        Ok(())
    }

    /// Returns whether the client still sends, and the upload has no permit yet.
    pub(super) fn needs_permit(&self) -> bool {
        self.permit.is_none() && !self.has_ended && !self.incoming.is_end_stream()
    }

    /// Holds `permit` during all tries, until the client has sent all.
    pub(super) fn set_permit(&mut self, permit: UploadPermit) {
        self.permit = Some(permit);
    }

    /// Frees the upload's permit. Call it when the client has sent all.
    pub(super) fn release_permit(&mut self) {
        self.permit = None;
    }

    /// Begins a try, which sends the kept bytes again.
    pub(super) fn begin(&mut self) {
        self.patience.restart();
        if let Kept::All { is_sent, .. } = &mut self.kept {
            *is_sent = false;
        }
    }

    /// Returns whether more was read than is kept, so that another try is impossible.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.kept, Kept::Gone)
    }

    /// Ready with the next frame to send; `None` at the end.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, Failure>> {
        // First the kept bytes, which a previous try may have sent to another upstream.
        if let Kept::All { bytes, is_sent } = &mut self.kept
            && !*is_sent
        {
            *is_sent = true;
            if !bytes.is_empty() {
                return Poll::Ready(Ok(Some(Frame::data(bytes.clone()))));
            }
        }
        // Cloned, as a later try needs the trailers again.
        if self.has_ended {
            let trailers = self.trailers.as_deref().cloned();
            return Poll::Ready(Ok(trailers.map(Frame::trailers)));
        }
        let Some(frame) = ready!(self.poll_frame(cx))? else {
            return Poll::Ready(Ok(None));
        };
        match frame.into_data() {
            Ok(piece) => {
                self.on_passed(&piece);
                Poll::Ready(Ok(Some(Frame::data(piece))))
            }
            // Recurses once: the trailers end the body.
            Err(frame) => {
                self.on_trailers(frame)?;
                self.poll_next(cx)
            }
        }
    }

    /// Ready with the next frame from the client. Fails if the client exceeds a timeout or its minimum rate.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Failure>> {
        // Read before the timeout is checked, so that bytes that have arrived always count.
        let frame = Pin::new(&mut self.incoming).poll_frame(cx);
        let held_back = |now| self.incoming.held_back_until(now);
        let Poll::Ready(frame) = frame else {
            let limit = ready!(self.patience.poll_over(held_back, cx));
            limit.reached(self.peer, "request given up");
            return Poll::Ready(Err(Failure::ClientLate));
        };
        let frame = frame.transpose().map_err(|_| Failure::ClientBody)?;
        let bytes = frame
            .as_ref()
            .and_then(Frame::data_ref)
            .map_or(0, Bytes::len);
        self.patience.on_received(bytes, held_back);
        self.has_ended |= frame.is_none();
        Poll::Ready(Ok(frame))
    }

    /// Records a piece that was read for the try in progress: the first piece is kept, a second one ends all keeping.
    fn on_passed(&mut self, piece: &Bytes) {
        match &mut self.kept {
            _ if piece.is_empty() => {}
            Kept::All { bytes, .. } if bytes.is_empty() => bytes.clone_from(piece),
            kept => *kept = Kept::Gone,
        }
    }

    /// Records the trailers, which end the body. Fails if they exceed the limit of fields in a head. The scanner has
    /// checked this limit for HTTP/1, but h2 does not for HTTP/2.
    fn on_trailers(&mut self, frame: Frame<Bytes>) -> Result<(), Failure> {
        self.has_ended = true;
        let Ok(trailers) = frame.into_trailers() else {
            return Ok(());
        };
        if field_count(&trailers) > self.most_fields {
            Limit::RequestFields.reached(self.peer, "request given up");
            return Err(Failure::ClientBody);
        }
        self.trailers = Some(Box::new(trailers));
        Ok(())
    }
}

/// Joins pieces into one. A single piece is not copied; several are, so that none keeps the buffer that it was read
/// into.
#[derive(Default)]
struct Beginning {
    first: Bytes,
    joined: Vec<u8>,
}

impl Beginning {
    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    fn add(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
            return;
        }
        let first = std::mem::take(&mut self.first);
        self.joined.extend_from_slice(&first);
        self.joined.extend_from_slice(&piece);
    }

    fn into_bytes(self) -> Bytes {
        match self.joined.is_empty() {
            true => self.first,
            false => self.joined.into(),
        }
    }
}
