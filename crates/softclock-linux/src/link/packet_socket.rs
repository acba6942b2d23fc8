//! The frames of a link, by AF_PACKET (packet(7)).

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, socket_with};
use rustix::time::{ClockId, clock_gettime};
use softclock_core::packet::Offload;

use super::Link;
use crate::socket::NEW_SOCKET;

/// All frames that a link receives, and a way to send frames on it. Nonblocking.
///
/// Frames come with what their sender left to the link ([`Offload`]), and go with it. What the host sends on the link is
/// not received. While the socket is open, the link receives what is for others (promiscuous mode).
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

/// A frame that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Its bytes, in the buffer's beginning.
    pub bytes: usize,
    /// What is left to do with it.
    pub offload: Offload,
    /// How long ago the kernel received it, by CLOCK_REALTIME; zero if that is not known.
    pub age: Duration,
}

impl PacketSocket {
    /// The longest frame: of 64 KiB with the headers of the link layer.
    pub const MOST_BYTES: usize = (64 << 10) + 64;

    /// Opens the link, with room for about `buffer_bytes` of frames that were not taken yet, in each direction.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_RAW; `Unsupported` for links without Ethernet's headers.
    pub fn open(link: &Link, buffer_bytes: usize) -> io::Result<Self> {
        // Without a protocol, it receives nothing before it is set up.
        let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, NEW_SOCKET, None)?;
        let socket = Self { fd };
        for option in [IGNORE_OUTGOING, VNET_HEADER, AUXILIARY_DATA] {
            socket.set(libc::SOL_PACKET, option, &1i32)?;
        }
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32)?;
        socket.set_buffers(buffer_bytes);
        socket.bind(link)?;
        let promiscuous = libc::packet_mreq {
            mr_ifindex: link.index() as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
        Ok(socket)
    }

    /// Takes the next frame; `WouldBlock` if there is none. The buffer should have [`MOST_BYTES`](Self::MOST_BYTES).
    ///
    /// # Errors
    /// `InvalidInput` where the frame's offload has no name here: it is lost; `InvalidData` for a frame that is longer than
    /// the buffer; `NetworkDown` once when the link goes down.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut header = [0; Offload::BYTES];
        // Room for a tag is left behind it.
        let room = buffer.len().saturating_sub(TAG_BYTES);
        let frame = &mut buffer[..room];
        let parts = [vector(&mut header), vector(frame)];
        let mut control = Control([0; CONTROL_BYTES]);
        // SAFETY: zero is valid for this structure of integers and pointers.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = parts.as_ptr().cast_mut();
        message.msg_iovlen = parts.len();
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES;
        // SAFETY: `message` describes buffers of ours that outlive the call.
        let read = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_TRUNC) };
        let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
        let bytes = read.saturating_sub(Offload::BYTES);
        if bytes > room {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let offload = Offload::from_bytes(&header).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel has filled `message` in, and its control data is in `control`.
        let notes = unsafe { Notes::of(&message) };
        let mut received = Received {
            bytes,
            offload,
            age: notes.received.map_or(Duration::ZERO, age),
        };
        if let Some(tag) = notes.tag
            && bytes >= ADDRESSES_BYTES
        {
            buffer.copy_within(ADDRESSES_BYTES..bytes, ADDRESSES_BYTES + TAG_BYTES);
            buffer[ADDRESSES_BYTES..ADDRESSES_BYTES + TAG_BYTES].copy_from_slice(&tag);
            received.bytes += TAG_BYTES;
            received.offload = offload.shifted(TAG_BYTES as u16);
        }
        Ok(received)
    }

    /// Sends a frame with what is left to do with it.
    ///
    /// # Errors
    /// `WouldBlock` or `ENOBUFS` if the link has no room; `EMSGSIZE` for a frame longer than the link carries;
    /// `NetworkDown`; `InvalidInput` for an offload that contradicts the frame.
    pub fn send(&self, frame: &[u8], offload: &Offload) -> io::Result<()> {
        let header = offload.to_bytes();
        let part = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let parts = [part(&header), part(frame)];
        // SAFETY: `parts` describes bytes that outlive the call and that the kernel only reads.
        let sent = unsafe { libc::writev(self.fd.as_raw_fd(), parts.as_ptr(), parts.len() as i32) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
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

    fn bind(&self, link: &Link) -> io::Result<()> {
        // SAFETY: zero is valid for these integers.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = link.index() as i32;
        let mut length = size_of_val(&address) as libc::socklen_t;
        let fd = self.fd.as_raw_fd();
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

    /// Beyond the administrator's limits where that is allowed.
    fn set_buffers(&self, bytes: usize) {
        let bytes = bytes as i32;
        for (forced, asked) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        ] {
            // A smaller buffer than asked for is no failure: what it loses is counted.
            let _ = self
                .set(libc::SOL_SOCKET, forced, &bytes)
                .or_else(|_| self.set(libc::SOL_SOCKET, asked, &bytes));
        }
    }

    fn set<T>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
        let value: *const T = value;
        // SAFETY: the kernel reads as many bytes as it is told that `value` has.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                value.cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn vector(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

/// What the kernel notes of a frame.
#[derive(Default)]
struct Notes {
    /// The tag of a VLAN that it took out of the frame.
    tag: Option<[u8; TAG_BYTES]>,
    /// When it received the frame, by CLOCK_REALTIME.
    received: Option<libc::timespec>,
}

impl Notes {
    /// # Safety
    /// `message` was filled in by recvmsg(2), and its control data is alive.
    unsafe fn of(message: &libc::msghdr) -> Self {
        let mut notes = Self::default();
        // SAFETY: the caller's promise.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
        // SAFETY: a header that these macros give lies within the control data.
        while let Some(control) = unsafe { next.as_ref() } {
            // SAFETY: the kernel puts the data behind its header.
            let data = unsafe { libc::CMSG_DATA(control) };
            match (control.cmsg_level, control.cmsg_type) {
                (libc::SOL_PACKET, AUXILIARY_DATA) => {
                    // SAFETY: this kind is a `tpacket_auxdata`: integers, perhaps unaligned.
                    let data = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                    notes.tag = stripped_tag(&data);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    // SAFETY: this kind is a `timespec`: integers, perhaps unaligned.
                    let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                    notes.received = Some(time);
                }
                _ => {}
            }
            // SAFETY: as for the first.
            next = unsafe { libc::CMSG_NXTHDR(message, control) };
        }
        notes
    }
}

fn stripped_tag(data: &libc::tpacket_auxdata) -> Option<[u8; TAG_BYTES]> {
    if data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let kind = match data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
        0 => VLAN,
        _ => data.tp_vlan_tpid,
    };
    let [a, b] = kind.to_be_bytes();
    let [c, d] = data.tp_vlan_tci.to_be_bytes();
    Some([a, b, c, d])
}

/// How long ago that was; zero if it is in the future.
fn age(then: libc::timespec) -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    let age = ns(now.tv_sec, now.tv_nsec) - ns(then.tv_sec, then.tv_nsec);
    Duration::from_nanos(u64::try_from(age).unwrap_or(0))
}

/// Room for both notes and their headers, which it is aligned for.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

const CONTROL_BYTES: usize = 128;

/// Destination and source, behind which a VLAN's tag stands.
const ADDRESSES_BYTES: usize = 12;
const TAG_BYTES: usize = 4;
/// The type of such a tag where the kernel names none (IEEE 802.1Q).
const VLAN: u16 = 0x8100;

/// include/uapi/linux/if_packet.h.
const AUXILIARY_DATA: i32 = 8;
const VNET_HEADER: i32 = 15;
const IGNORE_OUTGOING: i32 = 23;

#[cfg(test)]
mod tests;
