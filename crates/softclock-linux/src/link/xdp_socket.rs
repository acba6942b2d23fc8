//! AF_XDP sockets (Documentation/networking/af_xdp.rst).
//!
//! - [`ring`]: the rings that a socket shares with the kernel.
//! - [`umem`]: the memory that holds the frames (UMEM).
//! - [`chunks`]: the chunks of that memory to receive into, and their owner: the kernel or this process.
//! - [`receiving`]: the frames that the kernel has delivered.
//! - [`sending`]: the frames that the kernel has to send.
//! - [`program`]: the XDP program that directs frames to the socket.
//! - [`filter`]: the part of the program that chooses the frames.
//! - [`channels`]: several sockets on one queue, each with the frames of its endpoints.
//! - `shared`: a socket for receivers in several threads, with the feature `experiments`.
//! - [`error`]: why a link cannot be opened.

mod channels;
mod chunks;
mod error;
mod filter;
mod program;
mod receiving;
mod ring;
mod sending;
#[cfg(feature = "experiments")]
mod shared;
mod umem;

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc,
    XdpMmapOffsets, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketType, socket_with, sockopt};
use softclock_wire::packet::Offload;

use super::{Buffer, Link, Received, Refused};
use crate::bpf::{Attachment, SocketMap};
use crate::busy_poll::{self, BusyPoll};
use crate::socket::NEW_SOCKET;
pub use channels::{ChannelSettings, EndpointKey, XdpChannel, XdpChannels};
pub use chunks::Chunk;
use chunks::{Account, Chunks};
pub use error::{XdpError, XdpStep};
pub use filter::{Transport, XdpFilter};
use program::Others;
use receiving::take_batch;
use ring::{Consumer, Producer};
use sending::Sending;
#[cfg(feature = "experiments")]
pub use shared::SharedXdpSocket;
use umem::{Share, Umem};

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
    // In the order in which they have to be dropped: the program before the socket that it refers to.
    _attached: Arc<Attached>,
    arrived: RefCell<Consumer<XdpDesc>>,
    fd: OwnedFd,
    /// Has a descriptor of the socket, too.
    chunks: Open,
    /// Dropped after the socket, since the kernel reads the memory of frames to send while the socket is open. It keeps
    /// those that other sockets have lent.
    sending: RefCell<Sending>,
    /// Whether the kernel copies frames (copy mode). Such frames may come from another link of this machine, and so
    /// have partial checksums.
    is_copied: bool,
    queue: u32,
    lost: Cell<u64>,
}

/// Whether the kernel may copy frames to the socket's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// Zero-copy mode only: the device writes frames to the socket's memory. Opening fails if the driver cannot.
    Never,
    /// Copy mode is used if the driver has no zero-copy mode.
    Allowed,
}

/// Memory for the frames of one AF_XDP socket, or of several: a frame that one of them has received is then sent by
/// another, or by the same one, without a copy. Each socket has 12 MiB of it. Clones share the same memory.
///
/// ```
/// use softclock_linux::link::XdpMemory;
///
/// let memory = XdpMemory::new(2)?;
/// // XdpSocket::open_in(&memory, &first_link, settings)?, and the same for the second link.
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct XdpMemory(Arc<Umem>);

impl XdpMemory {
    /// Maps memory for this number of sockets.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn new(sockets: usize) -> io::Result<Self> {
        Ok(Self(Arc::new(Umem::new(sockets)?)))
    }
}

/// The settings to open a link with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XdpSettings {
    /// Whether frames may be copied. Sockets with common memory have the mode of the first.
    pub copies: Copies,
    /// The queue to receive from and send by; the host keeps the other queues. `None` for a link with only one queue.
    pub queue: Option<u32>,
    /// The frames that the socket takes; the host keeps the others.
    pub filter: XdpFilter,
}

impl XdpSocket {
    /// The length of the longest frame, in bytes.
    pub const MOST_BYTES: usize = umem::CHUNK_BYTES - HEADROOM_BYTES;

    /// The number of chunks to receive into, of one frame each.
    pub const CHUNKS: usize = umem::RECEIVE;

    /// The most queues of a link that [`open_queues`](Self::open_queues) opens, with 12 MiB of memory each.
    pub const MOST_QUEUES: usize = 16;

    /// Opens a link, with memory of its own; see [`open_in`](Self::open_in).
    ///
    /// # Errors
    /// See [`XdpError`]. After an error the link is unchanged.
    pub fn open(link: &Link, settings: XdpSettings) -> Result<Self, XdpError> {
        let memory = XdpMemory::new(1);
        let memory = memory.map_err(|error| XdpError::Failed(XdpStep::Socket, error))?;
        Self::open_in(&memory, link, settings)
    }

