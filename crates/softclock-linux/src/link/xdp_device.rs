//! A link by AF_XDP, with the memory and the socket that go with it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use softclock_wire::packet::Offload;

use super::{BATCH, Buffer, Link, PacketSocket, Pool, Received, Refused, XdpSocket};

/// An [`XdpSocket`], the pool to which frames are copied that wait long, and a socket for frames with pending
/// segmentation.
///
/// Where the kernel copies each frame that AF_XDP sends, such a frame leaves by AF_PACKET: the kernel copies it once, and
/// the link cuts it, or the link's peer takes it whole. AF_XDP would send each segment on its own.
pub struct XdpDevice {
    pub(super) socket: XdpSocket,
    pool: Pool,
    long: Option<PacketSocket>,
}

impl XdpDevice {
    pub(super) fn new(socket: XdpSocket) -> Self {
        Self {
            socket,
            pool: Pool::new(),
            long: None,
        }
    }

    /// Opens the socket for frames with pending segmentation, if that is of use.
    ///
    /// # Errors
    /// Those of [`PacketSocket::open`].
    pub(super) fn with_long(socket: XdpSocket, link: &Link, buffer: usize) -> io::Result<Self> {
        let long = socket
            .is_copied()
            .then(|| PacketSocket::open_to_send(link, buffer));
        Ok(Self {
            long: long.transpose()?,
            ..Self::new(socket)
        })
    }

    /// Opens the socket for frames with pending segmentation if the link is given. Without it, as after an error, they
    /// leave segment by segment.
    pub(super) fn of_queue(queue: XdpQueue, link: Option<&Link>, buffer: usize) -> Self {
        let socket = *queue.0;
        let link = link.filter(|_| socket.is_copied());
        let long = link.and_then(|link| PacketSocket::open_to_send(link, buffer).ok());
        Self {
            long,
            ..Self::new(socket)
        }
    }

    /// Ends the socket for frames with pending segmentation.
    pub(super) fn into_queue(self) -> XdpQueue {
        XdpQueue(Box::new(self.socket))
    }

    /// Whether frames with pending segmentation leave whole.
    pub(super) const fn takes_offloads(&self) -> bool {
        self.long.is_some()
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
        let Some(long) = &self.long else {
            return self.socket.send(frames);
        };
        let frames = frames.take(BATCH);
        let is_long = |offload: &Offload| offload.segmentation.is_some();
        let mut sent = 0;
        loop {
            let rest = frames.clone().skip(sent);
            let Some((_, first)) = rest.clone().next() else {
                return Ok(sent);
            };
            let is_run_long = is_long(first);
            let run = rest.take_while(|(_, offload)| is_long(offload) == is_run_long);
            let wanted = run.clone().count();
            let result = match is_run_long {
                false => self.socket.send(run),
                // It would overtake the frames that wait in the ring.
                true if self.socket.is_behind() => Err(io::ErrorKind::WouldBlock.into()),
                true => long.send(run),
            };
            match result {
                Ok(some) if some < wanted => return Ok(sent + some),
                Ok(some) => sent += some,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => return Ok(sent),
            }
        }
    }
}

/// A queue of a link by AF_XDP, on its way to the thread that will receive from it. The frames that arrive meanwhile wait
/// in its socket.
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
