//! A flat hash map: open addressing with linear probing, and a 32-bit tag for each place.
//!
//! A look-up probes the array of tags, of which 16 share a cache line, and compares the whole key only where a tag
//! matches. A key that is present costs two cache misses, an absent key one. The home of a key is the leading bits of
//! its tag, so the map grows without hashing again, and from beginning to end of both arrays. Removal moves the entries
//! behind the gap towards their homes, so no tombstones remain that make later look-ups long.

use alloc::vec;
use alloc::vec::Vec;

use super::HashKey;
use super::key::Key;

/// The map. Holds at most 3 for each 4 places, and shrinks when it holds fewer than 1 for each 8.
pub(super) struct Flat<K, V> {
    /// For each place the tag of its entry, or [`FREE`]. The length is a power of two, or zero before the first entry.
    tags: Vec<u32>,
    /// For each place its entry. Places whose tag is [`FREE`] contain any entry, which saves the space of an `Option`.
    entries: Vec<(K, V)>,
    len: usize,
    /// The number of bits by which a tag is shifted to the right for its home.
    shift: u32,
}

impl<K, V> Default for Flat<K, V> {
    fn default() -> Self {
        Self {
            tags: Vec::new(),
            entries: Vec::new(),
            len: 0,
            shift: 0,
        }
    }
}

impl<K: Key, V: Copy> Flat<K, V> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn find(&self, hash_key: HashKey, key: &K) -> Option<&V> {
        if self.is_empty() {
            return None;
        }
        let candidate = self.candidate(Self::tag(hash_key, key))?;
        self.find_from(key, candidate)
    }

    /// Adds an entry. Returns `false`, without effect, if the key is present.
    pub(super) fn insert(&mut self, hash_key: HashKey, key: K, value: V) -> bool {
        if self.find(hash_key, &key).is_some() {
            return false;
        }
        if self.len >= self.tags.len() / 4 * 3 {
            self.resize((self.tags.len() * 2).max(LEAST_PLACES), (key, value));
        }
        self.put(Self::tag(hash_key, &key), (key, value));
        true
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, hash_key: HashKey, key: &K) -> Option<V> {
        let place = self.place(hash_key, key)?;
        let entry = self.entries[place];
        self.close_gap(place);
        self.len -= 1;
        if self.len < self.tags.len() / 8 && self.tags.len() > LEAST_PLACES {
            self.resize(self.tags.len() / 2, entry);
        }
        Some(entry.1)
    }

    /// The tag of a key, never [`FREE`].
    #[inline]
    pub(super) fn tag(hash_key: HashKey, key: &K) -> u32 {
        (key.hash(hash_key) >> 32) as u32 | 1
    }

    /// Loads the tag at the home of a key, so that it is in the cache afterwards. The map must not be empty.
    #[inline]
    pub(super) fn touch_home(&self, tag: u32) -> u32 {
        self.tags[self.home(tag)]
    }

    /// The first place with this tag. The map must not be empty.
    #[inline]
    pub(super) fn candidate(&self, tag: u32) -> Option<usize> {
        self.next_candidate(tag, self.home(tag))
    }

    /// Loads the key at a place, so that it is in the cache afterwards.
    #[inline]
    pub(super) fn touch_entry(&self, place: usize) -> K {
        self.entries[place].0
    }

    /// Finds a key from its first [`candidate`](Self::candidate) on.
    #[inline]
    pub(super) fn find_from(&self, key: &K, candidate: usize) -> Option<&V> {
        self.place_from(key, candidate)
            .map(|place| &self.entries[place].1)
    }

    fn place(&self, hash_key: HashKey, key: &K) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let candidate = self.candidate(Self::tag(hash_key, key))?;
        self.place_from(key, candidate)
    }

    #[inline]
    fn place_from(&self, key: &K, mut candidate: usize) -> Option<usize> {
        loop {
            if self.entries[candidate].0 == *key {
                return Some(candidate);
            }
            // Another key has the same tag, by chance.
            let tag = self.tags[candidate];
            candidate = self.next_candidate(tag, self.after(candidate))?;
        }
    }

    /// The next place with this tag, from `place` on. `None` if a free place comes before it.
    #[inline]
    fn next_candidate(&self, tag: u32, mut place: usize) -> Option<usize> {
        // Ends, since a quarter of the places is free.
        loop {
            match self.tags[place] {
                at_place if at_place == tag => return Some(place),
                FREE => return None,
                _ => place = self.after(place),
            }
        }
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        (tag >> self.shift) as usize
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.tags.len() - 1)
    }

    /// Puts an entry whose key is absent into the first free place from its home on.
    fn put(&mut self, tag: u32, entry: (K, V)) {
        let mut place = self.home(tag);
        while self.tags[place] != FREE {
            place = self.after(place);
        }
        self.tags[place] = tag;
        self.entries[place] = entry;
        self.len += 1;
    }

    /// Empties a place, and moves entries behind it so that each is reachable from its home without a gap.
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.tags.len() - 1;
        let mut place = self.after(gap);
        while self.tags[place] != FREE {
            // An entry may move to the gap unless its home lies behind it.
            let from_home = place.wrapping_sub(self.home(self.tags[place])) & mask;
            let from_gap = place.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.tags[gap] = self.tags[place];
                self.entries[gap] = self.entries[place];
                gap = place;
            }
            place = self.after(place);
        }
        self.tags[gap] = FREE;
    }

    /// Changes the number of places. `any` fills places that are free.
    fn resize(&mut self, places: usize, any: (K, V)) {
        let tags = core::mem::replace(&mut self.tags, vec![FREE; places]);
        let entries = core::mem::replace(&mut self.entries, vec![any; places]);
        self.shift = u32::BITS - places.trailing_zeros();
        self.len = 0;
        for (tag, entry) in tags.into_iter().zip(entries) {
            if tag != FREE {
                self.put(tag, entry);
            }
        }
    }
}

