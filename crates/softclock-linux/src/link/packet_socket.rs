//! AF_PACKET sockets (packet(7)).
//!
//! - [`inbox`]: receives a batch of frames by one system call.
//! - [`outbox`]: sends a batch of frames by one system call.

mod inbox;
mod outbox;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket_with};
use softclock_wire::packet::Offload;

use super::{Link, Pool, Received, Refused};
use crate::socket::NEW_SOCKET;
use inbox::Inbox;
use outbox::Outbox;

/// An AF_PACKET socket: receives all frames that arrive on a link, and sends frames on it. Nonblocking.
///
/// Frames are received and sent together with their pending offloads ([`Offload`]). Frames that the host sends on the
/// link are not received. While the socket is open, the link is in promiscuous mode.
pub struct PacketSocket {
    fd: OwnedFd,
    inbox: RefCell<Inbox>,
    outbox: RefCell<Outbox>,
}

impl PacketSocket {
    /// The length of the longest frame in bytes: an IP packet of 64 KiB and 64 bytes of link-layer headers.
    pub const MOST_BYTES: usize = MOST_BYTES;

    /// Opens a link, with a buffer of about `buffer_bytes` in the kernel for each direction. The buffers are smaller if
    /// the system's limits require it.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_RAW; `Unsupported` for links without Ethernet headers.
    pub fn open(link: &Link, buffer_bytes: usize) -> io::Result<Self> {
        let socket = Self::unbound(buffer_bytes)?;
        bind(socket.as_fd(), link, libc::ETH_P_ALL as u16)?;
        be_promiscuous(socket.as_fd(), link)?;
        Ok(socket)
    }

    /// Opens a link only to send: the socket receives nothing.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub(super) fn open_to_send(link: &Link, buffer_bytes: usize) -> io::Result<Self> {
        let socket = Self::unbound(buffer_bytes)?;
        bind(socket.as_fd(), link, 0)?;
        Ok(socket)
    }

    /// Creates a socket with all options. Without a protocol it receives nothing until `bind`.
    fn unbound(buffer_bytes: usize) -> io::Result<Self> {
        let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, NEW_SOCKET, None)?;
        let socket = Self {
            fd,
            inbox: RefCell::new(Inbox::new(&Pool::new())),
            outbox: RefCell::new(Outbox::new()),
        };
        for option in [IGNORE_OUTGOING, VNET_HEADER, AUXILIARY_DATA] {
            set(socket.as_fd(), libc::SOL_PACKET, option, &1i32)?;
        }
        set(
            socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            &1i32,
        )?;
        socket.set_buffers(buffer_bytes);
        Ok(socket)
    }

    /// Passes the frames that have arrived to `on_frame`, in order; returns their number, at most
    /// [`BATCH`](super::BATCH). Costs one system call, and for SCTP without a checksum the time to compute it. Frames
    /// stay in the memory that the kernel wrote them to. Up to 2 KiB are copied only if a frame longer than 2 KiB
    /// follows a shorter one in its place of the batch, or the other way round, and of frames below 253 bytes while
    /// more than 1024 frames wait.
    ///
    /// # Errors
    /// `WouldBlock` if no frame has arrived; `InvalidInput` for a frame, which is lost, with an offload that the kernel
    /// cannot describe; `NetworkDown` once when the link goes down.
    pub fn receive(&self, on_frame: impl FnMut(Result<Received, Refused>)) -> io::Result<usize> {
        self.inbox.borrow_mut().receive(self.fd.as_fd(), on_frame)
    }

    /// Sends frames in order, each with its pending offloads; returns the number sent, at most [`BATCH`](super::BATCH).
    /// Costs one system call. If a frame cannot be sent, the frames before it are sent, and a call that begins with
    /// this frame returns its error.
    ///
    /// # Errors
    /// Those of the first frame. `WouldBlock` or `ENOBUFS` if the link has no room; `EMSGSIZE` for a frame longer than
    /// the MTU; `NetworkDown`; `InvalidInput` for an offload that contradicts the frame.
    pub fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        self.outbox.borrow_mut().send(self.fd.as_fd(), frames)
    }

    /// Counts frames lost since the last call because the receive buffer was full.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn take_lost(&self) -> io::Result<u64> {
        // SAFETY: zero is valid for these integers.
        let mut statistics: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: `statistics` has room for `length` bytes, and both outlive the call.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        match result {
            0 => Ok(statistics.tp_drops.into()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sets the sizes of both buffers, above the system's limits if the process has CAP_NET_ADMIN.
    fn set_buffers(&self, bytes: usize) {
        let bytes = bytes as i32;
        for (forced, asked) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        ] {
            // Not fatal: a smaller buffer loses more frames, and they are counted.
            let _ = set(self.as_fd(), libc::SOL_SOCKET, forced, &bytes)
                .or_else(|_| set(self.as_fd(), libc::SOL_SOCKET, asked, &bytes));
        }
    }
}

impl fmt::Debug for PacketSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PacketSocket").field(&self.fd).finish()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Puts a link into promiscuous mode while the returned socket is open. The socket receives nothing.
///
/// # Errors
/// Those of [`PacketSocket::open`].
pub(super) fn promiscuous(link: &Link) -> io::Result<OwnedFd> {
    let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, NEW_SOCKET, None)?;
    bind(fd.as_fd(), link, 0)?;
    be_promiscuous(fd.as_fd(), link)?;
    Ok(fd)
}

/// Puts a link into promiscuous mode while this socket is open.
fn be_promiscuous(socket: BorrowedFd<'_>, link: &Link) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: link.index() as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(
        socket,
        libc::SOL_PACKET,
        libc::PACKET_ADD_MEMBERSHIP,
        &membership,
    )
}

/// Binds a socket to the frames of one protocol on a link. Protocol 0 is none.
///
/// # Errors
/// `Unsupported` for links without Ethernet headers; those of bind(2).
fn bind(socket: BorrowedFd<'_>, link: &Link, protocol: u16) -> io::Result<()> {
    // SAFETY: zero is valid for these integers.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = link.index() as i32;
    let mut length = size_of_val(&address) as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: `address` is of the socket's family and has `length` bytes; the kernel only reads it.
    if unsafe { libc::bind(fd, (&raw const address).cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `address` has room for `length` bytes, and both outlive the call.
    if unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    match address.sll_hatype {
        libc::ARPHRD_ETHER => Ok(()),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn set<T>(socket: BorrowedFd<'_>, level: i32, option: i32, value: &T) -> io::Result<()> {
    let value: *const T = value;
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` bytes, the size of `value`.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.cast(), bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

const MOST_BYTES: usize = (64 << 10) + 64;

/// include/uapi/linux/if_packet.h.
const AUXILIARY_DATA: i32 = 8;
const VNET_HEADER: i32 = 15;
const IGNORE_OUTGOING: i32 = 23;

#[cfg(test)]
mod tests;
