//! Payloads that follow each other without a gap.

use alloc::collections::VecDeque;
use core::ops::Deref;

use crate::tcp::payload::Payload;

/// A queue of payloads, each of which begins where the one before it ends. It has no memory while it is empty.
///
/// Small copies are put together: two neighbors that are copies are longer than [`CHUNK_BYTES`] together, so the number
/// of copies is bounded by the number of bytes.
pub(super) struct Pieces<B> {
    queue: VecDeque<Payload<B>>,
    memory: usize,
}

impl<B> Pieces<B> {
    pub(super) const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            memory: 0,
        }
    }

    /// The memory of all payloads, in bytes.
    pub(super) const fn memory_bytes(&self) -> usize {
        self.memory
    }
}

impl<B: Deref<Target = [u8]>> Pieces<B> {
    /// Appends a payload that is not empty.
    pub(super) fn push(&mut self, payload: Payload<B>) {
        if let Some(last) = self.queue.back_mut()
            && fit_together(last, &payload)
        {
            self.memory -= last.memory_bytes();
            last.append(&payload);
            self.memory += last.memory_bytes();
            return;
        }
        self.memory += cost(&payload);
        self.queue.push_back(payload);
    }

    /// Appends other pieces. Moves as many payloads as the shorter of both has, so that neither appending to a long
    /// queue nor prepending to one is slow.
    pub(super) fn append(&mut self, mut other: Self) {
        if let (Some(last), Some(first)) = (self.queue.back(), other.queue.front())
            && fit_together(last, first)
            && let Some(first) = other.pop()
        {
            self.push(first);
        }
        self.memory += other.memory;
        if self.queue.len() >= other.queue.len() {
            self.queue.append(&mut other.queue);
        } else {
            while let Some(payload) = self.queue.pop_back() {
                other.queue.push_front(payload);
            }
            self.queue = other.queue;
        }
    }

    /// Removes the first payload.
    pub(super) fn pop(&mut self) -> Option<Payload<B>> {
        let payload = self.queue.pop_front()?;
        self.memory -= cost(&payload);
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
        Some(payload)
    }

    /// Moves bytes from the front to `into`; returns their number.
    pub(super) fn read(&mut self, into: &mut [u8]) -> usize {
        let mut read = 0;
        while let Some(first) = self.queue.front_mut() {
            let room = into.get_mut(read..).unwrap_or_default();
            let bytes = room.len().min(first.len());
            if let (Some(to), Some(from)) = (room.get_mut(..bytes), first.get(..bytes)) {
                to.copy_from_slice(from);
            }
            read += bytes;
            first.advance(bytes);
            if !first.is_empty() {
                break;
            }
            self.pop();
        }
        read
    }

    /// Copies bytes from the front to `into`, and keeps them; returns their number.
    pub(super) fn peek(&self, into: &mut [u8]) -> usize {
        let mut copied = 0;
        for payload in &self.queue {
            let room = into.get_mut(copied..).unwrap_or_default();
            let bytes = room.len().min(payload.len());
            if let (Some(to), Some(from)) = (room.get_mut(..bytes), payload.get(..bytes)) {
                to.copy_from_slice(from);
            }
            copied += bytes;
        }
        copied
    }

    /// The number of bytes, counted.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn count_bytes(&self) -> usize {
        self.queue.iter().map(|payload| payload.len()).sum()
    }
}

/// The memory of a payload, its entry in the queue included, in bytes.
pub(super) fn cost<B: Deref<Target = [u8]>>(payload: &Payload<B>) -> usize {
    payload.memory_bytes() + size_of::<Payload<B>>()
}

/// Whether two neighbors are to be one.
fn fit_together<B: Deref<Target = [u8]>>(first: &Payload<B>, second: &Payload<B>) -> bool {
    first.is_copy() && second.is_copy() && first.len() + second.len() <= CHUNK_BYTES
}

/// The longest copy that is put together from smaller ones: long enough that its entry in the queue does not count,
/// short enough that bytes are not moved often.
const CHUNK_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_keep_bytes_in_order_however_they_are_put_together(
            parts in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 1..2000), any::<bool>(), any::<bool>()),
                0..20,
            ),
            buffer in 1..5000usize,
        ) {
            let mut pieces = Pieces::<Vec<u8>>::new();
            let mut model = Vec::new();
            for (bytes, is_copy, is_before) in parts {
                let payload = match is_copy {
                    true => Payload::copied(&bytes),
                    false => Payload::new(bytes.clone(), 0..bytes.len()),
                };
                let mut one = Pieces::new();
                one.push(payload);
                if is_before {
                    one.append(pieces);
                    pieces = one;
                    model.splice(0..0, bytes);
                } else {
                    pieces.append(one);
                    model.extend(bytes);
                }
                let costs = pieces.queue.iter().map(cost).sum::<usize>();
                prop_assert_eq!(pieces.memory_bytes(), costs);
                prop_assert_eq!(pieces.count_bytes(), model.len());
            }
            let neighbors = pieces.queue.iter().zip(pieces.queue.iter().skip(1));
            for (first, second) in neighbors {
                prop_assert!(!fit_together(first, second));
            }
            let mut peeked = vec![0; model.len() + 1];
            prop_assert_eq!(pieces.peek(&mut peeked), model.len());
            prop_assert_eq!(&peeked[..model.len()], &model[..]);
            let mut read = Vec::new();
            let mut into = vec![0; buffer];
            loop {
                let bytes = pieces.read(&mut into);
                read.extend_from_slice(&into[..bytes]);
                if bytes == 0 {
                    break;
                }
            }
            prop_assert_eq!(read, model);
            prop_assert_eq!(pieces.memory_bytes(), 0);
            prop_assert_eq!(pieces.queue.capacity(), 0);
        }
    }
}
