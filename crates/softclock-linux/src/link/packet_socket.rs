//! The frames of a link, by AF_PACKET (packet(7)).

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

/// All frames that a link receives, and a way to send frames on it. Nonblocking.
///
/// Frames come with what their sender left to the link ([`Offload`]), and go with it. What the host sends on the link is
/// not received. While the socket is open, the link receives what is for others (promiscuous mode).
pub struct PacketSocket {
    fd: OwnedFd,
    inbox: RefCell<Inbox>,
    outbox: RefCell<Outbox>,
}

impl PacketSocket {
    /// The longest frame: of 64 KiB with the headers of the link layer.
    pub const MOST_BYTES: usize = MOST_BYTES;

    /// Opens the link, with room for about `buffer_bytes` of frames that were not taken yet, in each direction.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_RAW; `Unsupported` for links without Ethernet's headers.
    pub fn open(link: &Link, buffer_bytes: usize) -> io::Result<Self> {
        // Without a protocol, it receives nothing before it is set up.
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
        bind(socket.as_fd(), link, libc::ETH_P_ALL as u16)?;
        be_promiscuous(socket.as_fd(), link)?;
        Ok(socket)
    }

    /// Takes frames that are there, in order and by one system call; returns how many, [`BATCH`](super::BATCH) at most.
    /// Each stays in the memory that the kernel wrote it to, but for the first 2 KiB of longer ones and those below 256
    /// bytes.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; `InvalidInput` for a frame, now lost, whose offload the kernel has no name for;
    /// `NetworkDown` once when the link goes down.
    pub fn receive(&self, on_frame: impl FnMut(Result<Received, Refused>)) -> io::Result<usize> {
        self.inbox.borrow_mut().receive(self.fd.as_fd(), on_frame)
    }

    /// Sends frames in order, each with what is left to do with it, by one system call; tells how many,
    /// [`BATCH`](super::BATCH) at most. If one of them cannot be sent, those before it are: the next call that begins with it
    /// tells why.
    ///
    /// # Errors
    /// Those of the first frame. `WouldBlock` or `ENOBUFS` if the link has no room; `EMSGSIZE` for a frame longer than the
    /// link carries; `NetworkDown`; `InvalidInput` for an offload that contradicts the frame.
    pub fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        self.outbox.borrow_mut().send(self.fd.as_fd(), frames)
    }

    /// Frames that were lost since the last call because nobody took them in time.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn take_lost(&self) -> io::Result<u64> {
        // SAFETY: zero is valid for these integers.
        let mut statistics: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: `statistics` has room for the bytes told, and both outlive the call.
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

    /// Beyond the administrator's limits where that is allowed.
    fn set_buffers(&self, bytes: usize) {
        let bytes = bytes as i32;
        for (forced, asked) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        ] {
            // A smaller buffer than asked for is no failure: what it loses is counted.
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

/// Has a link receive what is for others, as long as the socket that this gives is open. That receives nothing.
///
/// # Errors
/// Those of [`PacketSocket::open`].
pub(super) fn promiscuous(link: &Link) -> io::Result<OwnedFd> {
    let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, NEW_SOCKET, None)?;
    bind(fd.as_fd(), link, 0)?;
    be_promiscuous(fd.as_fd(), link)?;
    Ok(fd)
}

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

/// Has a socket get a link's frames of a protocol, if that has headers of Ethernet.
fn bind(socket: BorrowedFd<'_>, link: &Link, protocol: u16) -> io::Result<()> {
    // SAFETY: zero is valid for these integers.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = link.index() as i32;
    let mut length = size_of_val(&address) as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: `address` is of the socket's family and has the length told; the kernel only reads it.
    if unsafe { libc::bind(fd, (&raw const address).cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `address` has room for the bytes told, and both outlive the call.
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
    // SAFETY: the kernel reads as many bytes as it is told that `value` has.
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
