//! Explicit event delivery (*Event Delivery*, sections 4 and 6): who is told of which event, and when.
//!
//! A thread has a queue, and [declares its interest](EventQueues::declare_interest) in sources: descriptors, channels,
//! whatever can be readable or writable. Whoever learns that something happened to a source [posts](EventQueues::post)
//! it; the thread takes what is pending with [`get_next_event`](EventQueues::get_next_event), first in first out.
//!
//! - Events are coalesced: from the first arrival until delivery, a source stands once in each queue.
//! - What is delivered is the present state as far as it is known, less what the thread has reported as
//!   [consumed](EventQueues::consume); an event whose cause is gone by then is suppressed.
//! - A source's state is told by `declare_interest` itself, before anything can be queued, so that nothing that was
//!   there before is missed.
//! - An event of a source that was removed reaches nobody, whoever has its number now.
//!
//! The paper leaves open what to do when the queue of events overflows (section 6). Here the link of one pending event
//! is part of each declared interest, so that it cannot.
//!
//! # Cost
//! Posting and declaring take time in proportion to the queues interested in the source (usually one); delivery is
//! O(1) an event, suppressed ones included, each of which was posted before. Nothing depends on the number of sources.
//! 20 bytes a source and 32 an interest; places are kept for reuse.

mod interests;
mod readiness;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use interests::{Interest, Interests, NIL};
pub use readiness::Readiness;

/// A thread's queue of events.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueId(u32);

/// Something that events happen to. Its number is used again after it was removed, with another generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SourceId {
    index: u32,
    generation: u32,
}

impl SourceId {
    /// The id as a number, to be carried through a kernel interface.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The id that [`to_bits`](Self::to_bits) gave. Any other number names no source.
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }

    /// Its place in a table: less than the largest number of sources there were at once.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// Which of several interested queues of one [`EventQueues`] learn of an event. Where the kernel is what threads have in
/// common, and each has an `EventQueues` of its own, the kernel chooses: see what the crate `softclock` says of its queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Delivery {
    /// All of them.
    #[default]
    Each,
    /// One (the paper's `SO_WAKEUP_ONE`, the "first eligible thread"): an idle one if there is any, else the one whose
    /// turn it is. If it loses its interest before it has taken the event, another gets it. If it is still busy when more
    /// arrives, an idle one gets it: coalescing is for as long as the application has not learnt of the first arrival,
    /// whichever of its threads was to tell it.
    One,
}

/// A delivered event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceEvent {
    /// What it happened to.
    pub source: SourceId,
    /// The state of the source, as far as the queue is interested in it.
    pub readiness: Readiness,
}

impl SourceEvent {
    /// No event, to fill an array with.
    pub const NONE: Self = Self {
        source: SourceId::from_bits(u64::MAX),
        readiness: Readiness::NONE,
    };
}

/// Sources, queues, and which of them have to do with each other; see the [module](self).
#[derive(Debug, Default)]
pub struct EventQueues {
    sources: Vec<SourceRecord>,
    free_sources: Vec<u32>,
    queues: Vec<Queue>,
    free_queues: Vec<u32>,
    interests: Interests,
}

#[derive(Debug)]
struct SourceRecord {
    generation: u32,
    /// The first and last of its interests, in the order of their turns.
    first: u32,
    last: u32,
    state: Readiness,
    delivery: Delivery,
}

#[derive(Debug)]
struct Queue {
    /// The first and last interest with a pending event.
    first: u32,
    last: u32,
    idle: bool,
}

/// What is added to every interest: as with poll(2), one cannot ask not to be told.
const ALWAYS: Readiness = Readiness::from_bits(
    Readiness::READ_CLOSED.bits() | Readiness::WRITE_CLOSED.bits() | Readiness::ERROR.bits(),
);

impl Queue {
    /// Whether its thread waits. One that has an event pending will be busy with it.
    fn is_waiting(&self) -> bool {
        self.idle && self.first == NIL
    }
}

impl EventQueues {
    /// No source and no queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a queue with no interests.
    pub fn add_queue(&mut self) -> QueueId {
        let queue = Queue {
            first: NIL,
            last: NIL,
            idle: false,
        };
        match self.free_queues.pop() {
            Some(index) => {
                self.queues[index as usize] = queue;
                QueueId(index)
            }
            None => {
                self.queues.push(queue);
                QueueId(number(self.queues.len() - 1))
            }
        }
    }

    /// Removes a queue and its interests; events that it alone was to get go to others. The id must not be used again.
    /// Looks at every interest there is.
    pub fn remove_queue(&mut self, queue: QueueId) {
        for interest in self.interests.of_queue(queue.0) {
            self.revoke(interest);
        }
        self.free_queues.push(queue.0);
    }

