//! The lists of events, one a slot, first in first out.

use super::level::{Home, LEVELS, SLOTS};
use super::slab::{Links, NIL, Slab};
use alloc::boxed::Box;
use alloc::vec;

/// First and last node of every slot's list. Zero is an empty list, so that the table is made of
/// zeroed pages and takes memory only where it has been used.
pub(super) struct Lists {
    ends: Box<[[u32; 2]]>,
}

const FIRST: usize = 0;
const LAST: usize = 1;

impl Lists {
    pub(super) fn new() -> Self {
        Self {
            ends: vec![[NIL; 2]; LEVELS * SLOTS].into_boxed_slice(),
        }
    }

    /// The first node of a slot, or `NIL`.
    #[inline]
    pub(super) fn first(&self, home: Home) -> u32 {
        self.ends[home.index()][FIRST]
    }

    /// Links a node as the only one of a slot whose list is empty.
    ///
    /// An event that recurs each few microseconds goes round the whole table before it comes to a slot again, which has
    /// left the caches by then. Written without being read, the slot is fetched while the program goes on.
    #[inline]
    pub(super) fn begin<T>(&mut self, slab: &mut Slab<T>, home: Home, index: u32) {
        self.ends[home.index()] = [index; 2];
        let links = Links {
            home,
            prev: NIL,
            next: NIL,
        };
        slab.set_links(index, links);
    }

    /// Links a node at the end of a slot's list, which is not empty. Touches the node and the last of the list.
    #[inline]
    pub(super) fn push_back<T>(&mut self, slab: &mut Slab<T>, home: Home, index: u32) {
        let ends = &mut self.ends[home.index()];
        let prev = ends[LAST];
        ends[LAST] = index;
        slab.set_next(prev, index);
        let links = Links {
            home,
            prev,
            next: NIL,
        };
        slab.set_links(index, links);
    }

    /// Takes a node with these links out of its list; true if that emptied the slot. Touches its
    /// neighbours.
    #[inline]
    pub(super) fn unlink<T>(&mut self, slab: &mut Slab<T>, links: Links) -> bool {
        let Links { home, prev, next } = links;
        slab.set_next(prev, next);
        slab.set_prev(next, prev);
        if prev != NIL && next != NIL {
            return false;
        }
        let ends = &mut self.ends[home.index()];
        if prev == NIL {
            ends[FIRST] = next;
        }
        if next == NIL {
            ends[LAST] = prev;
        }
        prev == next
    }
}
