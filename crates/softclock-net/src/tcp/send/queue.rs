//! The bytes that are written and not yet acknowledged.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::{Buf, Bytes};

use crate::tcp::seq::Seq;

/// The bytes from SND.UNA to the end of all that was written, as references to the memory of the writer. Without bytes
/// it owns no memory.
#[derive(Debug)]
pub(super) struct SendQueue {
    chunks: VecDeque<Chunk>,
    /// The position behind the last byte.
    end: Seq,
    /// What the chunks count for, see [`charge`].
    charged: u32,
}

#[derive(Debug)]
struct Chunk {
    start: Seq,
    bytes: Bytes,
}

impl Chunk {
    fn end(&self) -> Seq {
        self.start + self.bytes.len() as u32
    }
}

impl SendQueue {
    pub(super) fn new(start: Seq) -> Self {
        Self {
            chunks: VecDeque::new(),
            end: start,
            charged: 0,
        }
    }

    pub(super) fn end(&self) -> Seq {
        self.end
    }

    /// The bytes that count towards the limit of the buffer.
    pub(super) fn charged(&self) -> u32 {
        self.charged
    }

    /// Appends bytes. The caller has checked that they fit.
    pub(super) fn push(&mut self, bytes: Bytes) {
        let (start, length) = (self.end, bytes.len());
        if length == 0 {
            return;
        }
        self.charged += charge(length);
        self.end += length as u32;
        self.chunks.push_back(Chunk { start, bytes });
    }

    /// Drops the bytes before a position. Takes time in proportion to the chunks that are dropped.
    pub(super) fn release(&mut self, una: Seq) {
        while let Some(first) = self.chunks.front_mut() {
            if una.is_before(first.end()) {
                let gone = una.since(first.start);
                self.charged -= charge(first.bytes.len());
                first.bytes.advance(gone as usize);
                first.start += gone;
                self.charged += charge(first.bytes.len());
                return;
            }
            self.charged -= charge(first.bytes.len());
            self.chunks.pop_front();
        }
        self.chunks = VecDeque::new();
    }

    /// Appends a range to `out`, as far as it lies in the queue. Finds its start by halving.
    pub(super) fn copy(&self, seq: Seq, length: u32, out: &mut Vec<u8>) {
        let first = self
            .chunks
            .partition_point(|chunk| chunk.end().is_at_or_before(seq));
        let mut at = seq;
        let end = seq + length;
        for chunk in self.chunks.range(first..) {
            let skipped = at.since(chunk.start) as usize;
            let wanted = end.since(at) as usize;
            let rest = chunk.bytes.get(skipped..).unwrap_or_default();
            let taken = rest.get(..wanted).unwrap_or(rest);
            out.extend_from_slice(taken);
            at += taken.len() as u32;
            if at == end {
                return;
            }
        }
    }
}

/// What a chunk counts for: its bytes, but at least 128, about what its bookkeeping takes. So a writer of single bytes
/// cannot take much more memory than the buffer's limit.
const fn charge(bytes: usize) -> u32 {
    match bytes < LEAST_CHARGE {
        true => LEAST_CHARGE as u32,
        false => bytes as u32,
    }
}

const LEAST_CHARGE: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_queue_is_a_window_on_a_stream(
            start in any::<u32>(),
            steps in prop::collection::vec((0..3u8, 0..400usize), 1..60),
        ) {
            let mut queue = SendQueue::new(Seq(start));
            let mut stream: Vec<u8> = Vec::new();
            let mut una = 0;
            for (step, size) in steps {
                match step {
                    0 => {
                        let bytes: Vec<u8> = (0..size).map(|at| (stream.len() + at) as u8).collect();
                        stream.extend(&bytes);
                        queue.push(bytes.into());
                    }
                    1 => {
                        una = (una + size).min(stream.len());
                        queue.release(Seq(start) + una as u32);
                    }
                    _ => {
                        let from = una + (stream.len() - una) / 3;
                        let to = (from + size).min(stream.len());
                        let mut out = Vec::new();
                        queue.copy(Seq(start) + from as u32, (to - from) as u32, &mut out);
                        prop_assert_eq!(&out[..], &stream[from..to]);
                    }
                }
                prop_assert_eq!(queue.end(), Seq(start) + stream.len() as u32);
                prop_assert!(queue.charged() as usize >= stream.len() - una);
            }
            queue.release(queue.end());
            prop_assert_eq!(queue.charged(), 0);
            prop_assert_eq!(queue.chunks.capacity(), 0);
        }
    }
}