/// The tag of a place without entry.
const FREE: u32 = 0;

/// The places of the smallest map: its tags fill a cache line.
const LEAST_PLACES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    /// A key whose hash is bad on purpose: many keys have the same tag, or homes at the end of the table.
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Bad(u8);

    impl Key for Bad {
        fn hash(&self, _key: HashKey) -> u64 {
            match self.0 % 4 {
                0 => 0,
                1 => u64::MAX,
                2 => u64::MAX << 56 | u64::from(self.0) << 40,
                _ => u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            }
        }
    }

    const KEY: HashKey = HashKey([0, 0]);

    /// Each entry is found from its home on, and the load is within its bounds.
    fn check(flat: &Flat<Bad, u32>, model: &BTreeMap<u8, u32>) {
        assert_eq!(flat.len(), model.len());
        let places = flat.tags.len();
        assert_eq!(
            flat.tags.iter().filter(|tag| **tag != FREE).count(),
            flat.len()
        );
        assert!(flat.len() <= places / 4 * 3);
        assert!(places <= LEAST_PLACES || flat.len() >= places / 8);
        for key in 0..=u8::MAX {
            assert_eq!(flat.find(KEY, &Bad(key)), model.get(&key));
        }
    }

    proptest! {
        #[test]
        fn a_flat_map_is_a_map(
            steps in prop::collection::vec((0..4u8, any::<u8>(), any::<u32>()), 0..400),
        ) {
            let mut flat = Flat::default();
            let mut model = BTreeMap::new();
            for (step, key, value) in steps {
                match step {
                    0..=1 => {
                        prop_assert_eq!(flat.insert(KEY, Bad(key), value), !model.contains_key(&key));
                        model.entry(key).or_insert(value);
                    }
                    _ => prop_assert_eq!(flat.remove(KEY, &Bad(key)), model.remove(&key)),
                }
            }
            check(&flat, &model);
        }
    }

    #[test]
    fn a_map_shrinks_to_its_least_size_again() {
        let mut flat = Flat::default();
        let mut model = BTreeMap::new();
        for key in 0..=u8::MAX {
            assert!(flat.insert(KEY, Bad(key), key.into()));
            model.insert(key, key.into());
            check(&flat, &model);
        }
        for key in 0..=u8::MAX {
            assert_eq!(flat.remove(KEY, &Bad(key)), model.remove(&key));
            check(&flat, &model);
        }
        assert_eq!(flat.tags.len(), LEAST_PLACES);
        assert!(flat.tags.iter().all(|tag| *tag == FREE));
    }
}
