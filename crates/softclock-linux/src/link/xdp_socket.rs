//! AF_XDP sockets (Documentation/networking/af_xdp.rst).
//!
//! - [`ring`]: the rings that a socket shares with the kernel.
//! - [`umem`]: the memory that holds the frames (UMEM).
//! - [`chunks`]: the chunks of that memory to receive into, and their owner: the kernel or this process.
//! - [`program`]: the XDP program that directs frames to the socket.

mod chunks;
mod program;
mod ring;
mod umem;

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;
use std::{fmt, io, mem};

use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions,
    XdpMmapOffsets, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketType, send, socket_with, sockopt};
use softclock_wire::packet::{Headers, Offload, complete_checksum, partial_checksum, segments};

use super::packet_socket::promiscuous;
use super::{BATCH, Link, Received, Refused};
use crate::bpf::{Attachment, SocketMap};
use crate::clock::monotonic_ns;
use crate::socket::NEW_SOCKET;
pub use chunks::Chunk;
use chunks::Chunks;
use program::Others;
use ring::{Consumer, Producer};
use umem::Umem;

/// An AF_XDP socket: receives all frames of a link with one queue, or of one queue of a link, and sends frames on it.
/// Nonblocking.
///
/// The host does not see the frames that the socket receives. An XDP program in the driver redirects them, so the link
/// can have no other XDP program, and some of the link's features may be off while the socket is open.
///
/// Frames arrive as the driver sees them. VLAN tags that the device strips are lost, and so are frames longer than
/// [`MOST_BYTES`](Self::MOST_BYTES). A partial checksum from the peer of a virtual link is recognized only for TCP and
/// UDP over IP, by the sum of the pseudo-header in it. [`send`](Self::send) completes checksums and segmentation
/// itself, since neither the kernel nor the device does so for AF_XDP.
pub struct XdpSocket {
    // In the order in which they have to be dropped: the program before the map and the socket that it refers to.
    _attachment: Attachment,
    _map: SocketMap,
    _promiscuous: OwnedFd,
    arrived: RefCell<Consumer<XdpDesc>>,
    sending: RefCell<Sending>,
    fd: OwnedFd,
    /// Dropped after the socket, since the kernel writes to this memory while the socket is open.
    chunks: Open,
    /// Whether the kernel copies frames (copy mode). Such frames may come from another link of this machine, and so
    /// have partial checksums.
    is_copied: bool,
    lost: Cell<u64>,
}

/// The sending half of the socket.
struct Sending {
    leaving: Producer<XdpDesc>,
    completed: Consumer<u64>,
    /// Chunks that hold no frame.
    free: Vec<u64>,
    /// The last wake-up failed, as while the link is down: no frame leaves until one succeeds.
    is_stuck: bool,
    /// The kernel had no room at the last call for the frames submitted, or there was no room for another frame.
    is_behind: bool,
    /// Frames that the kernel accepted and the link refused, not yet reported.
    refused: u64,
}

/// Whether the kernel may copy frames to the socket's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// Zero-copy mode only: the device writes frames to the socket's memory. Opening fails if the driver cannot.
    Never,
    /// Copy mode is used if the driver has no zero-copy mode.
    Allowed,
}

/// The settings to open a link with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XdpSettings {
    /// Whether frames may be copied.
    pub copies: Copies,
    /// The queue to receive from and send by; the host keeps the other queues. `None` for a link with only one queue.
    pub queue: Option<u32>,
}

/// Why a link cannot be opened.
#[derive(Debug)]
pub enum XdpError {
    /// The link has this many queues, more than one, and the settings choose none.
    Queues(usize),
    /// A system call of this step failed.
    Failed(XdpStep, io::Error),
}

