//! The sending half of a connection to an upstream. Sends the head of a request, and its body as fast as the upstream
//! accepts it.

use std::future::poll_fn;
use std::io::{self, IoSlice, Write as _};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::HeaderMap;

use super::budget::CountedCarrier;
use super::failure::Failure;
use super::headers::{self, Length};
use super::options::UpstreamTimeouts;
use super::patience::{Phase, UpstreamPatience};
use super::upload::Upload;

/// The half of a connection that sends.
pub(super) struct Sending {
    carrier: Rc<CountedCarrier>,
    timeouts: UpstreamTimeouts,
    patience: UpstreamPatience,
    /// The head, and the size line before a chunk.
    lines: Vec<u8>,
    /// The number of bytes of `lines` that are sent.
    sent: usize,
    /// The content that follows `lines`.
    content: Bytes,
    /// The end of the chunk that contains `content`; empty without chunks.
    closing: &'static [u8],
    /// The part of the body that the client has not sent yet.
    to_come: ToCome,
    /// Whether any byte of the request was sent.
    pub(super) has_sent: bool,
    /// Whether a write has failed, so that the upstream accepts no more.
    is_broken: bool,
}

/// The part of a body that is still to come from the client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ToCome {
    Nothing,
    /// This many bytes.
    Sized(u64),
    /// Chunks, and perhaps trailers.
    Chunks,
}

impl Sending {
    pub(super) fn new(carrier: Rc<CountedCarrier>) -> Self {
        Self {
            carrier,
            timeouts: UpstreamTimeouts::default(),
            patience: UpstreamPatience::default(),
            lines: Vec::new(),
            sent: 0,
            content: Bytes::new(),
            closing: b"",
            to_come: ToCome::Nothing,
            has_sent: false,
            is_broken: false,
        }
    }

    /// Begins a request: `write` writes its head, and `length` is that of its body.
    pub(super) fn begin(
        &mut self,
        timeouts: UpstreamTimeouts,
        length: Length,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.timeouts = timeouts;
        self.has_sent = false;
        self.lines.clear();
        self.sent = 0;
        write(&mut self.lines);
        self.to_come = match length {
            Length::None | Length::Sized(0) => ToCome::Nothing,
            Length::Sized(bytes) => ToCome::Sized(bytes),
            Length::Chunked => ToCome::Chunks,
        };
    }

    /// Returns whether the upstream has no reason to wait before it answers: no more of the request comes from the
    /// client, or the upstream accepts no more.
    pub(super) fn is_all_taken(&self) -> bool {
        self.to_come == ToCome::Nothing || self.is_broken
    }

    /// Returns whether the request was sent completely.
    pub(super) fn is_complete(&self) -> bool {
        self.to_come == ToCome::Nothing && !self.is_broken && !self.has_unsent()
    }

    /// Returns whether more of the request is to be sent, and the upstream accepts it.
    pub(super) fn has_more(&self) -> bool {
        !self.is_broken && !self.is_complete()
    }

    fn has_unsent(&self) -> bool {
        self.sent < self.lines.len() || !self.content.is_empty() || !self.closing.is_empty()
    }

