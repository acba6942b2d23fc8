//! Sends a batch of datagrams by one sendmmsg(2), joining those that the kernel can cut apart (UDP_SEGMENT).

use std::cell::Cell;
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::control::Control;
use super::{Ecn, MOST_SEGMENTS, exceeds_mtu, is_without_segments, raw_address};

/// A datagram to send.
///
/// # Example
/// ```
/// use softclock_linux::socket::udp::{Ecn, Transmit};
///
/// let mut reply = Transmit::to(([192, 0, 2, 1], 443), b"pong");
/// reply.ecn = Some(Ecn::Ect0);
/// // From the address that the request was sent to.
/// reply.source = Some([192, 0, 2, 7].into());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Transmit<'a> {
    /// The payload.
    pub payload: &'a [u8],
    /// The receiver; `None` for the peer that the socket is connected to.
    pub destination: Option<SocketAddr>,
    /// The address to send from, which the host must have; `None` for the socket's own, or that of the route.
    pub source: Option<IpAddr>,
    /// The ECN field; `None` for that of the socket.
    pub ecn: Option<Ecn>,
}

impl<'a> Transmit<'a> {
    /// Returns a datagram to this receiver.
    pub fn to(destination: impl Into<SocketAddr>, payload: &'a [u8]) -> Self {
        Self {
            destination: Some(destination.into()),
            ..Self::to_peer(payload)
        }
    }

    /// Returns a datagram to the peer that the socket is connected to.
    pub const fn to_peer(payload: &'a [u8]) -> Self {
        Self {
            payload,
            destination: None,
            source: None,
            ecn: None,
        }
    }

    /// Returns whether both datagrams differ in the payload only.
    fn is_like(&self, other: &Self) -> bool {
        let facts = |one: &Self| (one.destination, one.source, one.ecn);
        facts(self) == facts(other)
    }
}

/// Sends the first datagrams of `batch`, and returns their number: at most [`MOST_DATAGRAMS`], fewer if the send buffer
/// has no more room, and at least 1 unless `batch` is empty. If one cannot be sent, those before it are, and the next
/// call returns the error.
///
/// `dscp` is the socket's, for datagrams that state an ECN field.
///
/// Consecutive datagrams that differ in their payloads only are joined while `joins` is set, if all but the last have
/// the same length: the kernel's network stack handles them as one. If the kernel or the device cannot do that, `joins`
/// is cleared, and they are sent one by one. Datagrams that exceed the path's MTU are sent one by one, too, and `joins`
/// stays set for others: they cost a failing call for each batch.
pub fn send_batch(
    fd: BorrowedFd<'_>,
    batch: &[Transmit<'_>],
    dscp: u8,
    joins: &Cell<bool>,
) -> io::Result<usize> {
    if batch.is_empty() {
        return Ok(0);
    }
    match send_messages(fd, batch, dscp, joins.get()) {
        Err(error) if joins.get() && joined(batch) > 1 && is_without_segments(&error) => {
            // The error may have another cause, which occurs again.
            let sent = send_messages(fd, batch, dscp, false)?;
            joins.set(exceeds_mtu(&error));
            Ok(sent)
        }
        sent => sent,
    }
}

fn send_messages(
    fd: BorrowedFd<'_>,
    batch: &[Transmit<'_>],
    dscp: u8,
    joins: bool,
) -> io::Result<usize> {
    let mut names = [None; MOST_MESSAGES];
    let mut controls = [Control::EMPTY; MOST_MESSAGES];
    let mut parts = [EMPTY_PART; MOST_DATAGRAMS];
    // SAFETY: all zeros are valid for these structures of integers and pointers.
    let mut headers: [libc::mmsghdr; MOST_MESSAGES] = unsafe { zeroed() };
    let mut counts = [0; MOST_MESSAGES];

    let mut rest = &batch[..batch.len().min(MOST_DATAGRAMS)];
    let mut parts_left = &mut parts[..];
    let mut messages = 0;
    while let Some(first) = rest.first().filter(|_| messages < MOST_MESSAGES) {
        let count = if joins { joined(rest) } else { 1 };
        let (now, later) = rest.split_at(count);
        let (own, others) = parts_left.split_at_mut(count);
        (rest, parts_left) = (later, others);
        for (part, datagram) in own.iter_mut().zip(now) {
            part.iov_base = datagram.payload.as_ptr().cast_mut().cast();
            part.iov_len = datagram.payload.len();
        }
        let control = &mut controls[messages];
        if count > 1 {
            control.add_segment_bytes(first.payload.len() as u16);
        }
        if let Some(ecn) = first.ecn {
            control.add_traffic_class(dscp << 2 | ecn as u8);
        }
        if let Some(source) = first.source {
            control.add_source(source);
        }
        let header = &mut headers[messages].msg_hdr;
        if let Some(destination) = first.destination {
            let (name, length) = names[messages].insert(raw_address(destination));
            header.msg_name = (&raw mut *name).cast();
            header.msg_namelen = *length;
        }
        header.msg_iov = own.as_mut_ptr();
        header.msg_iovlen = count as _;
        let control = control.bytes_mut();
        if !control.is_empty() {
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = control.len() as _;
        }
        counts[messages] = count;
        messages += 1;
    }
    // SAFETY: the headers point to payloads that `batch` borrows, and to `names`, `controls` and `parts`, which live as
    // long as this function, have the stated lengths, and are not used otherwise until the call returns. The call
    // writes to `msg_len` of the headers only.
    let sent = unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            messages as libc::c_uint,
            libc::MSG_NOSIGNAL as _,
        )
    };
    let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
    Ok(counts[..sent].iter().sum())
}

/// Returns the number of first datagrams that the kernel can cut out of one message.
fn joined(batch: &[Transmit<'_>]) -> usize {
    let first = &batch[0];
    let segment = first.payload.len();
    if segment == 0 || segment > MOST_BYTES {
        return 1;
    }
    let most = batch.len().min(MOST_SEGMENTS).min(MOST_BYTES / segment);
    let is_next = |next: &&Transmit<'_>| next.is_like(first) && next.payload.len() == segment;
    let full = batch[..most].iter().take_while(is_next).count();
    // The last may be shorter, but not empty: nothing would say that it is there.
    let is_last =
        |last: &Transmit<'_>| last.is_like(first) && (1..segment).contains(&last.payload.len());
    full + usize::from(full < most && is_last(&batch[full]))
}

/// The most datagrams of one [`send_batch`].
pub const MOST_DATAGRAMS: usize = 128;

/// The most messages of one call: with their addresses and control messages they take 8 KB of the stack.
const MOST_MESSAGES: usize = 32;

/// The longest payload of a datagram of IPv4, which is the limit for joined ones.
const MOST_BYTES: usize = 65_507;

const EMPTY_PART: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

#[cfg(test)]
mod tests;
