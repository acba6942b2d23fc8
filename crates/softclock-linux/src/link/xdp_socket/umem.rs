//! The memory in which frames are exchanged with the kernel (UMEM), in chunks of a page. It consists of shares: chunks
//! to receive into, [`RECEIVE`] if not chosen otherwise, followed by [`SEND`] chunks to send from.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use rustix::net::xdp::XdpDesc;

use super::lock;
use crate::memory::Memory;

/// The memory of one socket, or of several.
#[derive(Debug)]
pub(super) struct Umem {
    pub(super) memory: Memory,
    shares: usize,
    /// The number of chunks to receive into of each share.
    receive: usize,
    taken: AtomicUsize,
    /// The first socket, to which the kernel has the memory registered; `None` before it is bound and once it is
    /// closed.
    owner: Mutex<Option<OwnedFd>>,
}

/// The chunks of one socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    /// The number of its first chunk.
    first: usize,
    /// The number of its chunks to receive into.
    receive: usize,
}

impl Umem {
    /// Maps memory for this number of sockets.
    pub(super) fn new(shares: usize) -> io::Result<Self> {
        Self::with_receive(shares, RECEIVE)
    }

    /// Maps memory of this number of shares with `receive` chunks to receive into each. `InvalidInput` if it is longer
    /// than offsets of 32 bits reach.
    pub(super) fn with_receive(shares: usize, receive: usize) -> io::Result<Self> {
        let bytes = receive
            .checked_add(SEND)
            .and_then(|share| share.checked_mul(shares)?.checked_mul(CHUNK_BYTES))
            .filter(|&bytes| u32::try_from(bytes).is_ok())
            .ok_or_else(too_long)?;
        let memory = Memory::anonymous(bytes)?;
        memory.keep_from_children()?;
        Ok(Self {
            memory,
            shares,
            receive,
            taken: AtomicUsize::new(0),
            owner: Mutex::new(None),
        })
    }

    /// Takes the next share; `None` if all are taken. A share is used once.
    pub(super) fn take_share(&self) -> Option<Share> {
        let next = |taken| (taken < self.shares).then_some(taken + 1);
        let taken = (self.taken).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.ok().map(|index| Share {
            first: index * (self.receive + SEND),
            receive: self.receive,
        })
    }

    /// The first socket, while it has the memory registered.
    pub(super) fn owner(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        lock(&self.owner)
    }

    /// The number of chunks of all shares.
    pub(super) fn chunks(&self) -> usize {
        self.shares * (self.receive + SEND)
    }

    /// Returns the time that the XDP program wrote before the frame at this offset, and sets it to zero, so that a
    /// later frame without one is not given this one. In nanoseconds of CLOCK_MONOTONIC; 0 if the program wrote none.
    ///
    /// # Safety
    /// The offset is that of a [`Place`], and its chunk is owned by the caller, not by the kernel.
    pub(super) unsafe fn take_stamp(&self, at: usize) -> u64 {
        let stamp = self.at(at - STAMP_BYTES).cast::<[u8; STAMP_BYTES]>();
        // SAFETY: a `Place` has these bytes before it within its chunk, which the caller owns.
        u64::from_ne_bytes(unsafe { stamp.replace([0; STAMP_BYTES]) })
    }

    /// The address of the byte at this offset.
    ///
    /// # Panics
    /// If the offset is outside the memory.
    pub(super) fn at(&self, at: usize) -> NonNull<u8> {
        assert!(at < self.memory.bytes);
        // SAFETY: the offset is within the memory.
        unsafe { self.memory.start.add(at) }
    }

    /// The address of the chunk that begins at this offset.
    ///
    /// # Panics
    /// If no chunk begins there.
    pub(super) fn chunk(&self, start: u64) -> NonNull<[u8; CHUNK_BYTES]> {
        let start = start as usize;
        assert!(start.is_multiple_of(CHUNK_BYTES));
        self.at(start).cast()
    }
}

