//! Frames that the stack builds, and their memory.

use alloc::vec::Vec;

use softclock_wire::packet::Offload;

use crate::link::Header;

/// A frame for the link, with the work that is left to the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The frame, with its Ethernet header.
    pub bytes: Vec<u8>,
    /// The checksum and the segmentation that the device does; none without
    /// [`Settings::offloads_tcp`](super::Settings::offloads_tcp).
    pub offload: Offload,
}

impl Frame {
    /// Whether the frame has link addresses. A frame of a stack without the link has none until the stack with the link
    /// [forwards](super::Stack::forward) it, unless it leaves by a queue of its own stack.
    pub fn is_complete(&self) -> bool {
        let destination = self.bytes.first_chunk::<6>();
        destination.is_some_and(|destination| *destination != [0; 6])
    }

    /// The length of the longest IP packet that the frame becomes on the wire.
    pub(super) fn packet_bytes(&self) -> usize {
        let bytes = match self.offload.segmentation {
            Some(cut) => usize::from(cut.header_bytes) + usize::from(cut.segment_bytes),
            None => self.bytes.len(),
        };
        bytes.saturating_sub(Header::BYTES)
    }
}

impl From<Vec<u8>> for Frame {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            offload: Offload::NONE,
        }
    }
}

/// Memory of frames that have left, in which the next ones are built: a bounded number of buffers, and of bytes.
#[derive(Debug, Default)]
pub(super) struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// An empty buffer with room for a frame of so many bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Vec<u8> {
        match self.buffers.pop() {
            Some(mut frame) => {
                self.bytes -= frame.capacity();
                frame.reserve(bytes);
                frame
            }
            None => Vec::with_capacity(bytes.max(USUAL_BYTES)),
        }
    }

    /// Keeps the memory of a frame, if there is room for it and it is worth keeping.
    pub(super) fn give_back(&mut self, mut frame: Vec<u8>) {
        let bytes = frame.capacity();
        let has_room = self.buffers.len() < MOST_SPARE && self.bytes + bytes <= MOST_BYTES;
        if bytes >= USUAL_BYTES && has_room {
            frame.clear();
            self.bytes += bytes;
            self.buffers.push(frame);
        }
    }
}

/// Room for a frame of the usual MTU.
const USUAL_BYTES: usize = 2048;

/// As many as leave in two batches.
const MOST_SPARE: usize = 64;

/// Room for that number of usual frames, or for some that a device cuts into segments.
const MOST_BYTES: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_bounded() {
        let mut spare = Spare::default();
        let mut frame = spare.take(60);
        frame.extend([7; 60]);
        let place = frame.as_ptr();
        spare.give_back(frame);
        let again = spare.take(1500);
        assert!(again.is_empty() && again.as_ptr() == place);
        for bytes in [0, 60, 2048, 70_000] {
            (0..200).for_each(|_| spare.give_back(Vec::with_capacity(bytes)));
            let kept = spare.buffers.iter().map(Vec::capacity).sum::<usize>();
            assert!(spare.buffers.len() <= MOST_SPARE && kept <= MOST_BYTES);
            assert_eq!(kept, spare.bytes);
        }
        assert_eq!(spare.buffers.len(), MOST_SPARE);
    }
}
