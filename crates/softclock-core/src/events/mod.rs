//! Explicit event delivery (*Event Delivery*, sections 4 and 6): queues of events, and the interests that select
//! them.
//!
//! Each thread has a queue, and [declares its interest](EventQueues::declare_interest) in sources: descriptors,
//! channels, or anything else that can become readable or writable. The code that learns of an event
//! [posts](EventQueues::post) it to the source. The thread takes pending events with
//! [`get_next_event`](EventQueues::get_next_event), first in, first out.
//!
//! - Events are coalesced: between the first arrival and delivery, a source has one entry in each queue.
//! - An event carries the present state of the source, as far as it is known, without the conditions that the thread
//!   has reported as [consumed](EventQueues::consume). An event is suppressed if none of its conditions is left.
//! - `declare_interest` returns the present state of the source before any event of it is queued, so that conditions
//!   from before the declaration are not missed.
//! - Pending events of a removed source are discarded, even if another source reuses its number.
//!
//! The paper leaves open how to handle an overflow of the queue (section 6). Here, the link of one pending event is
//! part of each declared interest, so a queue cannot overflow.
//!
//! # Cost
//! Posting and declaring take time proportional to the number of queues interested in the source, usually one.
//! Delivery is O(1) per event, including suppressed ones. No operation but
//! [`remove_queue`](EventQueues::remove_queue) depends on the number of sources. A source takes 20 bytes and an
//! interest 32; their memory is kept for reuse.
//!
//! # Example
//! ```
//! use softclock_core::events::{Delivery, EventQueues, Readiness};
//!
//! let mut events = EventQueues::new();
//! let queue = events.add_queue();
//! let socket = events.add_source(Readiness::NONE, Delivery::Each);
//! events.declare_interest(queue, socket, Readiness::READABLE);
//!
//! // Two arrivals before delivery are one event.
//! events.post(socket, Readiness::READABLE);
//! events.post(socket, Readiness::READABLE);
//! let event = events.pop_event(queue).expect("an event is pending");
//! assert_eq!((event.source, event.readiness), (socket, Readiness::READABLE));
//! assert_eq!(events.pop_event(queue), None);
//! ```

mod interests;
mod readiness;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use interests::{Interest, Interests, NIL};
pub use readiness::Readiness;

/// The id of a thread's queue of events.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueId(u32);

/// The id of a source of events. Its index is reused after the source was removed, with another generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SourceId {
    index: u32,
    generation: u32,
}

impl SourceId {
    /// Returns the id as a number, to be passed through a kernel interface.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Returns the id whose [`to_bits`](Self::to_bits) is `bits`. A number from elsewhere names no source.
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }

    /// Returns the index of the source, to be used in tables: less than the largest number of sources that ever
    /// coexisted.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// Selects the queues of one [`EventQueues`] that receive an event. Threads that each have their own `EventQueues`
/// and share a descriptor leave this choice to the kernel: see `softclock::events`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Delivery {
    /// All interested queues.
    #[default]
    Each,
    /// One interested queue (the paper's `SO_WAKEUP_ONE`, the "first eligible thread"): an idle one if there is any,
    /// else the next in turn. If that queue loses its interest before it has taken the event, another one receives
    /// it. If its thread is still busy when another event arrives, an idle queue receives both: events are coalesced
    /// only until one of the application's threads has learnt of the first arrival.
    One,
}

/// A delivered event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceEvent {
    /// The source of the event.
    pub source: SourceId,
    /// The conditions of the source that hold, limited to those that the queue is interested in.
    pub readiness: Readiness,
}

impl SourceEvent {
    /// A placeholder to fill arrays with.
    pub const NONE: Self = Self {
        source: SourceId::from_bits(u64::MAX),
        readiness: Readiness::NONE,
    };
}

/// Sources, queues and the interests of queues in sources; see the [module](self).
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
    /// The first and last interest in this source, in the order of their turns.
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

/// Conditions that are part of every interest, as with poll(2).
const ALWAYS: Readiness = Readiness::from_bits(
    Readiness::READ_CLOSED.bits() | Readiness::WRITE_CLOSED.bits() | Readiness::ERROR.bits(),
);

impl Queue {
    /// Returns whether the thread waits and has no pending event that is about to wake it.
    fn is_waiting(&self) -> bool {
        self.idle && self.first == NIL
    }
}

impl EventQueues {
    /// Creates a set without sources and queues.
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

    /// Removes a queue and its interests, passing on events that only this queue was to receive. The id must not be
    /// used afterwards. Takes time proportional to the number of all interests.
    pub fn remove_queue(&mut self, queue: QueueId) {
        for interest in self.interests.of_queue(queue.0) {
            self.revoke(interest);
        }
        self.free_queues.push(queue.0);
    }