/// The steps of opening a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XdpStep {
    /// Promiscuous mode. Needs CAP_NET_RAW and an Ethernet link.
    Promiscuity,
    /// Creating the socket and its memory. Needs CAP_IPC_LOCK, or a limit of locked memory of at least 12 MiB.
    Socket,
    /// Binding to the queue. `EOPNOTSUPP` if the driver has no zero-copy mode and [`Copies::Never`] is set, `EBUSY` if
    /// another socket has the queue, `EINVAL` if the link has no queue of this number.
    Queue,
    /// Loading the XDP program. Needs CAP_BPF.
    Program,
    /// Attaching the program to the driver; see [`Program::attach_xdp`](crate::bpf::Program::attach_xdp).
    Driver,
}

impl XdpSocket {
    /// The length of the longest frame, in bytes.
    pub const MOST_BYTES: usize = umem::CHUNK_BYTES - HEADROOM_BYTES;

    /// The number of chunks to receive into, of one frame each.
    pub const CHUNKS: usize = umem::RECEIVE;

    /// Opens a link. Blocks for up to 200 ms if the link is busy, since the kernel frees the queue of a closed socket
    /// only a little later.
    ///
    /// # Errors
    /// See [`XdpError`]. After an error the link is unchanged.
    pub fn open(link: &Link, settings: XdpSettings) -> Result<Self, XdpError> {
        let failed = |step| move |error| XdpError::Failed(step, error);
        let (queue, others) = match (settings.queue, link.receive_queues()) {
            (Some(queue), _) => (queue, Others::Passed),
            (None, 1) => (0, Others::Dropped),
            (None, queues) => return Err(XdpError::Queues(queues)),
        };
        let promiscuous = promiscuous(link).map_err(failed(XdpStep::Promiscuity))?;
        let umem = Umem::new().map_err(failed(XdpStep::Socket))?;
        let (fd, rings) = prepare(&umem).map_err(failed(XdpStep::Socket))?;
        let waker = fd.try_clone().map_err(failed(XdpStep::Socket))?;
        let chunks = Chunks::new(umem, rings.fill, waker);
        // From here on an error drops `chunks`, which closes its descriptor of the socket.
        let chunks = Open(chunks);
        patiently(|| bind(fd.as_fd(), link, settings.copies, queue))
            .map_err(failed(XdpStep::Queue))?;
        let options = sockopt::xdp_options(&fd).unwrap_or(XdpOptionsFlags::empty());
        // The program last: it redirects frames as soon as it is attached, and the host loses them.
        let (program, map) =
            program::load(fd.as_fd(), queue, others).map_err(failed(XdpStep::Program))?;
        let attachment = patiently(|| program.attach_xdp(link.index()));
        Ok(Self {
            _attachment: attachment.map_err(failed(XdpStep::Driver))?,
            _map: map,
            _promiscuous: promiscuous,
            arrived: RefCell::new(rings.arrived),
            sending: RefCell::new(rings.sending),
            fd,
            chunks,
            is_copied: !options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY),
            lost: Cell::new(0),
        })
    }

    /// Passes the frames that have arrived to `on_frame`, in order; returns their number, at most [`BATCH`]. Reads
    /// memory, without a system call in most cases. The memory of a frame goes back to the kernel when `on_frame`
    /// returns.
    ///
    /// # Errors
    /// `WouldBlock` if no frame has arrived.
    pub fn receive(
        &self,
        mut on_frame: impl FnMut(Result<Received<&[u8]>, Refused>),
    ) -> io::Result<usize> {
        self.receive_chunks(|received| {
            on_frame(match &received {
                Ok(received) => Ok(Received {
                    bytes: &received.bytes,
                    offload: received.offload,
                    age: received.age,
                }),
                Err(refused) => Err(*refused),
            });
        })
    }

    /// Passes frames to `on_frame` as [`receive`](Self::receive) does, but gives their memory away: a chunk goes back
    /// to the kernel when it is dropped. While all [`CHUNKS`](Self::CHUNKS) are held, frames that arrive are lost and
    /// counted.
    ///
    /// # Errors
    /// `WouldBlock` if no frame has arrived.
    pub fn receive_chunks(
        &self,
        mut on_frame: impl FnMut(Result<Received<Chunk>, Refused>),
    ) -> io::Result<usize> {
        let mut arrived = self.arrived.borrow_mut();
        let mut now = None;
        let mut taken = 0;
        while taken < BATCH
            && let Some(description) = arrived.pop()
        {
            // A description that names no chunk of the kernel's is skipped, since its memory would have two owners.
            if let Some((chunk, stamp)) = self.chunks.0.hold(&description) {
                let now = *now.get_or_insert_with(monotonic_ns);
                on_frame(Ok(received(chunk, stamp, now, self.is_copied)));
            }
            taken += 1;
        }
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // One store for the batch; then one wake-up, if the kernel waits for chunks.
        arrived.release();
        self.chunks.0.wake();
        Ok(taken)
    }

    /// The number of chunks that are held, out of [`CHUNKS`](Self::CHUNKS).
    pub fn held(&self) -> usize {
        self.chunks.0.held()
    }

    /// Sends frames in order and performs their pending offloads; returns the number sent, at most [`BATCH`]. If a
    /// frame cannot be sent, the frames before it are sent, and a call that begins with this frame returns its error.
    ///
    /// # Errors
    /// Those of the first frame, no part of which is sent then. `WouldBlock` if the link has no room; `EMSGSIZE` for a
    /// frame longer than [`MOST_BYTES`](Self::MOST_BYTES); `E2BIG` for a frame of more segments than fit into the ring;
    /// `InvalidInput` for an offload that contradicts the frame; `NetworkDown`.
    pub fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        let mut sending = self.sending.borrow_mut();
        if sending.is_stuck {
            // Queueing frames while the link is down would make them leave as one burst when it comes up again.
            sending.wake(self.fd.as_fd())?;
        }
        sending.reclaim();
        let mut sent = 0;
        for (frame, offload) in frames.into_iter().take(BATCH) {
            match sending.put_all(self.fd.as_fd(), &self.chunks.0.umem, frame, offload) {
                Ok(()) => sent += 1,
                Err(error) if sent == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        sending.leaving.submit();
        // Submitted frames count as sent; the next call returns the error.
        let _ = sending.wake(self.fd.as_fd());
        Ok(sent)
    }

    /// Whether the kernel had no room at the last call, so that frames may be waiting in the ring. They leave only by
    /// [`flush`](Self::flush), or by a [`send`](Self::send) that finds room.
    pub fn is_behind(&self) -> bool {
        self.sending.borrow().is_behind
    }

    /// Asks the kernel to send the frames that wait in the ring.
    pub fn flush(&self) {
        let mut sending = self.sending.borrow_mut();
        if sending.is_behind {
            // The next `send` returns the error.
            let _ = sending.wake(self.fd.as_fd());
        }
    }

    /// Counts frames that [`send`](Self::send) accepted and the link then refused, since the last call: the link had no
    /// carrier, or the driver no room.
    pub fn take_refused(&self) -> u64 {
        mem::take(&mut self.sending.borrow_mut().refused)
    }

    /// Counts frames lost since the last call because no chunk was free, the ring was full, or the frame was too long.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn take_lost(&self) -> io::Result<u64> {
        let statistics = sockopt::xdp_statistics(&self.fd)?;
        let lost = statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0);
        Ok(lost - self.lost.replace(lost))
    }
}