fn too_long() -> io::Error {
    let reason = "the frames that may wait need 4 GiB of memory or more";
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

impl Share {
    /// The offsets of the chunks to receive into.
    pub(super) fn to_receive(self) -> impl Iterator<Item = u64> {
        offsets(self.first..self.first + self.receive)
    }

    /// The offsets of the chunks to send from.
    pub(super) fn to_send(self) -> impl Iterator<Item = u64> {
        offsets(self.chunks_to_send())
    }

    /// Whether a chunk to send from begins at this offset.
    pub(super) fn is_to_send(self, at: u64) -> bool {
        at.is_multiple_of(CHUNK_BYTES as u64)
            && self.chunks_to_send().contains(&chunk_of(at as usize))
    }

    /// The numbers of the chunks to send from.
    fn chunks_to_send(self) -> Range<usize> {
        let start = self.first + self.receive;
        start..start + SEND
    }

    /// The number of its chunks to receive into.
    pub(super) const fn receive(self) -> usize {
        self.receive
    }

    /// Whether it is the first of the memory.
    pub(super) const fn is_first(self) -> bool {
        self.first == 0
    }

    /// Checks a descriptor from the kernel. `None` unless the frame lies within one chunk to receive into, with room
    /// for a time before it.
    pub(super) fn place(self, description: &XdpDesc) -> Option<Place> {
        let at = usize::try_from(description.addr).ok()?;
        let (bytes, chunk) = (description.len as usize, chunk_of(at));
        let offset = at % CHUNK_BYTES;
        let index = chunk.checked_sub(self.first)?;
        let fits = index < self.receive && offset >= STAMP_BYTES && bytes <= CHUNK_BYTES - offset;
        fits.then_some(Place { at, bytes, index })
    }

    /// The number, among the chunks to receive into, of the chunk with the byte at this offset.
    pub(super) fn index(self, at: usize) -> usize {
        chunk_of(at) - self.first
    }
}

fn offsets(chunks: Range<usize>) -> impl Iterator<Item = u64> {
    chunks.map(|chunk| (chunk * CHUNK_BYTES) as u64)
}

/// The number, in the whole memory, of the chunk with the byte at this offset.
pub(super) const fn chunk_of(at: usize) -> usize {
    at / CHUNK_BYTES
}

/// The location of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// The offset of its first byte in the memory.
    pub(super) at: usize,
    pub(super) bytes: usize,
    /// The number of its chunk among those of its socket.
    pub(super) index: usize,
}

/// The number of chunks to receive into, for a socket that receives all frames of a queue: 24 ms of frames of 1500
/// bytes at 1 Gbit/s.
pub(super) const RECEIVE: usize = 2048;
/// The number of chunks to send from.
pub(super) const SEND: usize = 1024;
pub(super) const CHUNK_BYTES: usize = 4096;
/// The size of the time that the XDP program writes before a frame.
pub(super) const STAMP_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::xdp::XdpDescOptions;

    #[test]
    fn frames_have_a_time_once() {
        let umem = Umem::new(1).unwrap();
        let at = umem.take_share().unwrap().to_receive().nth(3).unwrap() as usize + 256;
        // SAFETY: no kernel shares this memory.
        unsafe {
            let stamp = umem.at(at - STAMP_BYTES).cast();
            stamp.write(7u64.to_ne_bytes());
            assert_eq!((umem.take_stamp(at), umem.take_stamp(at)), (7, 0));
        }
    }

    #[test]
    fn frames_are_within_a_chunk_of_their_share() {
        let umem = Umem::new(2).unwrap();
        let [first, second] = [(); 2].map(|()| umem.take_share().unwrap());
        assert_eq!(umem.take_share(), None);
        let chunk = CHUNK_BYTES as u64;
        let base = (RECEIVE + SEND) as u64 * chunk;
        for (share, base) in [(first, 0), (second, base)] {
            let place = |addr, len| {
                let options = XdpDescOptions::empty();
                share.place(&XdpDesc { addr, len, options })
            };
            let whole = Place {
                at: (base + 2 * chunk + 256) as usize,
                bytes: CHUNK_BYTES - 256,
                index: 2,
            };
            assert_eq!(place(base + 2 * chunk + 256, 3840), Some(whole));
            let end = base + RECEIVE as u64 * chunk;
            for (at, bytes) in [
                (base, 60),
                (base + 2 * chunk + 256, 3841),
                (end + 256, 60),
                (end - 59, 60),
                (u64::MAX - 10, 60),
                (base.wrapping_sub(1000), 60),
            ] {
                assert_eq!(place(at, bytes), None, "{at} {bytes}");
            }
        }
    }
}
