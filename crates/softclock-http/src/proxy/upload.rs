//! The body of a client's request: its beginning is taken before there is an upstream, the rest as that takes it.
//!
//! A client that sends slowly holds nothing of an upstream while its beginning is awaited, and bodies that are all
//! beginning, which most are, hold none for longer than the upstream needs. What was taken is kept until more is, so that
//! the request can be sent again: memory for it is bounded by the length of a beginning and what one read brings.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::HeaderMap;
use http_body::{Body, Frame};

use super::failure::Failure;
use super::upload_patience::UploadPatience;
use crate::carrier::Peer;
use crate::exchange::Client;
use crate::head::field_count;
use crate::limit::Limit;
use crate::request_body::RequestBody;

/// A request's body on its way from the client.
pub(super) struct Upload {
    incoming: RequestBody,
    kept: Kept,
    /// Those that were taken, for each try.
    trailers: Option<Box<HeaderMap>>,
    has_ended: bool,
    patience: UploadPatience,
    peer: Peer,
    /// In trailers.
    most_fields: usize,
}

/// What was taken from the client.
enum Kept {
    /// All of it is here.
    All {
        bytes: Bytes,
        /// This try has it, too.
        is_sent: bool,
    },
    /// More was taken than is kept.
    Gone,
}

impl Upload {
    /// Nothing where there is no body. In a box, as most requests have none and would be moved with room for one.
    pub(super) fn of(incoming: RequestBody, client: &Client) -> Option<Box<Self>> {
        if incoming.is_end_stream() {
            return None;
        }
        let live = client.worker.live();
        Some(Box::new(Self {
            incoming,
            kept: Kept::All {
                bytes: Bytes::new(),
                is_sent: false,
            },
            trailers: None,
            has_ended: false,
            patience: UploadPatience::new(&live.options.connection.timeouts),
            peer: client.peer,
            most_fields: live.options.connection.head.fields,
        }))
    }

    /// Takes the beginning, all of a body of up to so many bytes, before the first try. Asking is what sends 100 Continue.
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

    /// A try begins, with what is kept of those before.
    pub(super) fn begin(&mut self) {
        self.patience.restart();
        if let Kept::All { is_sent, .. } = &mut self.kept {
            *is_sent = false;
        }
    }

    /// Whether more was taken than is kept, so that there can't be another try.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.kept, Kept::Gone)
    }

    /// The next of it; nothing at its end.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, Failure>> {
        if let Kept::All { bytes, is_sent } = &mut self.kept
            && !*is_sent
        {
            *is_sent = true;
            if !bytes.is_empty() {
                return Poll::Ready(Ok(Some(Frame::data(bytes.clone()))));
            }
        }
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
            Err(frame) => {
                self.on_trailers(frame)?;
                self.poll_next(cx)
            }
        }
    }

    /// What comes next from the client, if that does not take too long.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Failure>> {
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            let limit = ready!(self.patience.poll_over(cx));
            limit.reached(self.peer, "a request ended with its body");
            return Poll::Ready(Err(Failure::ClientLate));
        };
        let frame = frame.transpose().map_err(|_| Failure::ClientBody)?;
        let bytes = frame
            .as_ref()
            .and_then(Frame::data_ref)
            .map_or(0, Bytes::len);
        self.patience.on_received(bytes);
        self.has_ended |= frame.is_none();
        Poll::Ready(Ok(frame))
    }

    /// This was taken for the try in progress.
    fn on_passed(&mut self, piece: &Bytes) {
        match &mut self.kept {
            _ if piece.is_empty() => {}
            Kept::All { bytes, .. } if bytes.is_empty() => bytes.clone_from(piece),
            kept => *kept = Kept::Gone,
        }
    }

    /// Trailers have a head's limit of fields. The scanner sees to it in HTTP/1, and h2 does not in HTTP/2.
    fn on_trailers(&mut self, frame: Frame<Bytes>) -> Result<(), Failure> {
        self.has_ended = true;
        let Ok(trailers) = frame.into_trailers() else {
            return Ok(());
        };
        if field_count(&trailers) > self.most_fields {
            Limit::RequestFields.reached(self.peer, "a request ended with its trailers");
            return Err(Failure::ClientBody);
        }
        self.trailers = Some(Box::new(trailers));
        Ok(())
    }
}

/// Pieces that become one. A single piece is not copied; of several, none keeps the buffer that it was read into.
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
