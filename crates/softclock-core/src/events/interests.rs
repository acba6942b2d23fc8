//! The interests of queues in sources. Each is linked into the list of its source, and into the list of its queue
//! while an event is pending for it.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use super::{EventQueues, Readiness};

/// End of a list. No interest has this number.
pub(super) const NIL: u32 = 0;

#[derive(Debug)]
pub(super) struct Interest {
    pub(super) source: u32,
    pub(super) queue: u32,
    pub(super) source_prev: u32,
    pub(super) source_next: u32,
    queue_prev: u32,
    queue_next: u32,
    pub(super) mask: Readiness,
    /// Whether the interest is linked into the list of its queue.
    pub(super) pending: bool,
    /// Whether the interest exists: it was inserted and not yet removed.
    live: bool,
}

const _: () = assert!(size_of::<Interest>() <= 32);

/// All interests, numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Interests {
    all: Vec<Interest>,
    free: Vec<u32>,
}

impl Interests {
    /// Adds an interest that is linked into no list.
    pub(super) fn insert(&mut self, source: u32, queue: u32, mask: Readiness) -> u32 {
        let interest = Interest {
            source,
            queue,
            source_prev: NIL,
            source_next: NIL,
            queue_prev: NIL,
            queue_next: NIL,
            mask,
            pending: false,
            live: true,
        };
        if let Some(index) = self.free.pop() {
            self[index] = interest;
            return index;
        }
        self.all.push(interest);
        u32::try_from(self.all.len()).expect("fewer than 2^32 interests")
    }

    pub(super) fn remove(&mut self, index: u32) {
        self[index].live = false;
        self.free.push(index);
    }

    /// Iterates over the interests in a source, of which `first` is the first.
    pub(super) fn of_source(&self, first: u32) -> impl Iterator<Item = (u32, &Interest)> {
        let mut next = first;
        core::iter::from_fn(move || {
            let index = (next != NIL).then_some(next)?;
            let interest = &self[index];
            next = interest.source_next;
            Some((index, interest))
        })
    }

    /// Returns the interests of a queue. O(n) in all interests.
    pub(super) fn of_queue(&self, queue: u32) -> Vec<u32> {
        let numbered = (1..).zip(&self.all);
        numbered
            .filter(|(_, interest)| interest.live && interest.queue == queue)
            .map(|(index, _)| index)
            .collect()
    }
}

impl Index<u32> for Interests {
    type Output = Interest;

    #[inline]
    fn index(&self, index: u32) -> &Interest {
        &self.all[index as usize - 1]
    }
}

impl IndexMut<u32> for Interests {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Interest {
        &mut self.all[index as usize - 1]
    }
}

impl EventQueues {
    /// Appends an interest to the pending events of its queue.
    #[inline]
    pub(super) fn link_pending(&mut self, index: u32) {
        let queue = &mut self.queues[self.interests[index].queue as usize];
        let last = core::mem::replace(&mut queue.last, index);
        if last == NIL {
            queue.first = index;
        } else {
            self.interests[last].queue_next = index;
        }
        let interest = &mut self.interests[index];
        interest.queue_prev = last;
        interest.queue_next = NIL;
        interest.pending = true;
    }

    #[inline]
    pub(super) fn unlink_pending(&mut self, index: u32) {
        let interest = &mut self.interests[index];
        interest.pending = false;
        let (prev, next) = (interest.queue_prev, interest.queue_next);
        let queue = &mut self.queues[interest.queue as usize];
        match prev {
            NIL => queue.first = next,
            _ => self.interests[prev].queue_next = next,
        }
        match next {
            NIL => queue.last = prev,
            _ => self.interests[next].queue_prev = prev,
        }
    }

    /// Appends an interest to the list of its source.
    pub(super) fn link_to_source(&mut self, index: u32) {
        let source = &mut self.sources[self.interests[index].source as usize];
        let last = core::mem::replace(&mut source.last, index);
        if last == NIL {
            source.first = index;
        } else {
            self.interests[last].source_next = index;
        }
        let interest = &mut self.interests[index];
        interest.source_prev = last;
        interest.source_next = NIL;
    }

    pub(super) fn unlink_from_source(&mut self, index: u32) {
        let interest = &self.interests[index];
        let (prev, next) = (interest.source_prev, interest.source_next);
        let source = &mut self.sources[interest.source as usize];
        match prev {
            NIL => source.first = next,
            _ => self.interests[prev].source_next = next,
        }
        match next {
            NIL => source.last = prev,
            _ => self.interests[next].source_prev = prev,
        }
    }
}