impl Sending {
    /// Takes back the chunks whose frames have been sent.
    fn reclaim(&mut self) {
        while let Some(chunk) = self.completed.pop() {
            self.free.push(chunk);
        }
        self.completed.release();
    }

    /// Writes a frame, or all of its segments, to chunks and puts them into the ring, without submitting them. Puts
    /// either the whole frame or nothing.
    fn put_all(
        &mut self,
        socket: BorrowedFd<'_>,
        umem: &Umem,
        frame: &[u8],
        offload: &Offload,
    ) -> Result<(), Errno> {
        if offload.segmentation.is_none() {
            self.make_room(socket, 1)?;
            return self.put(umem, frame, offload);
        }
        let headers = Headers::of_frame(frame);
        let mut segments = segments(frame, &headers, offload).ok_or(Errno::INVAL)?;
        self.make_room(socket, segments.len())?;
        let offload = segments.offload();
        // An error can only come from the first segment, since it is the longest and all have the same headers. So no
        // frame is put in part.
        while let Some(bytes) = segments.next_bytes() {
            self.put_with(umem, bytes, &offload, |place| {
                segments.write_next(place);
            })?;
        }
        Ok(())
    }

    /// Makes room for `frames` frames, by at most one system call. After that call has found no room, this makes no
    /// further calls until the next [`wake`](Self::wake).
    fn make_room(&mut self, socket: BorrowedFd<'_>, frames: usize) -> Result<(), Errno> {
        if frames > umem::SEND {
            return Err(Errno::TOOBIG);
        }
        if !self.has_room(frames) {
            self.reclaim();
        }
        if !self.has_room(frames) && !self.is_behind {
            // The ring may be full of frames that are not submitted yet.
            self.leaving.submit();
            self.wake(socket)?;
            self.reclaim();
        }
        if self.has_room(frames) {
            return Ok(());
        }
        self.is_behind = true;
        Err(Errno::AGAIN)
    }

