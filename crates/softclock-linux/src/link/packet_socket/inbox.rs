//! Receives a batch of frames by one recvmmsg(2).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use softclock_wire::packet::{Offload, complete_checksum};

use super::{AUXILIARY_DATA, MOST_BYTES};
use crate::link::buffer::{Landing, Tag};
use crate::link::{BATCH, Pool, Received, Refused};

/// The buffers for a batch of frames, and their descriptions for the kernel. Pages that no frame reaches are never
/// touched, and so take no memory.
pub(super) struct Inbox {
    messages: Vec<libc::mmsghdr>,
    slots: Vec<Slot>,
}

/// The buffers of one frame.
struct Slot {
    offload: [u8; Offload::BYTES],
    control: Control,
    landing: Landing,
    /// The addresses of the offload header and of the two parts of the frame.
    parts: [libc::iovec; 3],
}

impl Inbox {
    /// Creates an inbox that receives into buffers of this pool.
    pub(super) fn new(pool: &Pool) -> Self {
        let nowhere = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        let slot = || Slot {
            offload: [0; Offload::BYTES],
            control: Control([0; CONTROL_BYTES]),
            landing: Landing::new(pool),
            parts: [nowhere; 3],
        };
        let mut slots: Vec<_> = (0..BATCH).map(|_| slot()).collect();
        let messages = slots.iter_mut().map(Slot::message).collect();
        Self { messages, slots }
    }

    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        mut on_frame: impl FnMut(Result<Received, Refused>),
    ) -> io::Result<usize> {
        // SAFETY: the messages describe the slots and their landings. Both are on the heap and do not move while `self`
        // lives and no frame is taken, and `&mut self` excludes other references.
        let taken = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_TRUNC,
                ptr::null_mut(),
            )
        };
        let taken = usize::try_from(taken).map_err(|_| io::Error::last_os_error())?;
        // One reading for the whole batch. The kernel's time stamps are of the same clock.
        let now = clock_gettime(ClockId::Realtime);
        let messages = self.messages[..taken].iter_mut();
        for (message, slot) in messages.zip(&mut self.slots) {
            // SAFETY: the kernel has just filled the message in, and its slot is alive.
            let received = unsafe { received(message, slot, now) };
            // The frame may have taken its memory along, and the landing has new memory then.
            slot.describe_parts();
            // The kernel has overwritten the capacity of the control buffer with the length used.
            message.msg_hdr.msg_controllen = CONTROL_BYTES;
            on_frame(received);
        }
        Ok(taken)
    }
}

impl Slot {
    /// The kernel's description of this slot. Valid while the slot does not move.
    fn message(&mut self) -> libc::mmsghdr {
        self.describe_parts();
        // SAFETY: zero is valid for this structure of integers and pointers.
        let mut message: libc::mmsghdr = unsafe { zeroed() };
        message.msg_hdr.msg_iov = self.parts.as_mut_ptr();
        message.msg_hdr.msg_iovlen = self.parts.len();
        message.msg_hdr.msg_control = self.control.0.as_mut_ptr().cast();
        message.msg_hdr.msg_controllen = CONTROL_BYTES;
        message
    }

    /// Points `parts` to the slot's buffers.
    fn describe_parts(&mut self) {
        let [first, rest] = self.landing.parts();
        self.parts = [vector(&mut self.offload), vector(first), vector(rest)];
    }
}

/// The frame of a received message, with a stripped VLAN tag inserted again and the CRC32c of SCTP completed.
///
/// # Safety
/// `message` was filled in by recvmmsg(2), and its control data is alive.
unsafe fn received(
    message: &libc::mmsghdr,
    slot: &mut Slot,
    now: Timespec,
) -> Result<Received, Refused> {
    let bytes = (message.msg_len as usize).saturating_sub(Offload::BYTES);
    if bytes > MOST_BYTES - TAG_BYTES {
        return Err(Refused::TooLong);
    }
    let offload = Offload::from_bytes(&slot.offload).ok_or(Refused::UnknownOffload)?;
    // SAFETY: the caller's promise.
    let notes = unsafe { Notes::of(&message.msg_hdr) };
    let age = notes.received.map_or(Duration::ZERO, |then| age(then, now));
    // With the tag back in place, the offsets of the offload are those of the whole frame.
    let tag = notes.tag.filter(|_| bytes >= ADDRESSES_BYTES);
    let tag = tag.map(|tag| Tag {
        at: ADDRESSES_BYTES,
        bytes: tag,
    });
    let shift = if tag.is_some() { TAG_BYTES as u16 } else { 0 };
    let mut bytes = slot.landing.take(bytes, tag);
    let mut offload = offload.shifted(shift);
    // The link that the frame leaves by would not know that it is no Internet checksum.
    if let Some(checksum) = offload.checksum.take_if(|checksum| checksum.is_crc32c()) {
        complete_checksum(&mut bytes, checksum);
    }
    Ok(Received {
        bytes,
        offload,
        age,
    })
}

fn vector(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

/// The control messages of a frame.
#[derive(Default)]
struct Notes {
    /// The VLAN tag that the kernel or the device stripped from the frame.
    tag: Option<[u8; TAG_BYTES]>,
    /// The time of arrival, by CLOCK_REALTIME.
    received: Option<libc::timespec>,
}

impl Notes {
    /// Reads the control messages.
    ///
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

/// The VLAN tag in the auxiliary data, as its four bytes on the wire.
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

/// The time from `then` to `now`; zero if `then` is later.
fn age(then: libc::timespec, now: Timespec) -> Duration {
    let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    let age = ns(now.tv_sec, now.tv_nsec) - ns(then.tv_sec, then.tv_nsec);
    Duration::from_nanos(u64::try_from(age).unwrap_or(0))
}

/// The buffer for both control messages, aligned for their headers.
#[derive(Clone)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

const CONTROL_BYTES: usize = 128;

/// The length of both addresses of a frame; a VLAN tag follows them.
const ADDRESSES_BYTES: usize = 12;
const TAG_BYTES: usize = 4;
/// The type of a tag if the kernel gives none (IEEE 802.1Q).
const VLAN: u16 = 0x8100;