    /// Opens a link, with a share of this memory. Blocks for up to 1 s a queue, and 1 s more, if the link is busy,
    /// since the kernel frees the queue of a closed socket only a little later.
    ///
    /// # Errors
    /// See [`XdpError`]. After an error the link is unchanged, and the share is used up.
    pub fn open_in(
        memory: &XdpMemory,
        link: &Link,
        settings: XdpSettings,
    ) -> Result<Self, XdpError> {
        let (queue, others) = queue_of(link, settings.queue)?;
        let queues = [queue].into_iter();
        let sockets = Self::open_each(
            memory,
            link,
            settings.copies,
            &settings.filter,
            queues,
            others,
        )?;
        Ok(sockets.into_iter().next().expect("one for each queue"))
    }

    /// Opens all queues of a link: a socket for each, in the order of the queues. The sockets have common memory, and
    /// one program directs the frames of each queue to its socket. It stays until all of them are closed; frames of the
    /// queue of a closed one are lost.
    ///
    /// # Errors
    /// See [`XdpError`]: `Queues` for a link with more than [`MOST_QUEUES`](Self::MOST_QUEUES). After an error the link
    /// is unchanged.
    pub fn open_queues(
        link: &Link,
        copies: Copies,
        filter: &XdpFilter,
    ) -> Result<Vec<Self>, XdpError> {
        let queues = count_queues(link)?;
        if !(1..=Self::MOST_QUEUES).contains(&queues) {
            return Err(XdpError::Queues(queues));
        }
        let memory = XdpMemory::new(queues);
        let memory = memory.map_err(|error| XdpError::Failed(XdpStep::Socket, error))?;
        let queues = 0..queues as u32;
        Self::open_each(&memory, link, copies, filter, queues, Others::Dropped)
    }

    /// Opens these queues of a link.
    fn open_each(
        memory: &XdpMemory,
        link: &Link,
        copies: Copies,
        filter: &XdpFilter,
        queues: impl Iterator<Item = u32>,
        others: Others,
    ) -> Result<Vec<Self>, XdpError> {
        let failed = |step| move |error| XdpError::Failed(step, error);
        let promiscuous = filter.promiscuous(link);
        let promiscuous = promiscuous.map_err(failed(XdpStep::Promiscuity))?;
        let XdpMemory(umem) = memory;
        let bound: Vec<Bound> = queues
            .map(|queue| Bound::to(umem, link, copies, queue))
            .collect::<Result<_, _>>()?;
        let sockets = bound.iter().map(|one| (one.queue, one.fd.as_fd()));
        // The program last: it redirects frames as soon as it is attached, and the host loses them.
        let (program, map) =
            program::load(sockets, filter, others).map_err(failed(XdpStep::Program))?;
        let attachment = retry_while_busy(|| program.attach_xdp(link.index()));
        let attached = Arc::new(Attached {
            _attachment: attachment.map_err(failed(XdpStep::Driver))?,
            _map: map,
            _promiscuous: promiscuous,
        });
        Ok(bound
            .into_iter()
            .map(|bound| bound.attached(attached.clone()))
            .collect())
    }

