//! Response bodies: bytes at hand, or a file read as fast as the client takes it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use softclock::fs::File;

use crate::multipart::Parts;
use crate::pool::{self, Pooled};
use crate::range::ByteRange;

/// The body of a response.
pub enum Body {
    /// Bytes in memory; none for an empty body.
    Bytes(Bytes),
    /// Part of a file, read when the connection asks for more.
    File(FileBody),
    /// Several parts of a file, each behind a head of its own.
    Parts(Box<Parts>),
}

impl Body {
    /// A body without content.
    pub const fn empty() -> Self {
        Self::Bytes(Bytes::new())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::File(file) => file
                .poll_chunk(cx)
                .map(|chunk| Some(chunk.transpose()?.map(Frame::data))),
            Self::Parts(parts) => parts
                .poll_chunk(cx)
                .map(|chunk| Some(chunk.transpose()?.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.remaining() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining())
    }
}

impl Body {
    fn remaining(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.remaining(),
            Self::Parts(parts) => parts.remaining(),
        }
    }
}

/// A part of a file on its way to a client, at most [`CHUNK_BYTES`] of it in memory.
///
/// If the file shrinks meanwhile the body ends with an error, which closes the connection: the length promised can't
/// be kept, and filling up would be a lie.
pub struct FileBody {
    file: File,
    position: u64,
    remaining: u64,
    /// A read that waits for the disk.
    reading: Option<Reading>,
}

type Reading = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>>>>;

impl FileBody {
    /// Bytes `range` of `file`, or all of it.
    pub fn new(file: File, range: Option<ByteRange>) -> Self {
        let (position, remaining) = range.map_or((0, file.metadata().len()), |range| {
            (range.first(), range.len())
        });
        Self {
            file,
            position,
            remaining,
            reading: None,
        }
    }

    /// Bytes still to come.
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The next bytes; none at the end.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if self.remaining == 0 {
            return Poll::Ready(Ok(None));
        }
        let chunk = match &mut self.reading {
            Some(reading) => {
                let result = std::task::ready!(reading.as_mut().poll(cx));
                self.reading = None;
                result?
            }
            None => match self.read_cached() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let max = self.chunk_len();
                    let read = self
                        .file
                        .read_at_on_helper(pool::buffer(max), max, self.position);
                    self.reading = Some(Box::pin(read));
                    return self.poll_chunk(cx);
                }
                result => result?,
            },
        };
        self.advance(chunk.len() as u64)?;
        Poll::Ready(Ok(Some(Pooled::new(chunk).into_bytes())))
    }

    fn read_cached(&self) -> io::Result<Vec<u8>> {
        let max = self.chunk_len();
        let mut chunk = pool::buffer(max);
        self.file.try_read_at(&mut chunk, max, self.position)?;
        Ok(chunk)
    }

    fn chunk_len(&self) -> usize {
        usize::try_from(self.remaining)
            .unwrap_or(usize::MAX)
            .min(CHUNK_BYTES)
    }

    fn advance(&mut self, read: u64) -> io::Result<()> {
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file has shrunk",
            ));
        }
        self.position += read;
        self.remaining -= read;
        Ok(())
    }
}

/// What is read at once: small enough to be in the processor's own cache still when it is sent.
pub const CHUNK_BYTES: usize = 64 << 10;
