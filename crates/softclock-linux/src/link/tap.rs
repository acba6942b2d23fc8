//! A link of our own: a TAP device (Documentation/networking/tuntap.rst).

use std::cell::Cell;
use std::ffi::c_char;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketType, socket};
use softclock_core::packet::Offload;

use super::{Link, Received};

/// A new link whose other end is this: what the host sends on it is received here, and what is sent here the host
/// receives. Nonblocking.
///
/// Frames come and go with what is left to do with them ([`Offload`]). The link is up from the beginning, and goes with
/// this.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
    link: Link,
    /// Of the frames that were lost, those that were told of.
    told: Cell<u64>,
}

impl Tap {
    /// Makes a link of this name.
    ///
    /// # Errors
    /// `EBUSY` if there is a link of this name; `PermissionDenied` without CAP_NET_ADMIN; `InvalidInput` for what can be no
    /// name; `NotFound` where there is no `/dev/net/tun`.
    pub fn create(name: &str) -> io::Result<Self> {
        let mut request = request_for(name)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open(DEVICE, flags, Mode::empty())?;
        let kind = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
        // The flags have the high bit of the field.
        request.ifr_ifru.ifru_flags = kind as u16 as i16;
        // SAFETY: the kernel reads and writes an `ifreq`, which outlives the call.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        offer_offloads(fd.as_fd())?;
        let link = Link::named(name)?;
        set_up(&mut request)?;
        Ok(Self {
            fd,
            link,
            told: Cell::new(0),
        })
    }

    /// The link.
    pub const fn link(&self) -> &Link {
        &self.link
    }

    /// Takes the next frame; `WouldBlock` if there is none. The buffer should have
    /// [`PacketSocket::MOST_BYTES`](super::PacketSocket::MOST_BYTES). How old the frame is, is not known.
    ///
    /// # Errors
    /// `InvalidInput` where the frame's offload has no name here: it is lost; `InvalidData` for a frame that fills the
    /// buffer; `EBADFD` when the link was deleted.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut header = [0; Offload::BYTES];
        let part = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let parts = [part(&mut header), part(buffer)];
        // SAFETY: `parts` describes buffers of ours that outlive the call.
        let read = unsafe { libc::readv(self.fd.as_raw_fd(), parts.as_ptr(), parts.len() as i32) };
        let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
        let bytes = read.saturating_sub(Offload::BYTES);
        if bytes >= buffer.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Received {
            bytes,
            offload: Offload::from_bytes(&header).ok_or(io::ErrorKind::InvalidInput)?,
            age: Duration::ZERO,
        })
    }

    /// Sends a frame to the host, with what is left to do with it.
    ///
    /// # Errors
    /// `WouldBlock` or `ENOBUFS` if there is no room; `EIO` while the link is down; `InvalidInput` for an offload that
    /// contradicts the frame; `EBADFD` when the link was deleted.
    pub fn send(&self, frame: &[u8], offload: &Offload) -> io::Result<()> {
        let header = offload.to_bytes();
        let part = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let parts = [part(&header), part(frame)];
        // SAFETY: `parts` describes bytes that outlive the call and that the kernel only reads.
        let sent = unsafe { libc::writev(self.fd.as_raw_fd(), parts.as_ptr(), parts.len() as i32) };
        match sent {
            ..0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Frames that were lost since the last call because nobody took them in time.
    ///
    /// # Errors
    /// Those of reading the link's statistics.
    pub fn take_lost(&self) -> io::Result<u64> {
        let lost = self.link.statistic("tx_dropped")?;
        Ok(lost - self.told.replace(lost).min(lost))
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A request about the link of this name.
fn request_for(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: zero is valid for this structure of characters and integers.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // The kernel would cut longer names, and take others for patterns.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('%') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    Ok(request)
}

/// The host need not complete checksums, nor cut what is to be segmented. Older kernels know fewer kinds.
fn offer_offloads(fd: BorrowedFd<'_>) -> io::Result<()> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let all = tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let offer = |offloads: u32| {
        let offloads = libc::c_ulong::from(offloads);
        // SAFETY: the argument of this request is a number.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, offloads) })
    };
    offer(all).or_else(|_| offer(tcp))
}

fn set_up(request: &mut libc::ifreq) -> io::Result<()> {
    let any = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    let request: *mut libc::ifreq = request;
    // SAFETY: the kernel writes an `ifreq`, which outlives the call.
    check(unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCGIFFLAGS, request) })?;
    // SAFETY: the kernel has just written the flags, and `request` is valid.
    unsafe { (*request).ifr_ifru.ifru_flags |= libc::IFF_UP as i16 };
    // SAFETY: the kernel reads an `ifreq`.
    check(unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS, request) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

const DEVICE: &str = "/dev/net/tun";

#[cfg(test)]
mod tests;
