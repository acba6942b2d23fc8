//! The memory in which frames are exchanged with the kernel (UMEM), in chunks of a page: [`RECEIVE`] chunks to receive
//! into, followed by [`SEND`] chunks to send from.

use std::io;
use std::ptr::NonNull;

use rustix::net::xdp::XdpDesc;

use super::ring::Memory;

/// The memory of one socket.
#[derive(Debug)]
pub(super) struct Umem(pub(super) Memory);

impl Umem {
    pub(super) fn new() -> io::Result<Self> {
        Memory::anonymous((RECEIVE + SEND) * CHUNK_BYTES).map(Self)
    }

    /// The offsets of the chunks to receive into.
    pub(super) fn to_receive() -> impl Iterator<Item = u64> {
        (0..RECEIVE as u64).map(|index| index * CHUNK_BYTES as u64)
    }

    /// The offsets of the chunks to send from.
    pub(super) fn to_send() -> impl Iterator<Item = u64> {
        (RECEIVE..RECEIVE + SEND).map(|index| (index * CHUNK_BYTES) as u64)
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
        assert!(at < self.0.bytes);
        // SAFETY: the offset is within the memory.
        unsafe { self.0.start.add(at) }
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

/// The location of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// The offset of its first byte in the memory.
    pub(super) at: usize,
    pub(super) bytes: usize,
    /// The number of its chunk.
    pub(super) index: usize,
}

impl Place {
    /// Checks a descriptor from the kernel. `None` unless the frame lies within one chunk to receive into, with room
    /// for a time before it.
    pub(super) fn of(description: &XdpDesc) -> Option<Self> {
        let at = usize::try_from(description.addr).ok()?;
        let (bytes, index) = (description.len as usize, at / CHUNK_BYTES);
        let offset = at % CHUNK_BYTES;
        let fits = index < RECEIVE && offset >= STAMP_BYTES && bytes <= CHUNK_BYTES - offset;
        fits.then_some(Self { at, bytes, index })
    }
}

/// The number of chunks to receive into: 24 ms of frames of 1500 bytes at 1 Gbit/s.
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
        let umem = Umem::new().unwrap();
        let at = Umem::to_receive().nth(3).unwrap() as usize + 256;
        // SAFETY: no kernel shares this memory.
        unsafe {
            let stamp = umem.at(at - STAMP_BYTES).cast();
            stamp.write(7u64.to_ne_bytes());
            assert_eq!((umem.take_stamp(at), umem.take_stamp(at)), (7, 0));
        }
    }

    #[test]
    fn frames_are_within_a_chunk() {
        let place = |addr, len| {
            let options = XdpDescOptions::empty();
            Place::of(&XdpDesc { addr, len, options })
        };
        let chunk = CHUNK_BYTES as u64;
        let whole = Place {
            at: 2 * CHUNK_BYTES + 256,
            bytes: CHUNK_BYTES - 256,
            index: 2,
        };
        assert_eq!(place(2 * chunk + 256, 3840), Some(whole));
        let end = (RECEIVE * CHUNK_BYTES) as u64;
        for (at, bytes) in [
            (0, 60),
            (2 * chunk + 256, 3841),
            (end + 256, 60),
            (end - 59, 60),
            (u64::MAX - 10, 60),
        ] {
            assert_eq!(place(at, bytes), None, "{at} {bytes}");
        }
    }
}
