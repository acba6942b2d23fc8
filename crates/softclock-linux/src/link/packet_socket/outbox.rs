//! Sends a batch of frames by one sendmmsg(2).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

use softclock_wire::packet::Offload;

use crate::link::BATCH;

/// The descriptions of a batch of frames for the kernel.
pub(super) struct Outbox {
    messages: Vec<libc::mmsghdr>,
    slots: Vec<Slot>,
}

/// The offload header of one frame, and the addresses of header and frame.
#[derive(Clone)]
struct Slot {
    offload: [u8; Offload::BYTES],
    parts: [libc::iovec; 2],
}

impl Outbox {
    pub(super) fn new() -> Self {
        let empty = Slot {
            offload: [0; Offload::BYTES],
            parts: [part(&[]); 2],
        };
        let mut slots = vec![empty; BATCH];
        let messages = slots.iter_mut().map(Slot::message).collect();
        Self { messages, slots }
    }

    pub(super) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (slot, (frame, offload)) in self.slots.iter_mut().zip(frames) {
            slot.offload = offload.to_bytes();
            slot.parts[1] = part(frame);
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: the first `count` messages describe slots, which are on the heap and do not move while `self` lives,
        // and frames that outlive the call; the kernel only reads both.
        let sent = unsafe {
            let messages = self.messages.as_mut_ptr();
            libc::sendmmsg(socket.as_raw_fd(), messages, count, 0)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl Slot {
    /// The kernel's description of this slot. Valid while the slot does not move.
    fn message(&mut self) -> libc::mmsghdr {
        self.parts[0] = part(&self.offload);
        // SAFETY: zero is valid for this structure of integers and pointers.
        let mut message: libc::mmsghdr = unsafe { zeroed() };
        message.msg_hdr.msg_iov = self.parts.as_mut_ptr();
        message.msg_hdr.msg_iovlen = self.parts.len();
        message
    }
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}
