//! Response bodies: bytes in memory, or a file that is read as fast as the client takes it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::site::multipart::Parts;

pub use crate::net::buffers::CHUNK_BYTES;
pub use crate::site::file_body::FileBody;

/// The body of a response.
pub enum Body {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A file or a range of it, read when the connection asks for more.
    File(FileBody),
    /// Several ranges of a file, each with its own head.
    Parts(Box<Parts>),
}

impl Body {
    /// Returns a body without content.
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
        self.get_mut().poll_up_to(usize::MAX, cx)
    }

    fn is_end_stream(&self) -> bool {
        self.remaining() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining())
    }
}

impl Body {
    /// Ready with the next frame, of at most `max` bytes; `None` at the end.
    pub(crate) fn poll_up_to(
        &mut self,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let chunk = match self {
            Self::Bytes(bytes) if bytes.is_empty() => Ok(None),
            Self::Bytes(bytes) => Ok(Some(bytes.split_to(max.min(bytes.len())))),
            Self::File(file) => ready!(file.poll_chunk(max, cx)),
            Self::Parts(parts) => ready!(parts.poll_chunk(max, cx)),
        };
        Poll::Ready(chunk.transpose().map(|chunk| chunk.map(Frame::data)))
    }

    /// Gives the slot for a read that waits for the disk to another body, until this one is polled again.
    pub(crate) fn release_turn(&mut self) {
        match self {
            Self::Bytes(_) => {}
            Self::File(file) => file.release_turn(),
            Self::Parts(parts) => parts.release_turn(),
        }
    }

    fn remaining(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.remaining(),
            Self::Parts(parts) => parts.remaining(),
        }
    }
}
