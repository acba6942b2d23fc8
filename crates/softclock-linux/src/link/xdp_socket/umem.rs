//! The memory in which frames are exchanged with the kernel, in chunks of a page: the first [`RECEIVE`] for frames that
//! arrive, [`SEND`] for frames that leave.

use std::io;
use std::ptr::NonNull;

use rustix::net::xdp::XdpDesc;

use super::ring::Memory;

/// Chunks of one socket.
#[derive(Debug)]
pub(super) struct Umem(pub(super) Memory);

impl Umem {
    pub(super) fn new() -> io::Result<Self> {
        Memory::anonymous((RECEIVE + SEND) * CHUNK_BYTES).map(Self)
    }

    /// Where chunks begin into which frames are received.
    pub(super) fn to_receive() -> impl Iterator<Item = u64> {
        (0..RECEIVE as u64).map(|index| index * CHUNK_BYTES as u64)
    }

    /// Where chunks begin from which frames are sent.
    pub(super) fn to_send() -> impl Iterator<Item = u64> {
        (RECEIVE..RECEIVE + SEND).map(|index| (index * CHUNK_BYTES) as u64)
    }

    /// The time that the program wrote before a frame at this place, which is taken away.
    ///
    /// # Safety
    /// The place is of a [`Place`], and its chunk is not the kernel's.
    pub(super) unsafe fn take_stamp(&self, at: usize) -> u64 {
        let stamp = self.at(at - STAMP_BYTES).cast::<[u8; STAMP_BYTES]>();
        // SAFETY: a `Place` has so many bytes before it within its chunk, which the caller says is ours.
        u64::from_ne_bytes(unsafe { stamp.replace([0; STAMP_BYTES]) })
    }

    /// Where the byte at this place is.
    ///
    /// # Panics
    /// If the memory ends before it.
    pub(super) fn at(&self, at: usize) -> NonNull<u8> {
        assert!(at < self.0.bytes);
        // SAFETY: the place is within the memory.
        unsafe { self.0.start.add(at) }
    }

    /// Where a chunk to send from is, by its beginning.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn chunk(&self, start: u64) -> NonNull<[u8; CHUNK_BYTES]> {
        let start = start as usize;
        assert!(start.is_multiple_of(CHUNK_BYTES));
        self.at(start).cast()
    }
}

/// Where a received frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Where it begins in the memory.
    pub(super) at: usize,
    pub(super) bytes: usize,
    /// The number of its chunk.
    pub(super) index: usize,
}

impl Place {
    /// The place that a description of the kernel's names, if it is within one chunk to receive into, behind a time.
    pub(super) fn of(description: &XdpDesc) -> Option<Self> {
        let at = usize::try_from(description.addr).ok()?;
        let (bytes, index) = (description.len as usize, at / CHUNK_BYTES);
        let offset = at % CHUNK_BYTES;
        let fits = index < RECEIVE && offset >= STAMP_BYTES && bytes <= CHUNK_BYTES - offset;
        fits.then_some(Self { at, bytes, index })
    }
}

/// Chunks for frames that arrive: 24 ms at 1 Gbit/s.
pub(super) const RECEIVE: usize = 2048;
/// Chunks for frames that leave.
pub(super) const SEND: usize = 1024;
pub(super) const CHUNK_BYTES: usize = 4096;
/// A time, which the program writes before a frame.
pub(super) const STAMP_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::xdp::XdpDescOptions;

    #[test]
    fn frames_have_a_time_once() {
        let umem = Umem::new().unwrap();
        let at = Umem::to_receive().nth(3).unwrap() as usize + 256;
        // SAFETY: no kernel has any of it.
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