    /// Says whether the queue's thread waits for events, or is busy.
    pub fn set_idle(&mut self, queue: QueueId, idle: bool) {
        self.queues[queue.0 as usize].idle = idle;
    }

    /// Adds a source in the given state.
    pub fn add_source(&mut self, state: Readiness, delivery: Delivery) -> SourceId {
        if let Some(index) = self.free_sources.pop() {
            let source = &mut self.sources[index as usize];
            source.state = state;
            source.delivery = delivery;
            return SourceId {
                index,
                generation: source.generation,
            };
        }
        self.sources.push(SourceRecord {
            generation: 0,
            first: NIL,
            last: NIL,
            state,
            delivery,
        });
        SourceId {
            index: number(self.sources.len() - 1),
            generation: 0,
        }
    }

    /// Removes a source with all interests in it and what was pending; false if it was removed before.
    pub fn remove_source(&mut self, id: SourceId) -> bool {
        let Some(source) = self.source_mut(id) else {
            return false;
        };
        source.generation = source.generation.wrapping_add(1);
        // No event is handed on.
        source.state = Readiness::NONE;
        while let interest @ 1.. = self.sources[id.index()].first {
            self.revoke(interest);
        }
        self.free_sources.push(id.index);
        true
    }

    /// The state of a source, as far as it is known; `None` if it was removed.
    pub fn state(&self, id: SourceId) -> Option<Readiness> {
        self.source(id).map(|source| source.state)
    }

    /// Declares in which conditions of `source` the queue is interested from now on, in place of what it declared
    /// before; closing and errors are always among them. An empty `mask` revokes the interest. Gives the present state,
    /// for which no event will be queued; `None` if the source was removed.
    pub fn declare_interest(
        &mut self,
        queue: QueueId,
        source: SourceId,
        mask: Readiness,
    ) -> Option<Readiness> {
        let state = self.state(source)?;
        let interest = self.find(queue, source);
        if mask.is_empty() {
            if interest != NIL {
                self.revoke(interest);
            }
            return Some(state);
        }
        let mask = mask | ALWAYS;
        if interest == NIL {
            let interest = self.interests.insert(source.index, queue.0, mask);
            self.link_to_source(interest);
        } else {
            self.change_mask(interest, mask);
        }
        Some(state)
    }

    /// Something happened to a source: the conditions `arrived` hold now. Those interested in them will learn of it.
    #[inline]
    pub fn post(&mut self, id: SourceId, arrived: Readiness) {
        let Some(source) = self.source_mut(id) else {
            return;
        };
        source.state |= arrived;
        match source.delivery {
            Delivery::Each => self.post_each(id.index, arrived),
            Delivery::One => self.post_one(id.index, arrived),
        }
    }

    /// These conditions of a source hold no more: a call found nothing, or took less than it could have.
    #[inline]
    pub fn consume(&mut self, id: SourceId, consumed: Readiness) {
        if let Some(source) = self.source_mut(id) {
            source.state = source.state & !consumed;
        }
    }

    /// The state of a source was looked at and is this. No event is queued for it.
    pub fn set_state(&mut self, id: SourceId, state: Readiness) {
        if let Some(source) = self.source_mut(id) {
            source.state = state;
        }
    }

    /// Takes pending events in the order of their arrival, as many as there is room for; returns their number.
    pub fn get_next_event(&mut self, queue: QueueId, events: &mut [SourceEvent]) -> usize {
        let mut found = 0;
        while let Some(room) = events.get_mut(found) {
            let Some(event) = self.pop_event(queue) else {
                break;
            };
            *room = event;
            found += 1;
        }
        found
    }

    /// Takes the first pending event.
    #[inline]
    pub fn pop_event(&mut self, queue: QueueId) -> Option<SourceEvent> {
        loop {
            let interest = self.queues[queue.0 as usize].first;
            if interest == NIL {
                return None;
            }
            self.unlink_pending(interest);
            let interest = &self.interests[interest];
            let source = &self.sources[interest.source as usize];
            let readiness = source.state & interest.mask;
            if !readiness.is_empty() {
                let source = SourceId {
                    index: interest.source,
                    generation: source.generation,
                };
                return Some(SourceEvent { source, readiness });
            }
        }
    }

    /// Whether anything is pending; what is may still turn out to be meaningless.
    pub fn is_pending(&self, queue: QueueId) -> bool {
        self.queues[queue.0 as usize].first != NIL
    }

