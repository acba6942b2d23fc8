//! Receives a batch of datagrams by one recvmmsg(2).
//!
//! The kernel copies the header, the address and the control messages of each message by itself, which may cost more
//! than the system calls saved. Joined datagrams (UDP_GRO) are one message.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use softclock_core::{Clock, Instant};

use super::ancillary::{Ancillary, address};
use super::{Datagram, RecvBatch};

/// Receives the datagrams that wait, as many as `batch` has slots, in order, and returns their number. Replaces the
/// datagrams of `batch`, also if it fails.
///
/// Time stamps are converted from CLOCK_REALTIME to `clock`: both are read once after the call.
///
/// Fails with `WouldBlock` if no datagram waits. An error behind some datagrams is returned by the next call.
pub fn recv_batch(
    fd: BorrowedFd<'_>,
    batch: &mut RecvBatch,
    clock: &impl Clock,
) -> io::Result<usize> {
    batch.clear();
    let (bytes, slot_bytes, headers) = batch.parts();
    let count = headers.receive(fd, bytes, slot_bytes)?;
    let mut times = None;
    for index in 0..count {
        let Some((bytes, mut datagram, stamp)) = batch.headers().datagram(index) else {
            batch.clear();
            return Err(io::ErrorKind::InvalidData.into());
        };
        if let Some(stamp) = stamp {
            // One reading of both clocks for the whole batch.
            let (now, real) = times.get_or_insert_with(|| readings(clock));
            datagram.received = received(stamp, *now, *real);
        }
        // A kernel that returns the full length of a truncated datagram would not be believed.
        batch.fill(bytes.min(slot_bytes), datagram);
    }
    Ok(count)
}

/// The kernel's descriptions of the slots of a batch, and the buffers for addresses and control messages.
pub(super) struct Headers {
    messages: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
    names: Vec<Name>,
    controls: Vec<Control>,
}

/// A buffer for an IPv4 or IPv6 address, aligned for either.
#[derive(Clone)]
#[repr(C, align(8))]
struct Name([u8; NAME_BYTES]);

/// A buffer for the control messages of a datagram, aligned for their headers.
#[derive(Clone)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

impl Headers {
    pub(super) fn new(slots: usize) -> Self {
        let part = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        // SAFETY: zero is valid for this structure of integers and pointers.
        let message: libc::mmsghdr = unsafe { zeroed() };
        Self {
            messages: vec![message; slots],
            parts: vec![part; slots],
            names: vec![Name([0; NAME_BYTES]); slots],
            controls: vec![Control([0; CONTROL_BYTES]); slots],
        }
    }

    /// Receives into the slots of `slot_bytes` each, and returns the number of datagrams.
    fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        bytes: &mut [u8],
        slot_bytes: usize,
    ) -> io::Result<usize> {
        self.describe(bytes, slot_bytes);
        let slots = self.messages.len() as libc::c_uint;
        // SAFETY: the messages were just pointed to the slots and to the buffers of `self`, with their lengths. All are
        // borrowed mutably for the time of the call, and no two messages share memory.
        let count = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.messages.as_mut_ptr(),
                slots,
                0,
                ptr::null_mut(),
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Points the messages to their buffers. A call overwrites the lengths, and the batch may have moved since.
    fn describe(&mut self, bytes: &mut [u8], slot_bytes: usize) {
        let buffers = self.names.iter_mut().zip(&mut self.controls);
        let slots = bytes.chunks_exact_mut(slot_bytes).zip(&mut self.parts);
        for (message, ((name, control), (slot, part))) in
            self.messages.iter_mut().zip(buffers.zip(slots))
        {
            part.iov_base = slot.as_mut_ptr().cast();
            part.iov_len = slot.len();
            let header = &mut message.msg_hdr;
            header.msg_name = name.0.as_mut_ptr().cast();
            header.msg_namelen = NAME_BYTES as _;
            header.msg_iov = part;
            header.msg_iovlen = 1;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES;
            header.msg_flags = 0;
        }
    }

    /// Returns the length of the payload, the datagram without it, and its time of arrival by CLOCK_REALTIME. `None`
    /// if the sender's address is of another family than IPv4 and IPv6.
    fn datagram(&self, index: usize) -> Option<(usize, Datagram<'static>, Option<Duration>)> {
        let message = &self.messages[index];
        let header = &message.msg_hdr;
        let name = self.names[index].0.get(..header.msg_namelen as usize)?;
        let control = self.controls[index].0.get(..header.msg_controllen);
        let ancillary = Ancillary::parse(control.unwrap_or_default());
        let bytes = message.msg_len as usize;
        let segment_bytes = ancillary
            .segment_bytes
            .filter(|segment| usize::from(segment.get()) < bytes);
        let datagram = Datagram {
            destination: ancillary.destination,
            ecn: ancillary.ecn,
            is_truncated: header.msg_flags & libc::MSG_TRUNC != 0,
            segment_bytes,
            ..Datagram::new(&[], address(name)?)
        };
        Some((bytes, datagram, ancillary.stamp))
    }
}

/// Converts a time by CLOCK_REALTIME, given the readings of both clocks. Returns `None` if it is implausible.
fn received(stamp: Duration, now: Instant, real: Duration) -> Option<Instant> {
    let age = real.checked_sub(stamp).filter(|age| *age <= MOST_AGE)?;
    Some(now.sub_ns(age.as_nanos() as u64))
}

/// Reads both clocks at about the same time. Repeats that if the thread was interrupted between the readings.
fn readings(clock: &impl Clock) -> (Instant, Duration) {
    let mut before = clock.now();
    for _ in 1..MOST_READINGS {
        let real = realtime();
        let after = clock.now();
        if after <= before.add_ns(CLOSE_NS) {
            return (before, real);
        }
        before = after;
    }
    (before, realtime())
}

/// Reads CLOCK_REALTIME.
fn realtime() -> Duration {
    let time = clock_gettime(ClockId::Realtime);
    // The clock cannot be set to a time before 1970.
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec as u32)
}

/// Readings of both clocks within this time are taken as simultaneous. It is above the cost of a system call, which
/// reading CLOCK_REALTIME takes on some machines.
const CLOSE_NS: u64 = 2_000;

/// Interruptions are rare, so the third attempt need not be close.
const MOST_READINGS: usize = 3;

/// The longest age that is believed. A datagram waits as long as the receiver does not call.
const MOST_AGE: Duration = Duration::from_secs(10);

/// The size of an IPv6 address, the larger one.
const NAME_BYTES: usize = size_of::<libc::sockaddr_in6>();

/// Room for a time stamp, both kinds of destinations and ECN fields, and a segment length, which take 176 bytes.
const CONTROL_BYTES: usize = 256;

#[cfg(test)]
mod tests;
