//! A link of our own: a TAP device (Documentation/networking/tuntap.rst).

use std::cell::{Cell, RefCell};
use std::ffi::c_char;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{readv, writev};
use rustix::net::{AddressFamily, SocketType, socket};
use softclock_wire::packet::Offload;

use super::buffer::Landing;
use super::{BATCH, Link, PacketSocket, Pool, Received, Refused};

/// A new link whose other end is this: what the host sends on it is received here, and what is sent here the host
/// receives. Nonblocking.
///
/// Frames come and go with what is left to do with them ([`Offload`]). The link is up from the beginning, and goes with
/// this.
pub struct Tap {
    fd: OwnedFd,
    link: Link,
    /// Room for a frame, and some more by which a longer one shows.
    landing: RefCell<Landing>,
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
            landing: RefCell::new(Landing::new(&Pool::new())),
            told: Cell::new(0),
        })
    }

    /// The link.
    pub const fn link(&self) -> &Link {
        &self.link
    }

    /// Takes frames that are there, in order, each by a system call; tells how many, [`BATCH`] at most. How old they are is
    /// not known.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; `EBADFD` when the link was deleted.
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

    /// Sends frames to the host in order, each with what is left to do with it and by a system call; tells how many,
    /// [`BATCH`] at most.
    ///
    /// # Errors
    /// Those of the first frame. `WouldBlock` or `ENOBUFS` if there is no room; `EIO` while the link is down;
    /// `InvalidInput` for an offload that contradicts the frame; `EBADFD` when the link was deleted.
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

    /// Frames that were lost since the last call because nobody took them in time.
    ///
    /// # Errors
    /// `NotFound`, `ENODEV` or `ENXIO` if the link was moved to another namespace; those of reading its statistics.
    pub fn take_lost(&self) -> io::Result<u64> {
        let lost = self.link.statistic("tx_dropped")?;
        Ok(lost - self.told.replace(lost).min(lost))
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

/// Does `work` for one after the other until it fails; tells for how many it was done. The error is the first one's.
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
