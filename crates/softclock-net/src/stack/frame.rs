//! Memory for frames that the stack builds.

use alloc::vec::Vec;

/// Memory of frames that have left, in which the next ones are built: a bounded number of buffers of usual frames.
#[derive(Debug, Default)]
pub(super) struct Spare(Vec<Vec<u8>>);

impl Spare {
    /// An empty buffer with room for a frame of so many bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Vec<u8> {
        match self.0.pop() {
            Some(mut frame) => {
                frame.reserve(bytes);
                frame
            }
            None => Vec::with_capacity(bytes.max(USUAL_BYTES)),
        }
    }

    /// Keeps the memory of a frame, if there is room for it and it is worth keeping.
    pub(super) fn give_back(&mut self, mut frame: Vec<u8>) {
        let is_usual = (USUAL_BYTES..=MOST_BYTES).contains(&frame.capacity());
        if is_usual && self.0.len() < MOST_SPARE {
            frame.clear();
            self.0.push(frame);
        }
    }
}

/// Room for a frame of the usual MTU.
const USUAL_BYTES: usize = 2048;

/// Frames with more are rare enough to be allocated.
const MOST_BYTES: usize = 16 << 10;

/// As many as leave in two batches.
const MOST_SPARE: usize = 64;

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
        }
        assert_eq!(spare.0.len(), MOST_SPARE);
        assert!(spare.0.iter().all(|kept| kept.capacity() <= MOST_BYTES));
    }
}
