//! Sends file contents on a connection past hyper, with `sendfile(2)`.
//!
//! hyper controls all writes on a connection, and its bodies are bytes in memory. So the body gives hyper placeholder
//! bytes of the same length as the file part ([`FILLER`]), and the stream below hyper sends the part instead when hyper
//! writes the placeholder. hyper still compares the bytes written with Content-Length, waits while the socket accepts
//! none, and is stopped with a client that is too slow.
//!
//! The placeholder is recognised only by its position in the written bytes: it comes next. So hyper may copy it. This
//! depends on these properties of hyper 1 (`src/proto/h1`), and on no others:
//!
//! - It flushes its stream only after it has written everything that it has buffered (`Buffered::poll_flush`).
//! - A response's head is in the buffer before the body is polled for the first time. From then until the body has
//!   ended, only frames of this body enter the buffer (`Dispatcher::poll_write`; `100 Continue` and responses to bad
//!   heads precede a head).
//! - With a Content-Length, a frame of the body is written unchanged (`Encoder::encode`). Chunked responses do not use
//!   the lane, as each chunk has a head.
//! - While the buffer holds bytes and the body is pending, hyper flushes (`Dispatcher::poll_loop`).
//!
//! So a body asks for the lane when it is polled for its first frame, and again with each frame of bytes that it has
//! read itself, and then waits for a flush. After the flush, hyper's next write begins with the body's next frame.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use softclock::fs::File;

use crate::net::socket::Socket;

#[cfg(test)]
mod tests;

/// The state that the bodies and the stream of one connection share.
#[derive(Default)]
pub(crate) struct FileLane(RefCell<Lane>);

#[derive(Default)]
struct Lane {
    state: State,
    /// The body that waits for a flush.
    waiter: Option<Waker>,
}

#[derive(Default)]
enum State {
    /// hyper's writes go to the socket unchanged.
    #[default]
    Closed,
    /// As `Closed`, and a body waits for hyper to flush.
    Asked,
    /// hyper has flushed: the next frame of that body will be the next write.
    Open,
    /// hyper has flushed, but the socket cannot send files, at least at present.
    Refused,
    /// hyper's next writes are the placeholder of this part.
    Loaded(Box<Part>),
}

/// The part of a file that is still to be sent.
struct Part {
    file: File,
    offset: u64,
    len: usize,
}

/// The side of the stream.
impl FileLane {
    /// Sends file content in place of the next `offered` bytes and returns how many of them are done; `None` if the
    /// bytes themselves must be written.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        socket: &mut impl Socket,
        offered: impl FnOnce() -> usize,
    ) -> Option<Poll<io::Result<usize>>> {
        let state = &mut self.0.borrow_mut().state;
        match state {
            State::Loaded(part) if part.len > 0 => Some(part.poll_send(cx, socket, offered())),
            // These bytes precede the flush that the body waits for.
            State::Asked => None,
            // A part is complete, or the body did not use the open lane: ordinary bytes follow.
            _ => {
                *state = State::Closed;
                None
            }
        }
    }

    /// Records that hyper has written all its bytes. The lane opens for a waiting body if `sends_files` returns true.
    ///
    /// # Errors
    /// If hyper has not written a whole placeholder: then the meaning of its next bytes is unknown.
    pub(crate) fn on_flush(&self, sends_files: impl FnOnce() -> bool) -> io::Result<()> {
        let mut lane = self.0.borrow_mut();
        match &lane.state {
            State::Closed | State::Open | State::Refused => return Ok(()),
            State::Loaded(part) if part.len > 0 => {
                return Err(io::Error::other("a part of a file was not written"));
            }
            State::Asked | State::Loaded(_) => {}
        }
        lane.state = match sends_files() {
            true => State::Open,
            false => State::Refused,
        };
        let waiter = lane.waiter.take();
        // The waker may poll the body at once, which borrows the lane.
        drop(lane);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        Ok(())
    }
}

/// Sends from the part as many bytes as were `offered`, or fewer.
impl Part {
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut impl Socket,
        offered: usize,
    ) -> Poll<io::Result<usize>> {
        let len = self.len.min(offered);
        let sent = ready!(socket.poll_send_file(cx, &self.file, self.offset, len))?;
        if sent == 0 {
            return Poll::Ready(Err(shrunk()));
        }
        self.offset += sent as u64;
        self.len -= sent;
        Poll::Ready(Ok(sent))
    }
}

/// The side of a body.
pub(crate) struct Entrance {
    lane: Rc<FileLane>,
    /// Whether this body has asked, so that an open lane is for its next frame.
    asked: bool,
}

impl Entrance {
    pub(crate) const fn new(lane: Rc<FileLane>) -> Self {
        Self { lane, asked: false }
    }

    /// Waits until a part can be loaded; false if the socket cannot send files. Call only when the body is to produce a
    /// frame, and produce no other frame while pending.
    pub(crate) fn poll_open(&mut self, cx: &Context<'_>) -> Poll<bool> {
        let mut lane = self.lane.0.borrow_mut();
        match lane.state {
            State::Open if self.asked => return Poll::Ready(true),
            State::Refused if self.asked => {
                lane.state = State::Closed;
                return Poll::Ready(false);
            }
            // The previous part is still being written; the flush after it opens the lane.
            State::Loaded(_) => {}
            _ => lane.state = State::Asked,
        }
        self.asked = true;
        lane.waiter = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Loads `len` bytes of `file` at `offset`, 1 to [`PART_BYTES`], and returns their placeholder. The lane must be
    /// open, and the body's next frame must be the returned bytes.
    pub(crate) fn load(&self, file: &File, offset: u64, len: usize) -> Bytes {
        let part = Part {
            file: file.clone(),
            offset,
            len,
        };
        self.lane.0.borrow_mut().state = State::Loaded(Box::new(part));
        Bytes::from_static(&FILLER[..len])
    }

    /// Announces that the body's next frame contains its own bytes, and asks for the lane after them.
    pub(crate) fn pass_by(&self) {
        self.lane.0.borrow_mut().state = State::Asked;
    }
}

pub(crate) fn shrunk() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file has shrunk")
}

/// The most bytes that one call sends, which also bounds a task's work before other tasks run.
pub(crate) const PART_BYTES: usize = 256 << 10;

/// Placeholder bytes. They are never read, so they use address space but no memory.
static FILLER: [u8; PART_BYTES] = [0; PART_BYTES];
