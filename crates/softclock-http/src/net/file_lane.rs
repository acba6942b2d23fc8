//! The way of a file's content to the socket past hyper, by `sendfile(2)`.
//!
//! hyper owns what is written on a connection, and its bodies are bytes in memory. So the body gives hyper as many bytes
//! as a part of the file has, of memory that nobody looks at ([`FILLER`]), and has the stream below hyper send the part
//! when hyper writes them. hyper goes on to count what it writes against Content-Length, to wait while the socket takes
//! nothing, and to be cut off with a client that is too slow.
//!
//! Which of the bytes written these are is known by their place alone, so that it does not matter whether hyper copies
//! them: they are the next ones. That rests on what hyper 1 does (`src/proto/h1`), and on nothing else:
//!
//! - It flushes its stream only when all is written that it has buffered (`Buffered::poll_flush`).
//! - A response's head is in the buffer before its body is asked for the first time, and from then on nothing enters the
//!   buffer but frames of this body, until it has ended (`Dispatcher::poll_write`; `100 Continue` and answers to bad heads
//!   belong before a head).
//! - With a Content-Length, a frame of the body is written as it is (`Encoder::encode`). Chunks have heads of their own;
//!   such responses keep off the lane.
//! - While something is in the buffer and the body is pending, hyper flushes (`Dispatcher::poll_loop`).
//!
//! So a body asks when it is asked for its first frame, and again with each frame of bytes that it has read, and then waits
//! for a flush. What hyper writes after that begins with the frame that the body gives next.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use softclock::fs::File;

use crate::net::socket::Socket;

#[cfg(test)]
mod tests;

/// What the bodies and the stream of one connection know of each other.
#[derive(Default)]
pub(crate) struct FileLane(RefCell<Lane>);

#[derive(Default)]
struct Lane {
    state: State,
    /// Who waits for a flush.
    waiter: Option<Waker>,
}

#[derive(Default)]
enum State {
    /// What hyper writes is to be written.
    #[default]
    Closed,
    /// The same; a body waits for it to be done.
    Asked,
    /// It is done: what that body gives next will be written next.
    Open,
    /// It is done, but the socket sends no files, or none at present.
    Refused,
    /// What hyper writes next stands for this.
    Loaded(Box<Part>),
}

/// What of a file is still to be sent.
struct Part {
    file: File,
    offset: u64,
    len: usize,
}

/// The stream's side.
impl FileLane {
    /// Sends what the next `offered` bytes stand for, and gives how many of them are done with; `None` if they are to be
    /// written themselves.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        socket: &mut impl Socket,
        offered: impl FnOnce() -> usize,
    ) -> Option<Poll<io::Result<usize>>> {
        let state = &mut self.0.borrow_mut().state;
        match state {
            State::Loaded(part) if part.len > 0 => Some(part.poll_send(cx, socket, offered())),
            State::Asked => None,
            _ => {
                *state = State::Closed;
                None
            }
        }
    }

    /// hyper has nothing left to write. The lane opens if the socket `sends_files`.
    ///
    /// # Errors
    /// If it has not written what stands for a file: then it is not known what its next bytes are.
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
        drop(lane);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        Ok(())
    }
}

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

/// A body's side.
pub(crate) struct Entrance {
    lane: Rc<FileLane>,
    /// Whether, when the lane opens, it does so for this body's next frame.
    asked: bool,
}

impl Entrance {
    pub(crate) const fn new(lane: Rc<FileLane>) -> Self {
        Self { lane, asked: false }
    }

    /// Waits until a part can be loaded; false if there is no use in waiting. To be called when the body is to give a
    /// frame, and no other.
    pub(crate) fn poll_open(&mut self, cx: &Context<'_>) -> Poll<bool> {
        let mut lane = self.lane.0.borrow_mut();
        match lane.state {
            State::Open if self.asked => return Poll::Ready(true),
            State::Refused if self.asked => {
                lane.state = State::Closed;
                return Poll::Ready(false);
            }
            // The flush after it will do.
            State::Loaded(_) => {}
            _ => lane.state = State::Asked,
        }
        self.asked = true;
        lane.waiter = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Has `len` bytes of `file` at `offset` sent, 1 to [`PART_BYTES`], when the bytes are written that this gives. To be
    /// called when the lane is open, and the bytes to be the body's next frame.
    pub(crate) fn load(&self, file: &File, offset: u64, len: usize) -> Bytes {
        let part = Part {
            file: file.clone(),
            offset,
            len,
        };
        self.lane.0.borrow_mut().state = State::Loaded(Box::new(part));
        Bytes::from_static(&FILLER[..len])
    }

    /// The frame that the body gives now is of bytes of its own.
    pub(crate) fn pass_by(&self) {
        self.lane.0.borrow_mut().state = State::Asked;
    }
}

pub(crate) fn shrunk() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file has shrunk")
}

/// As much as one call sends, and as a task may move before others have their turn.
pub(crate) const PART_BYTES: usize = 256 << 10;

/// Takes addresses, but no memory, as long as nobody reads it.
static FILLER: [u8; PART_BYTES] = [0; PART_BYTES];