    fn post_each(&mut self, source: u32, arrived: Readiness) {
        let mut next = self.sources[source as usize].first;
        while next != NIL {
            let interest = &self.interests[next];
            let following = interest.source_next;
            if !interest.pending && interest.mask.intersects(arrived) {
                self.link_pending(next);
            }
            next = following;
        }
    }

    /// Gives the event to the first idle queue that is interested, else to the first; its turn is then the last. What
    /// that queue does not care for goes to another. An event that is pending already stands for this one too, but one
    /// that waits for a busy thread goes over to an idle one.
    fn post_one(&mut self, source: u32, arrived: Readiness) {
        let mut left = arrived & !self.covered(source, |queue| queue.idle);
        while let Some(chosen) = self.choose(source, left, Queue::is_waiting) {
            left = left & !self.interests[chosen].mask;
            self.give(chosen);
            self.relieve_busy(source, self.interests[chosen].mask);
        }
        left = left & !self.covered(source, |_| true);
        while let Some(chosen) = self.choose(source, left, |_| true) {
            left = left & !self.interests[chosen].mask;
            self.give(chosen);
        }
    }

    /// The conditions of which some of these queues has an event pending.
    fn covered(&self, source: u32, among: impl Fn(&Queue) -> bool) -> Readiness {
        let interests = self
            .interests
            .of_source(self.sources[source as usize].first);
        interests
            .filter(|(_, interest)| interest.pending && among(self.queue_of(interest)))
            .fold(Readiness::NONE, |all, (_, interest)| all | interest.mask)
    }

    /// The first of these queues that is interested in one of the conditions and has no event of the source.
    fn choose(
        &self,
        source: u32,
        conditions: Readiness,
        among: impl Fn(&Queue) -> bool,
    ) -> Option<u32> {
        let first = self.sources[source as usize].first;
        let mut interested = self
            .interests
            .of_source(first)
            .filter(|(_, interest)| interest.mask.intersects(conditions) && !interest.pending);
        let chosen = interested.find(|(_, interest)| among(self.queue_of(interest)));
        chosen.map(|(index, _)| index)
    }

    fn give(&mut self, interest: u32) {
        self.link_pending(interest);
        self.unlink_from_source(interest);
        self.link_to_source(interest);
    }

    /// Takes back events for busy queues that tell nothing beyond `given`, which an idle one is told now.
    fn relieve_busy(&mut self, source: u32, given: Readiness) {
        let SourceRecord { state, first, .. } = self.sources[source as usize];
        let mut next = first;
        while next != NIL {
            let interest = &self.interests[next];
            let following = interest.source_next;
            let is_told = given.contains(state & interest.mask);
            if interest.pending && is_told && !self.queue_of(interest).idle {
                self.unlink_pending(next);
            }
            next = following;
        }
    }

    fn queue_of(&self, interest: &Interest) -> &Queue {
        &self.queues[interest.queue as usize]
    }

    /// The interest of a queue in a source, or `NIL`.
    fn find(&self, queue: QueueId, source: SourceId) -> u32 {
        let first = self.sources[source.index()].first;
        let mut interests = self.interests.of_source(first);
        interests
            .find(|(_, interest)| interest.queue == queue.0)
            .map_or(NIL, |(index, _)| index)
    }

    fn change_mask(&mut self, index: u32, mask: Readiness) {
        let interest = &mut self.interests[index];
        let dropped = core::mem::replace(&mut interest.mask, mask) & !mask;
        let (source, pending) = (interest.source, interest.pending);
        if pending {
            self.hand_on(source, dropped);
        }
    }

    /// A queue that was to learn of these conditions does not care for them any more: another may.
    fn hand_on(&mut self, source: u32, conditions: Readiness) {
        let SourceRecord {
            state, delivery, ..
        } = self.sources[source as usize];
        if delivery == Delivery::One {
            self.post_one(source, state & conditions);
        }
    }

    /// Ends an interest. An event that was for it alone goes to another.
    fn revoke(&mut self, index: u32) {
        let was_pending = self.interests[index].pending;
        if was_pending {
            self.unlink_pending(index);
        }
        self.unlink_from_source(index);
        let Interest { source, mask, .. } = self.interests[index];
        self.interests.remove(index);
        if was_pending {
            self.hand_on(source, mask);
        }
    }

    fn source(&self, id: SourceId) -> Option<&SourceRecord> {
        self.sources
            .get(id.index())
            .filter(|source| source.generation == id.generation)
    }

    #[inline]
    fn source_mut(&mut self, id: SourceId) -> Option<&mut SourceRecord> {
        self.sources
            .get_mut(id.index())
            .filter(|source| source.generation == id.generation)
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 of a kind")
}
