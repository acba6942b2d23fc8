//! The lists of events, one per slot, first in, first out.

use super::level::{Home, LEVELS, SLOTS};
use super::slab::{Links, NIL, Slab};
use alloc::boxed::Box;
use alloc::vec;
use core::hint::select_unpredictable;

/// The first and last node of each slot's list. An empty list is all zeros, so that the table is allocated as zeroed
/// memory and not written.
pub(super) struct Lists {
    ends: Box<[[u32; 2]]>,
}

const FIRST: usize = 0;
const LAST: usize = 1;
/// An extra slot that is never read. Writes that must have no effect go there, to avoid a branch.
const SPARE: usize = LEVELS * SLOTS;

impl Lists {
    pub(super) fn new() -> Self {
        Self {
            ends: vec![[NIL; 2]; SPARE + 1].into_boxed_slice(),
        }
    }

    /// Returns the node of a slot that holds exactly one.
    #[inline]
    pub(super) fn only(&self, home: Home) -> Option<u32> {
        let [first, last] = self.ends[home.index()];
        (first == last && first != NIL).then_some(first)
    }

    /// Appends a node to a slot's list. Accesses the node and the last one of the list.
    #[inline]
    pub(super) fn push_back<T>(&mut self, slab: &mut Slab<T>, home: Home, index: u32) {
        let ends = &mut self.ends[home.index()];
        let prev = ends[LAST];
        ends[LAST] = index;
        let if_empty = select_unpredictable(prev == NIL, home.index(), SPARE);
        self.ends[if_empty][FIRST] = index;
        slab.set_next(prev, index);
        let links = Links {
            home,
            prev,
            next: NIL,
        };
        slab.set_links(index, links);
    }

    /// Removes the first node of a slot that is not empty. Returns it, and whether the slot is empty then. Accesses
    /// the node and the one behind it.
    #[inline]
    pub(super) fn pop_front<T>(&mut self, slab: &mut Slab<T>, home: Home) -> (u32, bool) {
        let ends = &mut self.ends[home.index()];
        let index = ends[FIRST];
        debug_assert!(index != NIL);
        let next = slab.links(index).next;
        ends[FIRST] = next;
        if next == NIL {
            ends[LAST] = NIL;
        }
        slab.set_prev(next, NIL);
        (index, next == NIL)
    }

    /// Removes the node with these links from its list. Returns whether the slot is empty then. Accesses its
    /// neighbours.
    #[inline]
    pub(super) fn unlink<T>(&mut self, slab: &mut Slab<T>, links: Links) -> bool {
        let Links { home, prev, next } = links;
        slab.set_next(prev, next);
        slab.set_prev(next, prev);
        // Whether a node is at an end of its list is unpredictable, and known only once its cache line has arrived. A
        // branch on it would keep the processor from executing the following code in the meantime.
        let at_first = select_unpredictable(prev == NIL, home.index(), SPARE);
        let at_last = select_unpredictable(next == NIL, home.index(), SPARE);
        self.ends[at_first][FIRST] = next;
        self.ends[at_last][LAST] = prev;
        prev == next
    }

    /// Returns the first node of a slot, or `NIL`.
    #[cfg(test)]
    pub(super) fn first(&self, home: Home) -> u32 {
        self.ends[home.index()][FIRST]
    }
}
