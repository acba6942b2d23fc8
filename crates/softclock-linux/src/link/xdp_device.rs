//! A link by AF_XDP, with the memory and the socket that go with it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use softclock_wire::packet::Offload;

use super::{Buffer, Link, LongFrames, Pool, Received, Refused, XdpSocket};

/// An [`XdpSocket`], the pool to which frames are copied that wait long, and a socket for frames with pending
/// segmentation.
pub struct XdpDevice {
    pub(super) socket: XdpSocket,
    pool: Pool,
    long: LongFrames,
}

impl XdpDevice {
    pub(super) fn new(socket: XdpSocket) -> Self {
        Self {
            socket,
            pool: Pool::new(),
            long: LongFrames::NONE,
        }
    }

    /// Opens the socket for frames with pending segmentation, if that is of use.
    ///
    /// # Errors
    /// Those of [`PacketSocket::open`](super::PacketSocket::open).
    pub(super) fn with_long(socket: XdpSocket, link: &Link, buffer: usize) -> io::Result<Self> {
        let long = match socket.is_copied() {
            true => LongFrames::open(link, buffer)?,
            false => LongFrames::NONE,
        };
        Ok(Self {
            long,
            ..Self::new(socket)
        })
    }

    /// Creates a device of a queue. Frames with pending segmentation leave whole if the link is given, the kernel
    /// copies frames, and the socket for them can be opened; else segment by segment.
    pub(super) fn of_queue(queue: XdpQueue, link: Option<&Link>, buffer: usize) -> Self {
        let socket = *queue.0;
        let link = link.filter(|_| socket.is_copied());
        let long = link.and_then(|link| LongFrames::open(link, buffer).ok());
        Self {
            long: long.unwrap_or(LongFrames::NONE),
            ..Self::new(socket)
        }
    }

    /// Returns the queue, and closes the socket for frames with pending segmentation.
    pub(super) fn into_queue(self) -> XdpQueue {
        XdpQueue(Box::new(self.socket))
    }

    pub(super) fn can_send(&self) -> bool {
        self.socket.can_send()
    }

    /// Whether frames with pending segmentation leave whole.
    pub(super) const fn takes_offloads(&self) -> bool {
        self.long.are_taken()
    }

    pub(super) fn receive(
        &self,
        mut on_frame: impl FnMut(Result<Received, Refused>),
    ) -> io::Result<usize> {
        self.socket.receive_chunks(|received| {
            on_frame(received.map(|received| {
                // Frames that wait must leave chunks for those that arrive: above the limit they are copied.
                let is_full = self.socket.held() > MOST_HELD;
                received.map(|chunk| match is_full {
                    true => self.pool.copy_of(&chunk),
                    false => chunk.into(),
                })
            }))
        })
    }

    pub(super) fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a mut Buffer, &'a Offload)>,
    ) -> io::Result<usize> {
        self.socket.send_buffers(frames)
    }

    /// Sends frames from memory of the caller's, in order: each run of frames of one kind by one call.
    pub(super) fn send_bytes<'a>(
        &self,
        frames: impl Iterator<Item = (&'a [u8], &'a Offload)> + Clone,
    ) -> io::Result<usize> {
        let is_behind = || self.socket.is_behind();
        (self.long).send_among(frames, is_behind, |run| self.socket.send(run))
    }
}

/// A queue of a link by AF_XDP, to be moved to another thread. Frames that arrive meanwhile wait in its socket.
#[derive(Debug)]
pub struct XdpQueue(Box<XdpSocket>);

impl XdpQueue {
    /// The number of the queue.
    pub const fn number(&self) -> u32 {
        self.0.queue()
    }
}

impl AsFd for XdpDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for XdpDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("XdpDevice").field(&self.socket).finish()
    }
}

/// The most chunks of AF_XDP that waiting frames may hold. The others remain for frames that arrive.
const MOST_HELD: usize = XdpSocket::CHUNKS / 2;