    /// Passes the frames that have arrived to `on_frame`, in order; returns their number, at most
    /// [`BATCH`](super::BATCH). Reads memory, without a system call in most cases. The memory of a frame goes back to
    /// the kernel when `on_frame` returns.
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
        on_frame: impl FnMut(Result<Received<Chunk>, Refused>),
    ) -> io::Result<usize> {
        let mut arrived = self.arrived.borrow_mut();
        let chunks = &self.chunks.0;
        take_batch(
            &mut arrived,
            chunks,
            Account::COMMON,
            self.is_copied,
            on_frame,
        )
    }

    /// Makes calls on the socket run the receive work of its queue, or turns that off again; see
    /// [`busy_poll`](crate::busy_poll). Ends with the socket.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `Unsupported` for kernels before 5.11.
    pub fn set_busy_poll(&self, to: BusyPoll) -> io::Result<()> {
        busy_poll::socket::set(self.fd.as_fd(), to)
    }

    /// The number of the queue that the socket receives from and sends by.
    pub const fn queue(&self) -> u32 {
        self.queue
    }

    /// Whether the kernel copies frames.
    pub(super) const fn is_copied(&self) -> bool {
        self.is_copied
    }

    /// The number of chunks that are held, out of [`CHUNKS`](Self::CHUNKS).
    pub fn held(&self) -> usize {
        self.chunks.0.held()
    }

    /// Sends frames in order and performs their pending offloads; returns the number sent, at most
    /// [`BATCH`](super::BATCH). If a frame cannot be sent, the frames before it are sent, and a call that begins with
    /// this frame returns its error.
    ///
    /// # Errors
    /// Those of the first frame, no part of which is sent then. `WouldBlock` if the link has no room; `EMSGSIZE` for a
    /// frame longer than [`MOST_BYTES`](Self::MOST_BYTES); `E2BIG` for a frame of more segments than fit into the ring;
    /// `InvalidInput` for an empty frame or an offload that contradicts the frame; `NetworkDown`; `ENXIO` if the socket
    /// [cannot send](Self::can_send).
    pub fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        let mut sending = self.sending.borrow_mut();
        sending.send(self.fd.as_fd(), frames)
    }

    /// Sends frames as [`send`](Self::send) does, but those without pending segmentation that lie in the memory of this
    /// socket are not copied: their buffers are empty afterwards, and the kernel gets their chunks back once the link
    /// has sent them.
    ///
    /// # Errors
    /// Those of [`send`](Self::send). The buffers of frames that are not sent stay as they are, except that a checksum
    /// may be complete.
    pub fn send_buffers<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a mut Buffer, &'a Offload)>,
    ) -> io::Result<usize> {
        let mut sending = self.sending.borrow_mut();
        sending.send_buffers(self.fd.as_fd(), frames)
    }

    /// Whether the link has a transmit queue of the socket's number. It may have fewer than receive queues.
    pub fn can_send(&self) -> bool {
        self.sending.borrow().can_send()
    }

    /// Whether the kernel had no room at the last call, so that frames may be waiting in the ring. They leave only by
    /// [`flush`](Self::flush), or by a [`send`](Self::send) that finds room.
    pub fn is_behind(&self) -> bool {
        self.sending.borrow().is_behind()
    }

    /// Asks the kernel to send the frames that wait in the ring.
    pub fn flush(&self) {
        self.sending.borrow_mut().flush(self.fd.as_fd());
    }

    /// Takes back the memory of frames that the link has sent, and returns their number, without those that a
    /// [`send`](Self::send) has found before. Reads memory, without a system call. Frees room early; a send without
    /// room does the same.
    pub fn take_completions(&self) -> usize {
        self.sending.borrow_mut().reclaim()
    }

    /// Counts frames that [`send`](Self::send) accepted and the link then refused, since the last call: the link had no
    /// carrier, or the driver no room.
    pub fn take_refused(&self) -> u64 {
        self.sending.borrow_mut().take_refused()
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

/// The program that directs frames to a socket, or to several, and what it needs.
struct Attached {
    // In the order in which they have to be dropped: the program before the map that it refers to.
    _attachment: Attachment,
    _map: SocketMap,
    _promiscuous: Option<OwnedFd>,
}

/// A socket that is bound to a queue. It receives nothing before a program directs frames to it.
struct Bound {
    queue: u32,
    arrived: Consumer<XdpDesc>,
    fd: OwnedFd,
    chunks: Open,
    sending: Sending,
    is_copied: bool,
}

impl Bound {
    fn to(umem: &Arc<Umem>, link: &Link, copies: Copies, queue: u32) -> Result<Self, XdpError> {
        let failed = |step| move |error| XdpError::Failed(step, error);
        let (fd, share, rings) = prepare(umem).map_err(failed(XdpStep::Socket))?;
        let waker = fd.try_clone().map_err(failed(XdpStep::Socket))?;
        let chunks = Chunks::new(umem.clone(), share, rings.fill, waker, None);
        // From here on an error drops `chunks`, which closes its descriptor of the socket.
        let chunks = Open(chunks);
        retry_while_busy(|| bind(fd.as_fd(), umem, link, copies, queue))
            .map_err(failed(XdpStep::Queue))?;
        if share.is_first() {
            let owner = fd.try_clone().map_err(failed(XdpStep::Socket))?;
            *umem.owner() = Some(owner);
        }
        let options = sockopt::xdp_options(&fd).unwrap_or(XdpOptionsFlags::empty());
        let is_copied = !options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        let mut sending = rings.sending;
        sending.on_bound(link.has_transmit_queue(queue), is_copied);
        Ok(Self {
            queue,
            arrived: rings.arrived,
            fd,
            chunks,
            sending,
            is_copied,
        })
    }

    fn attached(self, attached: Arc<Attached>) -> XdpSocket {
        XdpSocket {
            _attached: attached,
            arrived: RefCell::new(self.arrived),
            fd: self.fd,
            chunks: self.chunks,
            sending: RefCell::new(self.sending),
            is_copied: self.is_copied,
            queue: self.queue,
            lost: Cell::new(0),
        }
    }
}

/// The chunks of an open socket. Dropping this releases the socket, even while some chunks are held.
struct Open(Arc<Chunks>);

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

/// The queue to receive from, by the settings, and the action for the frames of other queues.
fn queue_of(link: &Link, queue: Option<u32>) -> Result<(u32, Others), XdpError> {
    match queue {
        Some(queue) => Ok((queue, Others::Passed)),
        None => match count_queues(link)? {
            1 => Ok((0, Others::Dropped)),
            queues => Err(XdpError::Queues(queues)),
        },
    }
}

/// The number of receive queues. A guess would lose the frames of the others.
fn count_queues(link: &Link) -> Result<usize, XdpError> {
    let queues = link.receive_queues();
    queues.map_err(|error| XdpError::Failed(XdpStep::Queues, error))
}

/// Creates a socket with a share of the memory and its rings, not yet bound to a link.
fn prepare(umem: &Arc<Umem>) -> io::Result<(OwnedFd, Share, Rings)> {
    let share = umem.take_share().ok_or(io::ErrorKind::InvalidInput)?;
    let fd = socket_with(AddressFamily::XDP, SocketType::RAW, NEW_SOCKET, None)?;
    // The kernel's order: the memory, the sizes of the rings, then their mappings.
    match share.is_first() {
        true => register(&fd, umem)?,
        false if umem.owner().is_none() => return Err(io::ErrorKind::InvalidInput.into()),
        false => {}
    }
    let (receive, send) = (share.receive() as u32, umem::SEND as u32);
    let receive = receive.next_power_of_two();
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
    let leaving = Producer::map(fd.as_fd(), XDP_PGOFF_TX_RING, &tx, send)?;
    let completed = Consumer::map(fd.as_fd(), XDP_UMEM_PGOFF_COMPLETION_RING, &cr, send)?;
    let rings = Rings {
        arrived: Consumer::map(fd.as_fd(), XDP_PGOFF_RX_RING, &rx, receive)?,
        fill: Producer::map(fd.as_fd(), XDP_UMEM_PGOFF_FILL_RING, &fr, fill_entries)?,
        sending: Sending::new(umem.clone(), share, leaving, completed),
    };
    Ok((fd, share, rings))
}

/// Tells the kernel of the memory, which belongs to this socket then.
fn register(socket: &OwnedFd, umem: &Umem) -> io::Result<()> {
    let region = XdpUmemReg {
        addr: umem.memory.start.as_ptr().expose_provenance() as u64,
        len: umem.memory.bytes as u64,
        chunk_size: umem::CHUNK_BYTES as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    Ok(sockopt::set_xdp_umem_reg(socket, region)?)
}

/// Binds a socket to a queue of a link, with wake-ups only where the kernel asks for them. Another socket than the
/// memory's first takes both settings from that one.
fn bind(
    socket: BorrowedFd<'_>,
    umem: &Umem,
    link: &Link,
    copies: Copies,
    queue: u32,
) -> io::Result<()> {
    let address = |flags| SocketAddrXdp::new(flags, link.index(), queue);
    if let Some(owner) = &*umem.owner() {
        let address = SocketAddrXdpWithSharedUmem {
            addr: address(SocketAddrXdpFlags::XDP_SHARED_UMEM),
            shared_umem_fd: owner.as_fd(),
        };
        return Ok(rustix::net::bind(socket, &address)?);
    }
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    if copies == Copies::Never {
        flags |= SocketAddrXdpFlags::XDP_ZEROCOPY;
    }
    Ok(rustix::net::bind(socket, &address(flags))?)
}

/// Takes a lock. A closure of a caller that has panicked under it leaves the data whole: rings and counters are updated
/// by whole frames.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Repeats `call` for about 1 s while it fails with `EBUSY`. The kernel's worker threads free the resources of a closed
/// socket, also of a process that has ended: mostly within 20 ms, but later while the machine is loaded or other links
/// are created and deleted.
fn retry_while_busy<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..BUSY_TRIES {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
    call()
}

/// The bytes that the kernel leaves free before a received frame (XDP_PACKET_HEADROOM).
const HEADROOM_BYTES: usize = 256;

const BUSY_TRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
