//! The memory in which frames are exchanged with the kernel, in chunks of a page: the first [`RECEIVE`] for frames that
//! arrive, [`SEND`] for frames that leave.

use std::io;
use std::ptr::NonNull;
use std::slice;

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

    /// The frame that a description of the kernel's names, and the time that the program wrote before it, which is taken
    /// away; `None` if the kernel names no frame of ours.
    ///
    /// # Safety
    /// The chunk is not the kernel's as long as the frame is used.
    pub(super) unsafe fn received(&self, place: &XdpDesc) -> Option<(&[u8], u64)> {
        let (at, bytes) = (usize::try_from(place.addr).ok()?, place.len as usize);
        if at < STAMP_BYTES || at.checked_add(bytes)? > self.0.bytes {
            return None;
        }
        // SAFETY: the bytes are within the memory, whatever they are is a value, and the caller says that they stay as they
        // are.
        unsafe {
            let frame = self.0.start.add(at);
            let stamp = frame.sub(STAMP_BYTES).cast::<[u8; STAMP_BYTES]>();
            let received = u64::from_ne_bytes(stamp.replace([0; STAMP_BYTES]));
            Some((slice::from_raw_parts(frame.as_ptr(), bytes), received))
        }
    }

    /// Where a chunk to send from is, by its beginning.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn chunk(&self, start: u64) -> NonNull<[u8; CHUNK_BYTES]> {
        let start = start as usize;
        assert!(start.is_multiple_of(CHUNK_BYTES) && start < self.0.bytes);
        // SAFETY: the chunk is within the memory.
        unsafe { self.0.start.add(start) }.cast()
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
        let place = |addr, len| XdpDesc {
            addr,
            len,
            options: XdpDescOptions::empty(),
        };
        let chunk = Umem::to_send().next().unwrap();
        // SAFETY: no kernel has any of it.
        unsafe {
            let bytes = umem.chunk(chunk).as_mut();
            bytes[248..256].copy_from_slice(&7u64.to_ne_bytes());
            bytes[256..260].copy_from_slice(b"abcd");
            let place_of_frame = place(chunk + 256, 4);
            assert_eq!(umem.received(&place_of_frame), Some((&b"abcd"[..], 7)));
            assert_eq!(umem.received(&place_of_frame), Some((&b"abcd"[..], 0)));
            let end = ((RECEIVE + SEND) * CHUNK_BYTES) as u64;
            for (at, bytes) in [(0, 60), (end - 59, 60), (u64::MAX - 10, 60)] {
                assert_eq!(umem.received(&place(at, bytes)), None);
            }
        }
    }
}