    /// Whether `frames` chunks are free and the ring has as many free entries.
    fn has_room(&mut self, frames: usize) -> bool {
        self.free.len() >= frames && self.leaving.room(frames as u32) as usize >= frames
    }

    /// Copies a frame into the ring, which must have room for it.
    fn put(&mut self, umem: &Umem, frame: &[u8], offload: &Offload) -> Result<(), Errno> {
        self.put_with(umem, frame.len(), offload, |place| {
            place.copy_from_slice(frame)
        })
    }

    /// Puts a frame of `length` bytes, written by `write`, into the ring, which must have room for it.
    fn put_with(
        &mut self,
        umem: &Umem,
        length: usize,
        offload: &Offload,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Errno> {
        if length > XdpSocket::MOST_BYTES {
            return Err(Errno::MSGSIZE);
        }
        let chunk = *self.free.last().expect("there is room");
        // SAFETY: the chunk is free, so the kernel does not access it, and this is the only reference to it.
        let bytes = &mut unsafe { umem.chunk(chunk).as_mut() }[..length];
        write(bytes);
        if let Some(checksum) = offload.checksum
            && !complete_checksum(bytes, checksum)
        {
            return Err(Errno::INVAL);
        }
        // Only a complete frame takes its chunk from the free ones.
        self.free.pop();
        self.leaving.push(XdpDesc {
            addr: chunk,
            len: length as u32,
            options: XdpDescOptions::empty(),
        });
        Ok(())
    }

    /// Makes the kernel send the submitted frames, if it needs a system call for it, until it has no room. One call
    /// sends a limited number of frames, and ends at a frame that the link refuses, which is then dropped.
    fn wake(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        (self.is_stuck, self.is_behind) = (false, false);
        let submitted = self.leaving.pending();
        let mut pending = submitted;
        // Each call but the last consumes at least one frame, which bounds the loop.
        for _ in 0..=submitted {
            if !self.leaving.needs_wakeup() {
                return Ok(());
            }
            match send(socket, &[], SendFlags::DONTWAIT) {
                Ok(_) => return Ok(()),
                Err(Errno::BUSY) => self.refused += 1,
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {
                    let left = self.leaving.pending();
                    // The kernel stopped without progress: it has no room. With progress, the call was only too short.
                    if left == pending {
                        self.is_behind = true;
                        return Ok(());
                    }
                    pending = left;
                }
                Err(error) => {
                    self.is_stuck = true;
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for XdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("XdpSocket").field(&self.fd).finish()
    }
}

/// The chunks of an open socket. Dropping this releases the socket, even while some chunks are held.
struct Open(Rc<Chunks>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The rings of a socket.
struct Rings {
    arrived: Consumer<XdpDesc>,
    fill: Producer<u64>,
    sending: Sending,
}

/// Creates a socket and its rings, not yet bound to a link.
fn prepare(umem: &Umem) -> io::Result<(OwnedFd, Rings)> {
    let fd = socket_with(AddressFamily::XDP, SocketType::RAW, NEW_SOCKET, None)?;
    let region = XdpUmemReg {
        addr: umem.0.start.expose_provenance().get() as u64,
        len: umem.0.bytes as u64,
        chunk_size: umem::CHUNK_BYTES as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    // The kernel's order: the memory, the sizes of the rings, then their mappings.
    sockopt::set_xdp_umem_reg(&fd, region)?;
    let (receive, send) = (umem::RECEIVE as u32, umem::SEND as u32);
    // The kernel delivers frames before it publishes that it has taken their chunks from the fill ring, so a chunk may
    // be given back while its old entry still counts: the ring needs twice the entries.
    let fill_entries = 2 * receive;
    sockopt::set_xdp_umem_fill_ring_size(&fd, fill_entries)?;
    sockopt::set_xdp_umem_completion_ring_size(&fd, send)?;
    sockopt::set_xdp_rx_ring_size(&fd, receive)?;
    sockopt::set_xdp_tx_ring_size(&fd, send)?;
    // Not fatal: with a smaller send buffer fewer frames can be in flight.
    let _ = sockopt::set_socket_send_buffer_size_force(&fd, umem::SEND * umem::CHUNK_BYTES);
    let XdpMmapOffsets { rx, tx, fr, cr } = sockopt::xdp_mmap_offsets(&fd)?;
    let sending = Sending {
        leaving: Producer::map(fd.as_fd(), XDP_PGOFF_TX_RING, &tx, send)?,
        completed: Consumer::map(fd.as_fd(), XDP_UMEM_PGOFF_COMPLETION_RING, &cr, send)?,
        free: Umem::to_send().collect(),
        is_stuck: false,
        is_behind: false,
        refused: 0,
    };
    let rings = Rings {
        arrived: Consumer::map(fd.as_fd(), XDP_PGOFF_RX_RING, &rx, receive)?,
        fill: Producer::map(fd.as_fd(), XDP_UMEM_PGOFF_FILL_RING, &fr, fill_entries)?,
        sending,
    };
    Ok((fd, rings))
}

/// Binds a socket to a queue of a link, with wake-ups only where the kernel asks for them.
fn bind(socket: BorrowedFd<'_>, link: &Link, copies: Copies, queue: u32) -> io::Result<()> {
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    if copies == Copies::Never {
        flags |= SocketAddrXdpFlags::XDP_ZEROCOPY;
    }
    let address = SocketAddrXdp::new(flags, link.index(), queue);
    rustix::net::bind(socket, &address).map_err(io::Error::from)
}

/// Repeats `call` for up to 200 ms while it fails with `EBUSY`: the kernel frees the resources of a closed socket or
/// program only a little later.
fn patiently<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..BUSY_TRIES {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
    call()
}

/// Describes a received frame. `stamp` is the program's time for it, 0 if the driver had no room for one.
fn received<B: Deref<Target = [u8]>>(
    frame: B,
    stamp: u64,
    now: u64,
    is_copied: bool,
) -> Received<B> {
    // In zero-copy mode frames come from the wire, so their checksums are complete.
    let checksum = is_copied.then(|| partial_checksum(&frame, &Headers::of_frame(&frame)));
    // Both times are of CLOCK_MONOTONIC.
    let age = if stamp == 0 {
        0
    } else {
        now.saturating_sub(stamp)
    };
    Received {
        bytes: frame,
        offload: Offload {
            checksum: checksum.flatten(),
            segmentation: None,
        },
        age: Duration::from_nanos(age),
    }
}

/// The bytes that the kernel leaves free before a received frame (XDP_PACKET_HEADROOM).
const HEADROOM_BYTES: usize = 256;

const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