    /// Records whether the queue's thread waits for events or is busy. [`Delivery::One`] prefers idle queues.
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

    /// Removes a source with all interests in it and its pending events. Returns false if it was removed before.
    pub fn remove_source(&mut self, id: SourceId) -> bool {
        let Some(source) = self.source_mut(id) else {
            return false;
        };
        // Ids with the old generation name no source from here on.
        source.generation = source.generation.wrapping_add(1);
        // With an empty state, `revoke` has no condition to pass on to other queues.
        source.state = Readiness::NONE;
        while let interest @ 1.. = self.sources[id.index()].first {
            self.revoke(interest);
        }
        self.free_sources.push(id.index);
        true
    }

    /// Returns the state of a source, as far as it is known, or `None` if it was removed.
    pub fn state(&self, id: SourceId) -> Option<Readiness> {
        self.source(id).map(|source| source.state)
    }

    /// Declares the conditions of `source` that the queue is interested in, replacing its earlier declaration.
    /// Closing and errors are always included. An empty `mask` revokes the interest. Returns the present state, for
    /// which no event will be queued, or `None` if the source was removed.
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

    /// Records that the conditions `arrived` hold for a source, and queues an event for interested queues.
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

    /// Records that these conditions of a source no longer hold: a call would have blocked, or transferred less than
    /// it could have.
    #[inline]
    pub fn consume(&mut self, id: SourceId, consumed: Readiness) {
        if let Some(source) = self.source_mut(id) {
            source.state = source.state & !consumed;
        }
    }

    /// Sets the state of a source to the result of a query. Queues no event.
    pub fn set_state(&mut self, id: SourceId, state: Readiness) {
        if let Some(source) = self.source_mut(id) {
            source.state = state;
        }
    }

    /// Fills `events` with pending events in the order of their arrival, and returns their number.
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
                // An event whose conditions have all been consumed is suppressed: go on to the next.
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

    /// Returns whether an event is pending. It may still be suppressed on delivery.
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

    /// Gives the event to the first idle interested queue, else to the first queue, whose turn is then the last.
    /// Conditions that this queue is not interested in go to further queues. An event that is already pending covers
    /// this one too, but if it is pending for a busy thread, it moves to an idle one.
    fn post_one(&mut self, source: u32, arrived: Readiness) {
        // First to idle queues: they are about to look at their events, so pending events of theirs cover this one.
        let mut left = arrived & !self.covered(source, |queue| queue.idle);
        while let Some(chosen) = self.choose(source, left, Queue::is_waiting) {
            left = left & !self.interests[chosen].mask;
            self.give(chosen);
            self.relieve_busy(source, self.interests[chosen].mask);
        }
        // Conditions that no idle queue takes go to busy ones, unless one of them already has an event pending for
        // them.
        left = left & !self.covered(source, |_| true);
        while let Some(chosen) = self.choose(source, left, |_| true) {
            left = left & !self.interests[chosen].mask;
            self.give(chosen);
        }
    }

    /// Returns the conditions for which one of these queues has an event pending.
    fn covered(&self, source: u32, among: impl Fn(&Queue) -> bool) -> Readiness {
        let interests = self
            .interests
            .of_source(self.sources[source as usize].first);
        interests
            .filter(|(_, interest)| interest.pending && among(self.queue_of(interest)))
            .fold(Readiness::NONE, |all, (_, interest)| all | interest.mask)
    }

    /// Returns the first of these queues that is interested in one of the conditions and has no event of the source.
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
        // Last in turn from now on.
        self.unlink_from_source(interest);
        self.link_to_source(interest);
    }

    /// Removes events pending for busy queues if `given`, which an idle queue has just received, covers all their
    /// conditions.
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

    /// Returns the interest of a queue in a source, or `NIL`.
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

    /// Offers these conditions to other queues, after a queue that was to receive them has lost interest in them.
    fn hand_on(&mut self, source: u32, conditions: Readiness) {
        let SourceRecord {
            state, delivery, ..
        } = self.sources[source as usize];
        if delivery == Delivery::One {
            self.post_one(source, state & conditions);
        }
    }

    /// Ends an interest. A pending event that only this queue was to receive goes to another.
    fn revoke(&mut self, index: u32) {
        let was_pending = self.interests[index].pending;
        if was_pending {
            self.unlink_pending(index);
        }
        self.unlink_from_source(index);
        let Interest { source, mask, .. } = self.interests[index];
        // Removed before the event is passed on, so that it cannot come back to this interest.
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
