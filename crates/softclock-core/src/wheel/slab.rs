//! The memory of pending events: nodes in one vector, linked by index, freed last in, first out.

use super::level::Home;
use crate::Instant;
use alloc::vec::Vec;
use core::mem;
use core::num::NonZeroU32;

/// End of a list. Node 0 holds no event: it absorbs writes to the neighbour of a node at an end of its list, which
/// avoids a branch that would be hard to predict.
pub(super) const NIL: u32 = 0;

/// The key of a pending event: 8 bytes, as is `Option<TimerKey>`.
///
/// A key stays safe to use after its event has fired or was cancelled: the wheel compares generations, and never
/// gives out the same key twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimerKey {
    pub(super) index: u32,
    generation: NonZeroU32,
}

impl TimerKey {
    /// Returns the key as a number, for interfaces that pass numbers. It is never 0.
    pub const fn to_bits(self) -> u64 {
        (self.generation.get() as u64) << 32 | self.index as u64
    }

    /// Returns the key whose [`to_bits`](Self::to_bits) is `bits`. A number from elsewhere may be the key of any event;
    /// one that can be no key gives `None`.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match NonZeroU32::new((bits >> 32) as u32) {
            Some(generation) => Some(Self {
                index: bits as u32,
                generation,
            }),
            None => None,
        }
    }
}

const _: () = assert!(size_of::<TimerKey>() == 8);
const _: () = assert!(size_of::<Option<TimerKey>>() == 8);

/// A pending event, or a free node.
///
/// Both variants begin with the same fields, so that accessing a link needs no branch on the variant. The alignment
/// keeps a node with an 8-byte value within one cache line.
#[repr(align(32))]
enum Node<T> {
    Vacant {
        home: Home,
        generation: NonZeroU32,
        prev: u32,
        next: u32,
        due: Instant,
    },
    Occupied {
        home: Home,
        generation: NonZeroU32,
        prev: u32,
        next: u32,
        due: Instant,
        value: T,
    },
}

const _: () = assert!(size_of::<Node<u64>>() == 32);
const _: () = assert!(size_of::<Node<[u64; 2]>>() == 64);

/// The position of a node in the wheel: its slot and its neighbours in the slot's list.
#[derive(Clone, Copy)]
pub(super) struct Links {
    pub(super) home: Home,
    pub(super) prev: u32,
    pub(super) next: u32,
}

/// The pending events.
pub(super) struct Slab<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    len: usize,
    /// The first generation of a new node.
    first: NonZeroU32,
    /// The latest generation of any node.
    latest: NonZeroU32,
}

impl<T> Slab<T> {
    pub(super) const NODE_BYTES: usize = size_of::<Node<T>>();

    pub(super) fn with_capacity(capacity: usize) -> Self {
        let mut nodes = Vec::with_capacity(capacity + 1);
        nodes.push(Node::Vacant {
            home: Home::default(),
            generation: NonZeroU32::MIN,
            prev: NIL,
            next: NIL,
            due: Instant::ORIGIN,
        });
        Self {
            nodes,
            free: NIL,
            len: 0,
            first: NonZeroU32::MIN,
            latest: NonZeroU32::MIN,
        }
    }

    /// Creates an empty slab in whose place no key of this one is valid.
    pub(super) fn successor(&self) -> Self {
        let first = self.latest.saturating_add(1);
        Self {
            first,
            latest: first,
            ..Self::with_capacity(0)
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Stores an event that is not yet linked into a list. Amortised O(1), since the vector may grow.
    ///
    /// # Panics
    /// With 2^32 - 1 pending events.
    #[inline]
    pub(super) fn insert(&mut self, due: Instant, value: T) -> TimerKey {
        self.len += 1;
        let index = self.free;
        if index == NIL {
            return self.grow(due, value);
        }
        let node = &mut self.nodes[index as usize];
        let Node::Vacant {
            next, generation, ..
        } = *node
        else {
            unreachable!("the free list holds free nodes");
        };
        // The generation was raised when the node was freed, so old keys of the node do not match.
        self.free = next;
        *node = Node::Occupied {
            home: Home::default(),
            generation,
            prev: NIL,
            next: NIL,
            due,
            value,
        };
        TimerKey { index, generation }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, due: Instant, value: T) -> TimerKey {
        let index = u32::try_from(self.nodes.len()).expect("fewer than 2^32 pending timers");
        let generation = self.first;
        self.nodes.push(Node::Occupied {
            home: Home::default(),
            generation,
            prev: NIL,
            next: NIL,
            due,
            value,
        });
        TimerKey { index, generation }
    }

    /// Removes an event that is linked into no list. Returns `None` for a free node.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> Option<(Instant, T)> {
        let node = &mut self.nodes[index as usize];
        let Node::Occupied { generation, .. } = *node else {
            return None;
        };
        let generation = generation.saturating_add(1);
        let free = Node::Vacant {
            home: Home::default(),
            generation,
            prev: NIL,
            next: self.free,
            due: Instant::ORIGIN,
        };
        let Node::Occupied { due, value, .. } = mem::replace(node, free) else {
            return None;
        };
        self.latest = self.latest.max(generation);
        // A node whose generations are used up is never freed, so that no key becomes valid again.
        if generation != NonZeroU32::MAX {
            self.free = index;
        }
        self.len -= 1;
        Some((due, value))
    }

    /// Returns the links of the event with this key, unless it has fired or was cancelled.
    #[inline]
    pub(super) fn find(&self, key: TimerKey) -> Option<Links> {
        match self.nodes.get(key.index as usize) {
            Some(&Node::Occupied {
                home,
                generation,
                prev,
                next,
                ..
            }) if generation == key.generation => Some(Links { home, prev, next }),
            _ => None,
        }
    }

    /// Returns the value of the event with this key, unless it has fired or was cancelled.
    #[inline]
    pub(super) fn value_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        match self.nodes.get_mut(key.index as usize) {
            Some(Node::Occupied {
                generation, value, ..
            }) if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn due(&self, index: u32) -> Instant {
        let (Node::Vacant { due, .. } | Node::Occupied { due, .. }) = self.nodes[index as usize];
        due
    }

    #[inline]
    pub(super) fn set_due(&mut self, index: u32, instant: Instant) {
        let (Node::Vacant { due, .. } | Node::Occupied { due, .. }) =
            &mut self.nodes[index as usize];
        *due = instant;
    }

    #[inline]
    pub(super) fn links(&self, index: u32) -> Links {
        let (Node::Vacant {
            home, prev, next, ..
        }
        | Node::Occupied {
            home, prev, next, ..
        }) = self.nodes[index as usize];
        Links { home, prev, next }
    }

    #[inline]
    pub(super) fn set_links(&mut self, index: u32, links: Links) {
        let (Node::Vacant {
            home, prev, next, ..
        }
        | Node::Occupied {
            home, prev, next, ..
        }) = &mut self.nodes[index as usize];
        *home = links.home;
        *prev = links.prev;
        *next = links.next;
    }

    #[inline]
    pub(super) fn set_prev(&mut self, index: u32, to: u32) {
        let (Node::Vacant { prev, .. } | Node::Occupied { prev, .. }) =
            &mut self.nodes[index as usize];
        *prev = to;
    }

    #[inline]
    pub(super) fn set_next(&mut self, index: u32, to: u32) {
        let (Node::Vacant { next, .. } | Node::Occupied { next, .. }) =
            &mut self.nodes[index as usize];
        *next = to;
    }
}
