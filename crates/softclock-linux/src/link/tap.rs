//! TAP devices (Documentation/networking/tuntap.rst).

use std::cell::{Cell, RefCell};
use std::ffi::c_char;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{readv, writev};
use softclock_wire::packet::Offload;

use super::buffer::Landing;
use super::{BATCH, Link, PacketSocket, Pool, Received, Refused, any_socket};

/// A TAP device: a new link, whose other end is this value. [`receive`](Self::receive) returns the frames that the host
/// sends on the link; [`send`](Self::send) passes frames to the host. Nonblocking.
///
/// Frames are received and sent together with their pending offloads ([`Offload`]). The link is up once created, and is
/// deleted on drop.
pub struct Tap {
    fd: OwnedFd,
    link: Link,
    /// The receive buffer, a little larger than the longest frame, so that longer ones are noticed.
    landing: RefCell<Landing>,
    /// The kernel's count of lost frames at the last `take_lost`.
    lost_reported: Cell<u64>,
}

impl Tap {
    /// Creates a TAP device with this name and brings it up.
    ///
    /// # Errors
    /// `EBUSY` if the name is taken; `PermissionDenied` without CAP_NET_ADMIN; `InvalidInput` for an invalid name;
    /// `NotFound` without `/dev/net/tun`.
    pub fn create(name: &str) -> io::Result<Self> {
        let mut request = request_for(name)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open(DEVICE, flags, Mode::empty())?;
        let kind = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
        // IFF_TUN_EXCL is the sign bit of the 16-bit field, hence both casts.
        request.ifr_ifru.ifru_flags = kind as u16 as i16;
        // SAFETY: the kernel reads and writes an `ifreq`, which outlives the call.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        // Before the link is up, so that its first frames may use the offloads.
        offer_offloads(fd.as_fd())?;
        let link = Link::named(name)?;
        set_up(&mut request)?;
        Ok(Self {
            fd,
            link,
            landing: RefCell::new(Landing::new(&Pool::new())),
            lost_reported: Cell::new(0),
        })
    }

    /// The host's end of the device.
    pub const fn link(&self) -> &Link {
        &self.link
    }

    /// Passes the frames that have arrived to `on_frame`, in order; returns their number, at most [`BATCH`]. Costs a
    /// system call for each frame. Their age is unknown, and given as zero.
    ///
    /// # Errors
    /// `WouldBlock` if no frame has arrived; `EBADFD` if the link was deleted.
    pub fn receive(
        &self,
        mut on_frame: impl FnMut(Result<Received, Refused>),
    ) -> io::Result<usize> {
        let mut landing = self.landing.borrow_mut();
        in_turn(0..BATCH, |_| self.receive_one(&mut landing, &mut on_frame))
    }

    fn receive_one(
        &self,
        landing: &mut Landing,
        on_frame: &mut impl FnMut(Result<Received, Refused>),
    ) -> io::Result<()> {
        let mut header = [0; Offload::BYTES];
        let [first, rest] = landing.parts().map(IoSliceMut::new);
        let parts = &mut [IoSliceMut::new(&mut header), first, rest];
        let bytes = readv(&self.fd, parts)?.saturating_sub(Offload::BYTES);
        on_frame(match Offload::from_bytes(&header) {
            _ if bytes > PacketSocket::MOST_BYTES => Err(Refused::TooLong),
            None => Err(Refused::UnknownOffload),
            Some(offload) => Ok(Received {
                bytes: landing.take(bytes, None),
                offload,
                age: Duration::ZERO,
            }),
        });
        Ok(())
    }

    /// Sends frames to the host in order, each with its pending offloads; returns the number sent, at most [`BATCH`].
    /// Costs a system call for each frame.
    ///
    /// # Errors
    /// Those of the first frame. `WouldBlock` or `ENOBUFS` if the queue is full; `EIO` while the link is down;
    /// `InvalidInput` for an offload that contradicts the frame; `EBADFD` if the link was deleted.
    pub fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        let frames = frames.into_iter().take(BATCH);
        in_turn(frames, |(frame, offload)| self.send_one(frame, offload))
    }

    fn send_one(&self, frame: &[u8], offload: &Offload) -> io::Result<()> {
        let header = offload.to_bytes();
        writev(&self.fd, &[IoSlice::new(&header), IoSlice::new(frame)])?;
        Ok(())
    }

    /// Counts frames lost since the last call because the device's queue was full.
    ///
    /// # Errors
    /// `NotFound`, `ENODEV` or `ENXIO` if the link was moved to another namespace; those of reading its statistics.
    pub fn take_lost(&self) -> io::Result<u64> {
        let lost = self.link.statistic("tx_dropped")?;
        Ok(lost - self.lost_reported.replace(lost).min(lost))
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tap").field(&self.link).finish()
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Calls `work` for each item until one fails; returns the number of successes, or the error if the first item failed.
fn in_turn<T>(
    each: impl IntoIterator<Item = T>,
    mut work: impl FnMut(T) -> io::Result<()>,
) -> io::Result<usize> {
    let mut done = 0;
    for one in each {
        match work(one) {
            Ok(()) => done += 1,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// An `ifreq` with this name.
fn request_for(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: zero is valid for this structure of characters and integers.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // The kernel would truncate longer names, choose a name for an empty one, and expand `%` as a pattern.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('%') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    Ok(request)
}

/// Tells the kernel that frames to this end may have partial checksums and pending segmentation. Kernels before
/// Linux 6.2 do not know the flags for UDP, so the call is repeated without them.
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

/// Brings the link of `request` up.
fn set_up(request: &mut libc::ifreq) -> io::Result<()> {
    let any = any_socket()?;
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
