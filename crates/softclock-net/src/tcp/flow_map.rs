//! A compact map from flows to small records, in which records also stand in lists by the order of their deadlines:
//! for connections that are half open, and for those in TIME-WAIT.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use crate::demux::{Flow, HashKey, Transport};

/// The place of a record, valid until the record is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place(u32);

/// A record of a [`FlowMap`].
pub(super) trait Record: Copy {
    /// The number of lists.
    const LISTS: usize;

    /// The list that the record stands in, less than [`LISTS`](Self::LISTS).
    fn list(&self) -> usize;
}

/// The map. Its hash is keyed, so that remote hosts cannot make look-ups slow. The caller bounds the number of records.
///
/// Records lie in one array, and an index of their places in another that is at most three quarters full. Each record
/// costs its own size, 44 bytes for flow and links, and 5 to 11 bytes of the index. Memory stays that of the most
/// records until the last one is removed.
pub(super) struct FlowMap<R> {
    key: HashKey,
    slots: Vec<Slot<R>>,
    /// For each place of the index a place of `slots`, or [`NONE`]. A power of two, or empty.
    index: Vec<u32>,
    lists: Vec<List>,
    /// The first of the free slots, which are linked by `next`.
    free: u32,
    len: u32,
}

/// A record, its flow, and its neighbours in its list.
#[derive(Clone, Copy)]
pub(super) struct Slot<R> {
    flow: PackedFlow,
    previous: u32,
    next: u32,
    record: R,
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl<R: Record> FlowMap<R> {
    /// Creates an empty map. The key must be random and secret.
    pub(super) fn new(key: HashKey) -> Self {
        let empty = List {
            first: NONE,
            last: NONE,
        };
        Self {
            key,
            slots: Vec::new(),
            index: Vec::new(),
            lists: vec![empty; R::LISTS],
            free: NONE,
            len: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn find(&self, flow: &Flow) -> Option<Place> {
        let flow = PackedFlow::of(flow);
        let at = self.find_in_index(&flow)?;
        Some(Place(self.index[at]))
    }

    pub(super) fn get(&self, place: Place) -> &R {
        &self.slots[place.0 as usize].record
    }

    pub(super) fn flow(&self, place: Place) -> Flow {
        self.slots[place.0 as usize].flow.unpack()
    }

    /// Changes a record, which keeps its place in its list. The list must be the same.
    pub(super) fn replace(&mut self, place: Place, record: R) {
        debug_assert_eq!(self.get(place).list(), record.list());
        self.slots[place.0 as usize].record = record;
    }

    /// Changes a record, and moves it to the end of its list, which can be another.
    pub(super) fn requeue(&mut self, place: Place, record: R) {
        self.unlink(place.0);
        self.slots[place.0 as usize].record = record;
        self.link(place.0);
    }

    /// The first record of a list.
    pub(super) fn first(&self, list: usize) -> Option<Place> {
        let first = self.lists[list].first;
        (first != NONE).then_some(Place(first))
    }

    /// Adds a record at the end of its list. Returns `false`, without effect, if the flow has a record.
    pub(super) fn insert(&mut self, flow: &Flow, record: R) -> bool {
        let flow = PackedFlow::of(flow);
        if self.find_in_index(&flow).is_some() {
            return false;
        }
        if self.len() >= self.index.len() / 4 * 3 {
            self.grow_index();
        }
        let slot = Slot {
            flow,
            previous: NONE,
            next: NONE,
            record,
        };
        let place = self.allocate(slot);
        self.link(place);
        self.put_in_index(place);
        self.len += 1;
        true
    }

    /// Removes a record. The last one gives all memory back.
    pub(super) fn remove(&mut self, place: Place) -> R {
        let record = *self.get(place);
        let flow = self.slots[place.0 as usize].flow;
        if let Some(at) = self.find_in_index(&flow) {
            self.close_gap(at);
        }
        self.unlink(place.0);
        self.slots[place.0 as usize].next = self.free;
        self.free = place.0;
        self.len -= 1;
        if self.len == 0 {
            self.slots = Vec::new();
            self.index = Vec::new();
            self.free = NONE;
        }
        record
    }

    fn allocate(&mut self, slot: Slot<R>) -> u32 {
        if self.free == NONE {
            // By a quarter and not by doubling: memory stays near that of the records.
            if self.slots.len() == self.slots.capacity() {
                self.slots.reserve_exact((self.slots.len() / 4).max(8));
            }
            self.slots.push(slot);
            return (self.slots.len() - 1) as u32;
        }
        let place = self.free;
        self.free = core::mem::replace(&mut self.slots[place as usize], slot).next;
        place
    }

    fn link(&mut self, place: u32) {
        let list = &mut self.lists[self.slots[place as usize].record.list()];
        let last = core::mem::replace(&mut list.last, place);
        match last {
            NONE => list.first = place,
            last => self.slots[last as usize].next = place,
        }
        let slot = &mut self.slots[place as usize];
        (slot.previous, slot.next) = (last, NONE);
    }

    fn unlink(&mut self, place: u32) {
        let slot = self.slots[place as usize];
        let list = &mut self.lists[slot.record.list()];
        match slot.previous {
            NONE => list.first = slot.next,
            previous => self.slots[previous as usize].next = slot.next,
        }
        match slot.next {
            NONE => list.last = slot.previous,
            next => self.slots[next as usize].previous = slot.previous,
        }
    }

    fn find_in_index(&self, flow: &PackedFlow) -> Option<usize> {
        if self.index.is_empty() {
            return None;
        }
        let mut at = self.home(flow);
        // Ends, since a quarter of the index is free.
        while self.index[at] != NONE {
            if self.slots[self.index[at] as usize].flow == *flow {
                return Some(at);
            }
            at = self.after(at);
        }
        None
    }

    fn put_in_index(&mut self, place: u32) {
        let mut at = self.home(&self.slots[place as usize].flow);
        while self.index[at] != NONE {
            at = self.after(at);
        }
        self.index[at] = place;
    }

    /// Frees a place of the index, and moves those behind it so that each is reachable from its home without a gap.
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.index.len() - 1;
        let mut at = self.after(gap);
        while self.index[at] != NONE {
            let home = self.home(&self.slots[self.index[at] as usize].flow);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(gap) & mask {
                self.index[gap] = self.index[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.index[gap] = NONE;
    }

    fn grow_index(&mut self) {
        let places = (self.index.len() * 2).max(LEAST_INDEX);
        let old = core::mem::replace(&mut self.index, vec![NONE; places]);
        for place in old.into_iter().filter(|place| *place != NONE) {
            self.put_in_index(place);
        }
    }

    fn home(&self, flow: &PackedFlow) -> usize {
        (flow.hash(self.key) >> 32) as usize & (self.index.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.index.len() - 1)
    }
}

/// A flow of TCP. Addresses of IPv4 are mapped (RFC 4291, 2.5.5.2): mapped addresses never come from a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PackedFlow {
    remote: [u32; 4],
    local: [u32; 4],
    ports: [u16; 2],
}

impl PackedFlow {
    fn of(flow: &Flow) -> Self {
        Self {
            remote: pack(flow.remote.0),
            local: pack(flow.local.0),
            ports: [flow.remote.1, flow.local.1],
        }
    }

    fn unpack(&self) -> Flow {
        let [remote, local] = self.ports;
        Flow {
            transport: Transport::Tcp,
            remote: (unpack(self.remote), remote),
            local: (unpack(self.local), local),
        }
    }

    fn hash(&self, key: HashKey) -> u64 {
        let word = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let ([a, b, c, d], [e, f, g, h]) = (self.remote, self.local);
        let [remote, local] = self.ports.map(u64::from);
        let words = [word(a, b), word(c, d), word(e, f), word(g, h)];
        key.hash_words(words, remote << 16 | local, 36)
    }
}

fn pack(address: IpAddr) -> [u32; 4] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

fn unpack(words: [u32; 4]) -> IpAddr {
    let bits = words
        .into_iter()
        .fold(0, |bits, word| bits << 32 | u128::from(word));
    IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical()
}

/// No place.
const NONE: u32 = u32::MAX;

/// The least places of an index that is not empty.
const LEAST_INDEX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Number(u8);

    impl Record for Number {
        const LISTS: usize = 3;

        fn list(&self) -> usize {
            usize::from(self.0 % 3)
        }
    }

    fn flow(number: u8) -> Flow {
        let address = |text: &str| text.parse().unwrap();
        Flow {
            transport: Transport::Tcp,
            remote: match number % 2 {
                0 => (address("192.0.2.1"), number.into()),
                _ => (address("2001:db8::1"), 80),
            },
            local: match number % 2 {
                0 => (address("10.0.0.1"), 80),
                _ => (address("2001:db8::2"), number.into()),
            },
        }
    }

    /// The records of each list, in order.
    type Model = [VecDeque<(u8, Number)>; 3];

    fn check(map: &FlowMap<Number>, model: &Model) {
        assert_eq!(map.len(), model.iter().map(VecDeque::len).sum::<usize>());
        for (list, expected) in model.iter().enumerate() {
            let mut at = map.lists[list].first;
            let mut previous = NONE;
            for (number, record) in expected {
                let slot = &map.slots[at as usize];
                assert_eq!((slot.flow.unpack(), slot.record), (flow(*number), *record));
                assert_eq!(slot.previous, previous);
                assert_eq!(map.find(&flow(*number)), Some(Place(at)));
                (previous, at) = (at, slot.next);
            }
            assert_eq!((at, map.lists[list].last), (NONE, previous));
        }
    }

    proptest! {
        #[test]
        fn a_flow_map_is_a_map_with_ordered_lists(
            steps in prop::collection::vec((0..5_u8, 0..60_u8, any::<u8>()), 0..400),
        ) {
            let mut map = FlowMap::new(HashKey([1, 2]));
            let mut model = Model::default();
            for (step, number, value) in steps {
                let record = Number(value);
                let place = map.find(&flow(number));
                let known = model.iter().find_map(|list| {
                    list.iter().find(|entry| entry.0 == number).copied()
                });
                prop_assert_eq!(place.map(|place| *map.get(place)), known.map(|entry| entry.1));
                match (step, place) {
                    (0..=2, _) => {
                        prop_assert_eq!(map.insert(&flow(number), record), place.is_none());
                        if place.is_none() {
                            model[record.list()].push_back((number, record));
                        }
                    }
                    (3, Some(place)) => {
                        map.requeue(place, record);
                        model.iter_mut().for_each(|list| list.retain(|entry| entry.0 != number));
                        model[record.list()].push_back((number, record));
                    }
                    (_, Some(place)) => {
                        prop_assert_eq!(Some((number, map.remove(place))), known);
                        model.iter_mut().for_each(|list| list.retain(|entry| entry.0 != number));
                    }
                    (_, None) => {}
                }
                check(&map, &model);
            }
        }
    }
}
