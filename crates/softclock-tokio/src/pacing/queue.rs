//! The datagrams that wait for their time, in the order in which they will be sent.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::schedule::Allowance;

/// A bounded queue of datagrams. Only datagrams with equal `F`, such as their destination, are sent by one call.
#[derive(Debug)]
pub(super) struct Queue<F> {
    trains: VecDeque<Train<F>>,
    datagrams: usize,
    capacity: usize,
}

/// Datagrams of the same size, the last of which may be shorter, as one call with segmentation sends them.
#[derive(Debug)]
struct Train<F> {
    flow: F,
    bytes: BytesMut,
    segment_bytes: usize,
}

/// Datagrams to be sent by one call.
#[derive(Debug)]
pub(super) struct Group<F> {
    pub(super) flow: F,
    pub(super) bytes: Bytes,
    pub(super) segment_bytes: usize,
}

impl<F: PartialEq + Clone> Queue<F> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            trains: VecDeque::new(),
            datagrams: 0,
            capacity,
        }
    }

    /// Returns the number of datagrams that wait.
    pub(super) fn len(&self) -> usize {
        self.datagrams
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// Returns whether `datagrams` more would fit. One train is always accepted by an empty queue, however long.
    pub(super) fn has_room(&self, datagrams: usize) -> bool {
        self.is_empty() || self.datagrams + datagrams <= self.capacity
    }

    /// Adds `bytes` as datagrams of `segment_bytes` (at least 1) each, the last of which may be shorter. Returns
    /// whether they had room; otherwise, none is added.
    pub(super) fn push(&mut self, flow: F, bytes: &[u8], segment_bytes: usize) -> bool {
        let datagrams = count(bytes.len(), segment_bytes);
        if !self.has_room(datagrams) {
            return false;
        }
        self.datagrams += datagrams;
        match self.trains.back_mut() {
            Some(last) if last.takes(&flow, bytes, segment_bytes) => {
                last.bytes.extend_from_slice(bytes);
            }
            _ => self.trains.push_back(Train {
                flow,
                bytes: BytesMut::from(bytes),
                segment_bytes,
            }),
        }
        true
    }

    /// Takes the datagrams from the front that are allowed and can be sent by one call.
    pub(super) fn take(&mut self, allowance: &mut Allowance) -> Option<Group<F>> {
        let train = self.trains.front_mut()?;
        let (mut length, mut number) = (0, 0);
        while number == 0 || (length < train.bytes.len() && number < MOST_SEGMENTS) {
            let next = train.segment_bytes.min(train.bytes.len() - length);
            if !allowance.take(next) {
                break;
            }
            (length, number) = (length + next, number + 1);
        }
        if number == 0 {
            return None;
        }
        self.datagrams -= number;
        let group = Group {
            flow: train.flow.clone(),
            bytes: train.bytes.split_to(length).freeze(),
            segment_bytes: train.segment_bytes,
        };
        if train.bytes.is_empty() {
            self.trains.pop_front();
        }
        Some(group)
    }

    /// Puts datagrams that could not be sent back to the front, even if there is no room for them.
    pub(super) fn put_back(&mut self, group: Group<F>) {
        self.datagrams += group.len();
        self.trains.push_front(Train {
            flow: group.flow,
            bytes: BytesMut::from(group.bytes),
            segment_bytes: group.segment_bytes,
        });
    }
}

impl<F> Group<F> {
    /// Returns the number of datagrams.
    pub(super) fn len(&self) -> usize {
        count(self.bytes.len(), self.segment_bytes)
    }

    /// Removes the first `bytes`, and returns the number of their datagrams.
    pub(super) fn split_off(&mut self, bytes: usize) -> usize {
        let first = self.bytes.split_to(bytes);
        count(first.len(), self.segment_bytes)
    }
}

