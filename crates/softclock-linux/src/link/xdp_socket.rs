//! The frames of a link, by AF_XDP (Documentation/networking/af_xdp.rst).
//!
//! - [`ring`]: the rings that a socket shares with the kernel.
//! - [`umem`]: the memory with the frames.
//! - [`chunks`]: the parts of it that frames are received into, the kernel's or held by us.
//! - [`program`]: what hands frames to the socket.

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

/// All frames that a link with one queue receives, or those of one of its queues, and a way to send frames on it.
/// Nonblocking.
///
/// The host does not see what the link receives. A program of ours in the driver takes it, so no other can be there; the
/// link's features may differ as long as it is. Frames come as the driver sees them: tags of VLANs that the device takes off
/// are lost, and so are longer frames than [`MOST_BYTES`](Self::MOST_BYTES). Of the checksums that a virtual link's peer
/// leaves to it, those of TCP and UDP behind IP are known by the sum of the pseudo-header in them. What is to be sent is
/// completed here, since nothing below does.
pub struct XdpSocket {
    // In the order in which they have to go.
    _attachment: Attachment,
    _map: SocketMap,
    _promiscuous: OwnedFd,
    arrived: RefCell<Consumer<XdpDesc>>,
    sending: RefCell<Sending>,
    fd: OwnedFd,
    /// After the socket, since the kernel writes to their memory as long as that is open.
    chunks: Open,
    /// Frames are copied, and so may come from other links of this machine.
    is_copied: bool,
    lost: Cell<u64>,
}

struct Sending {
    leaving: Producer<XdpDesc>,
    completed: Consumer<u64>,
    /// Chunks that nothing is being sent from.
    free: Vec<u64>,
    /// The kernel does not take what waits.
    is_stuck: bool,
    /// The kernel had no room for all that waits, or for more.
    is_behind: bool,
    /// Frames that the kernel took and the link did not.
    refused: u64,
}

/// How frames get from the driver to the socket's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// Not at all: the device writes them there.
    Never,
    /// Copied if the driver cannot do it otherwise.
    Allowed,
}

/// How a link is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XdpSettings {
    /// How frames get to the socket's memory.
    pub copies: Copies,
    /// The queue whose frames the socket gets, and which it sends by; the host has those of other queues. `None` for a
    /// link with one queue, all of whose frames it gets.
    pub queue: Option<u32>,
}

/// Why a link cannot be opened.
#[derive(Debug)]
pub enum XdpError {
    /// It has several queues, as many as told, and none was chosen.
    Queues(usize),
    /// The system call for this failed.
    Failed(XdpStep, io::Error),
}

/// What is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XdpStep {
    /// Frames that are for others; CAP_NET_RAW and a link of Ethernet.
    Promiscuity,
    /// A socket and its memory; CAP_IPC_LOCK or a limit on locked memory that allows for 12 MiB.
    Socket,
    /// The link's queue. `EOPNOTSUPP` if the driver cannot do without copies, `EBUSY` if somebody has it, `EINVAL` if
    /// there is none of this number.
    Queue,
    /// A program in the kernel; CAP_BPF.
    Program,
    /// That the driver runs the program; see [`Program::attach_xdp`](crate::bpf::Program::attach_xdp).
    Driver,
}

impl XdpSocket {
    /// The longest frame.
    pub const MOST_BYTES: usize = umem::CHUNK_BYTES - HEADROOM_BYTES;

    /// Chunks that frames are received into.
    pub const CHUNKS: usize = umem::RECEIVE;

    /// Opens the link. Waits for up to 200 ms for a socket that had it and was just closed.
    ///
    /// # Errors
    /// See [`XdpError`]. Nothing of the link is changed then.
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
        // Whatever fails from here on leaves nothing of the socket behind.
        let chunks = Open(chunks);
        patiently(|| bind(fd.as_fd(), link, settings.copies, queue))
            .map_err(failed(XdpStep::Queue))?;
        let options = sockopt::xdp_options(&fd).unwrap_or(XdpOptionsFlags::empty());
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

    /// Takes frames that are there, in order and by a look at memory; returns how many, [`BATCH`] at most. Their memory
    /// goes back to the kernel when `on_frame` has returned.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
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