    /// Sends as much as possible; ready when the request is sent completely. A failed write is no error but leaves the
    /// future pending, as the upstream may have answered before it stopped reading.
    pub(super) fn poll_send(
        &mut self,
        upload: &mut Option<Box<Upload>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        while !self.is_broken {
            // Refilled before each write, so that the head and the first piece of the body leave together.
            if let Some(upload) = upload {
                self.take_content(upload, cx)?;
            }
            if !self.has_unsent() {
                // Pending here means waiting for the client, for which the upload has its own timeouts.
                return match self.to_come {
                    ToCome::Nothing => Poll::Ready(Ok(())),
                    _ => Poll::Pending,
                };
            }
            match self.poll_write(cx) {
                Poll::Ready(Ok(bytes)) => self.on_written(bytes),
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "an upstream takes no more of a request");
                    self.is_broken = true;
                }
                Poll::Pending => {
                    let late = self.patience.poll_late(Phase::Send, &self.timeouts, cx);
                    return late.map(Err);
                }
            }
        }
        Poll::Pending
    }

    /// Sends the rest of the request, independently of the response.
    pub(super) async fn finish(mut self, mut upload: Option<Box<Upload>>) {
        let sent = poll_fn(|cx| match self.poll_send(&mut upload, cx) {
            Poll::Pending if self.is_broken => Poll::Ready(Ok(())),
            result => result,
        });
        if let Err(failure) = sent.await {
            tracing::debug!("an upload failed: {failure}");
            // Ends the connection, so that the upstream does not treat the part that it received as the whole body.
            let _ = self.carrier.end();
        }
    }

    /// Writes the head or size line, the content and the end of its chunk with one system call.
    fn poll_write(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let lines = &self.lines[self.sent..];
        let written = if self.content.is_empty() && self.closing.is_empty() {
            self.carrier.poll_send(cx, &[IoSlice::new(lines)])
        } else {
            let parts = [lines, &self.content, self.closing].map(IoSlice::new);
            self.carrier.poll_send(cx, &parts)
        };
        match ready!(written)? {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            bytes => Poll::Ready(Ok(bytes)),
        }
    }

    fn on_written(&mut self, bytes: usize) {
        self.patience.on_progress();
        self.has_sent = true;
        // Subtracts the written bytes from the three parts in their order.
        let of_lines = bytes.min(self.lines.len() - self.sent);
        self.sent += of_lines;
        if self.sent == self.lines.len() {
            self.lines.clear();
            self.sent = 0;
        }
        let of_content = (bytes - of_lines).min(self.content.len());
        self.content.advance(of_content);
        self.closing = &self.closing[bytes - of_lines - of_content..];
    }

    /// Takes the next piece of the body from the client, once the previous one is sent. Frees the permit of the upload
    /// when the client has sent all.
    fn take_content(&mut self, upload: &mut Upload, cx: &mut Context<'_>) -> Result<(), Failure> {
        while self.to_come != ToCome::Nothing && self.content.is_empty() && self.closing.is_empty()
        {
            let Poll::Ready(frame) = upload.poll_next(cx) else {
                break;
            };
            match frame? {
                None => self.end(None)?,
                Some(frame) => match frame.into_data() {
                    Ok(content) => self.add(content)?,
                    Err(frame) => self.end(frame.into_trailers().ok().as_ref())?,
                },
            }
        }
        if self.to_come == ToCome::Nothing {
            upload.release_permit();
        }
        Ok(())
    }

    /// Adds a piece of the body. Fails if it exceeds the announced length.
    fn add(&mut self, content: Bytes) -> Result<(), Failure> {
        // An empty chunk would end the body.
        if content.is_empty() {
            return Ok(());
        }
        match &mut self.to_come {
            ToCome::Nothing => return Err(Failure::ClientBody),
            ToCome::Sized(left) => {
                let rest = left.checked_sub(content.len() as u64);
                *left = rest.ok_or(Failure::ClientBody)?;
                if *left == 0 {
                    self.to_come = ToCome::Nothing;
                }
            }
            ToCome::Chunks => {
                let length = content.len();
                write!(self.lines, "{length:x}\r\n").expect("a Vec takes all");
                self.closing = b"\r\n";
            }
        }
        self.content = content;
        Ok(())
    }

    /// Ends the body. Fails if it is shorter than announced.
    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<(), Failure> {
        match self.to_come {
            ToCome::Nothing => {}
            ToCome::Sized(_) => return Err(Failure::ClientBody),
            ToCome::Chunks => {
                self.lines.extend_from_slice(b"0\r\n");
                headers::write_trailers(&mut self.lines, trailers);
            }
        }
        self.to_come = ToCome::Nothing;
        Ok(())
    }
}