impl<F: PartialEq> Train<F> {
    /// Whether these datagrams can be appended: they have the size and the flow of the train, and it does not end with
    /// a shorter one. A shorter one is appended to several of a size only: a single long datagram may be a probe of the
    /// path's MTU, and if the interface refuses it, what was sent by the same call is lost, too.
    fn takes(&self, flow: &F, bytes: &[u8], segment_bytes: usize) -> bool {
        let length = self.bytes.len();
        let is_last = bytes.len() <= segment_bytes
            && bytes.len() < self.segment_bytes
            && length > self.segment_bytes;
        self.flow == *flow
            && length > 0
            && length.is_multiple_of(self.segment_bytes)
            && !bytes.is_empty()
            && (segment_bytes == self.segment_bytes || is_last)
            && length + bytes.len() <= MOST_BYTES
    }
}

/// Returns the number of datagrams in `bytes`.
pub(super) fn count(bytes: usize, segment_bytes: usize) -> usize {
    bytes.div_ceil(segment_bytes).max(1)
}

/// The most bytes that one call of the kernel segments.
const MOST_BYTES: usize = 65_507;

/// The most datagrams into which all kernels segment the bytes of one call.
const MOST_SEGMENTS: usize = softclock_linux::socket::udp::MOST_SEGMENTS;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(queue: &mut Queue<u8>, at_a_time: u32) -> Vec<(u8, usize, usize)> {
        let mut taken = Vec::new();
        while let Some(group) = queue.take(&mut Allowance::unlimited(at_a_time)) {
            taken.push((group.flow, group.bytes.len(), group.segment_bytes));
        }
        taken
    }

    #[test]
    fn datagrams_of_one_size_and_flow_are_joined() {
        let mut queue = Queue::new(100);
        for (flow, bytes) in [(1, 100), (1, 100), (1, 60), (1, 100), (2, 100), (2, 200)] {
            assert!(queue.push(flow, &vec![0; bytes], bytes));
        }
        assert!(queue.push(3, &[0; 200], 200) && queue.push(3, &[0; 100], 100));
        assert_eq!(queue.len(), 8);
        let expected = [
            (1, 260, 100),
            (1, 100, 100),
            (2, 100, 100),
            (2, 200, 200),
            // Perhaps a probe of the MTU.
            (3, 200, 200),
            (3, 100, 100),
        ];
        assert_eq!(all(&mut queue, 9), expected);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_train_is_taken_in_parts() {
        let mut queue = Queue::new(100);
        assert!(queue.push(1, &[0; 950], 100));
        let expected = [(1, 400, 100), (1, 400, 100), (1, 150, 100)];
        assert_eq!(all(&mut queue, 4), expected);
    }

    #[test]
    fn trains_of_other_sizes_are_apart() {
        let mut queue = Queue::new(100);
        assert!(queue.push(1, &[0; 1000], 500));
        assert!(queue.push(1, &[0; 300], 100));
        assert!(queue.push(1, &[0; 200], 100));
        assert_eq!(all(&mut queue, 9), [(1, 1000, 500), (1, 500, 100)]);
    }

    #[test]
    fn empty_datagrams_are_datagrams() {
        let mut queue = Queue::new(100);
        assert!(queue.push(1, &[], 1));
        assert!(queue.push(1, &[], 1));
        assert_eq!(queue.len(), 2);
        assert_eq!(all(&mut queue, 4), [(1, 0, 1), (1, 0, 1)]);
    }

    #[test]
    fn a_full_queue_takes_nothing() {
        let mut queue = Queue::new(3);
        assert!(queue.push(1, &[0; 20], 10));
        assert!(!queue.push(1, &[0; 20], 10));
        assert!(queue.push(1, &[0; 10], 10));
        assert_eq!(queue.len(), 3);
        let group = queue.take(&mut Allowance::unlimited(2)).unwrap();
        queue.put_back(group);
        assert_eq!(all(&mut queue, 9), [(1, 20, 10), (1, 10, 10)]);
        assert!(queue.push(1, &[0; 90], 10), "a long train alone");
    }
}