    /// Takes frames that are there, as [`receive`](Self::receive) does, each in the memory that the kernel wrote it to.
    /// What holds a frame decides when that goes back. While as many are held as there are, what arrives is lost, and
    /// counted.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
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
            if let Some((chunk, stamp)) = self.chunks.0.hold(&description) {
                let now = *now.get_or_insert_with(monotonic_ns);
                on_frame(Ok(received(chunk, stamp, now, self.is_copied)));
            }
            taken += 1;
        }
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        arrived.release();
        self.chunks.0.wake();
        Ok(taken)
    }

    /// How many chunks are held, of [`CHUNKS`](Self::CHUNKS).
    pub fn held(&self) -> usize {
        self.chunks.0.held()
    }

    /// Sends frames in order, each after what was left to do with it; tells how many, [`BATCH`] at most. If one of them
    /// cannot be sent, those before it are: the next call that begins with it tells why.
    ///
    /// # Errors
    /// Those of the first frame, of which nothing is sent then. `WouldBlock` if the link has no room; `EMSGSIZE` for a longer
    /// frame than [`MOST_BYTES`](Self::MOST_BYTES), `E2BIG` for one of more segments than there is ever room for;
    /// `InvalidInput` for an offload that contradicts the frame; `NetworkDown`.
    pub fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        let mut sending = self.sending.borrow_mut();
        if sending.is_stuck {
            // Else all that this link is to send would wait, to leave at once when it comes up again.
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
        // What was submitted counts as sent.
        let _ = sending.wake(self.fd.as_fd());
        Ok(sent)
    }

    /// Whether the kernel had no room when it was last asked, so that frames may be left. Nothing sends them but
    /// [`flush`](Self::flush), and [`send`](Self::send) of what there is room for.
    pub fn is_behind(&self) -> bool {
        self.sending.borrow().is_behind
    }

    /// Sends what was left for want of room.
    pub fn flush(&self) {
        let mut sending = self.sending.borrow_mut();
        if sending.is_behind {
            // The next `send` tells an error.
            let _ = sending.wake(self.fd.as_fd());
        }
    }

    /// Frames that were sent, and that the link refused since the last call: it had no carrier, or its driver no room.
    pub fn take_refused(&self) -> u64 {
        mem::take(&mut self.sending.borrow_mut().refused)
    }

    /// Frames that were lost since the last call because nobody took them in time, or because they were too long.
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
    /// Takes chunks back from which all was sent.
    fn reclaim(&mut self) {
        while let Some(chunk) = self.completed.pop() {
            self.free.push(chunk);
        }
        self.completed.release();
    }

    /// Puts a frame, or all segments that are to be made of it, where the kernel will find them; or nothing of it.
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
        // If one cannot be sent, the first cannot: it is the longest, and all have the same headers.
        while let Some(bytes) = segments.next_bytes() {
            self.put_with(umem, bytes, &offload, |place| {
                segments.write_next(place);
            })?;
        }
        Ok(())
    }

    /// Sees to it that so many frames can be put: by one call, and where that was in vain by none until a [`wake`](Self::wake).
    fn make_room(&mut self, socket: BorrowedFd<'_>, frames: usize) -> Result<(), Errno> {
        if frames > umem::SEND {
            return Err(Errno::TOOBIG);
        }
        if !self.has_room(frames) {
            self.reclaim();
        }
        if !self.has_room(frames) && !self.is_behind {
            // What fills the ring may be there since the kernel was not told of it yet.
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

    fn has_room(&mut self, frames: usize) -> bool {
        self.free.len() >= frames && self.leaving.room(frames as u32) as usize >= frames
    }

    /// Puts a frame for which there is room.
    fn put(&mut self, umem: &Umem, frame: &[u8], offload: &Offload) -> Result<(), Errno> {
        self.put_with(umem, frame.len(), offload, |place| {
            place.copy_from_slice(frame)
        })
    }

    /// Puts a frame of so many bytes, for which there is room, that `write` writes.
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
        // SAFETY: the chunk is free, so not the kernel's.
        let bytes = &mut unsafe { umem.chunk(chunk).as_mut() }[..length];
        write(bytes);
        if let Some(checksum) = offload.checksum
            && !complete_checksum(bytes, checksum)
        {
            return Err(Errno::INVAL);
        }
        self.free.pop();
        self.leaving.push(XdpDesc {
            addr: chunk,
            len: length as u32,
            options: XdpDescOptions::empty(),
        });
        Ok(())
    }

    /// Has the kernel send, where it does not by itself, until it has no room. A call takes some frames only, and ends at one
    /// that the link refuses, which is gone then.
    fn wake(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        (self.is_stuck, self.is_behind) = (false, false);
        let submitted = self.leaving.pending();
        let mut pending = submitted;
        for _ in 0..=submitted {
            if !self.leaving.needs_wakeup() {
                return Ok(());
            }
            match send(socket, &[], SendFlags::DONTWAIT) {
                Ok(_) => return Ok(()),
                Err(Errno::BUSY) => self.refused += 1,
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {
                    let left = self.leaving.pending();
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

/// The chunks of a socket that is open: chunks that are held when it is closed do not keep it open.
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

/// A socket with its rings, before it has a link.
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
    sockopt::set_xdp_umem_reg(&fd, region)?;
    let (receive, send) = (umem::RECEIVE as u32, umem::SEND as u32);
    // The kernel shows frames before it tells that it has taken their chunks out of the ring: each chunk is in it up to
    // twice.
    let fill_entries = 2 * receive;
    sockopt::set_xdp_umem_fill_ring_size(&fd, fill_entries)?;
    sockopt::set_xdp_umem_completion_ring_size(&fd, send)?;
    sockopt::set_xdp_rx_ring_size(&fd, receive)?;
    sockopt::set_xdp_tx_ring_size(&fd, send)?;
    // A smaller buffer only means that less can be under way.
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

fn bind(socket: BorrowedFd<'_>, link: &Link, copies: Copies, queue: u32) -> io::Result<()> {
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    if copies == Copies::Never {
        flags |= SocketAddrXdpFlags::XDP_ZEROCOPY;
    }
    let address = SocketAddrXdp::new(flags, link.index(), queue);
    rustix::net::bind(socket, &address).map_err(io::Error::from)
}

/// What a program or a socket holds that was just closed is free only a little later.
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

fn received<B: Deref<Target = [u8]>>(
    frame: B,
    stamp: u64,
    now: u64,
    is_copied: bool,
) -> Received<B> {
    // A device that writes frames to memory itself has their checksums finished.
    let checksum = is_copied.then(|| partial_checksum(&frame, &Headers::of_frame(&frame)));
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

/// What the kernel keeps free before frames that arrive (XDP_PACKET_HEADROOM).
const HEADROOM_BYTES: usize = 256;

const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
