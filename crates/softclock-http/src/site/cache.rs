//! A bounded cache whose entries become stale after a while. A pure state machine: time is an argument.
//!
//! It evicts by the CLOCK algorithm: a hand moves round over the entries, spares those used since it last passed, and
//! evicts the first one that was not. This approximates least-recently-used eviction, but a hit only sets a flag.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use softclock::Instant;

/// The capacity of a cache, and the time after which entries become stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The most bytes of content and related data; 0 disables the cache.
    pub(crate) bytes: usize,
    /// The most entries.
    pub(crate) entries: usize,
    /// An entry that was last checked this long ago is stale.
    pub(crate) revalidate: Duration,
}

/// Values by path, within [`Limits`].
#[derive(Debug)]
pub(crate) struct Cache<V> {
    limits: Limits,
    index: HashMap<Arc<[u8]>, usize>,
    slots: Vec<Slot<V>>,
    hand: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Slot<V> {
    key: Arc<[u8]>,
    value: V,
    bytes: usize,
    checked: Instant,
    used: bool,
}

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup<V> {
    /// The value, checked recently, and the time of the check.
    Fresh(V, Instant),
    /// The value, which must be checked before it is used.
    Stale(V),
    Missing,
}

/// A clone is empty, as each thread fills its own cache.
impl<V: Clone> Clone for Cache<V> {
    fn clone(&self) -> Self {
        Self::new(self.limits)
    }
}

impl<V: Clone> Cache<V> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            index: HashMap::new(),
            slots: Vec::new(),
            hand: 0,
            bytes: 0,
        }
    }

    pub(crate) const fn limits(&self) -> Limits {
        self.limits
    }

    /// Looks up `key` and marks it as used. O(1).
    pub(crate) fn look_up(&mut self, key: &[u8], now: Instant) -> Lookup<V> {
        let Some(&at) = self.index.get(key) else {
            return Lookup::Missing;
        };
        let slot = &mut self.slots[at];
        slot.used = true;
        if now.since(slot.checked) < self.limits.revalidate {
            Lookup::Fresh(slot.value.clone(), slot.checked)
        } else {
            Lookup::Stale(slot.value.clone())
        }
    }

    /// Records that the value of `key` was still current at `checked`.
    pub(crate) fn confirm(&mut self, key: &[u8], checked: Instant) {
        if let Some(&at) = self.index.get(key) {
            let slot = &mut self.slots[at];
            slot.checked = slot.checked.max(checked);
        }
    }

    /// Stores `value`, which was current at `checked`, unless it exceeds the whole cache. The old value of `key` is
    /// removed in either case. Evicts entries as needed: the hand passes each entry at most twice.
    pub(crate) fn insert(&mut self, key: &[u8], value: V, bytes: usize, checked: Instant) {
        self.remove(key);
        let bytes = bytes.saturating_add(key.len()).saturating_add(ENTRY_BYTES);
        if bytes > self.limits.bytes || self.limits.entries == 0 {
            return;
        }
        while self.slots.len() >= self.limits.entries || self.bytes + bytes > self.limits.bytes {
            self.evict_one();
        }
        let key = Arc::<[u8]>::from(key);
        self.index.insert(Arc::clone(&key), self.slots.len());
        self.bytes += bytes;
        self.slots.push(Slot {
            key,
            value,
            bytes,
            checked,
            used: false,
        });
        self.invariants();
    }

    /// Removes the entry of `key`. O(1).
    pub(crate) fn remove(&mut self, key: &[u8]) {
        if let Some(&at) = self.index.get(key) {
            self.remove_slot(at);
        }
    }

    fn evict_one(&mut self) {
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let slot = &mut self.slots[self.hand];
            // Clearing the flag spares an entry once: the next pass evicts it unless it is used again.
            if !std::mem::take(&mut slot.used) {
                return self.remove_slot(self.hand);
            }
            self.hand += 1;
        }
    }

    /// Removes an entry; the last entry moves to its index.
    fn remove_slot(&mut self, at: usize) {
        let removed = self.slots.swap_remove(at);
        self.index.remove(&removed.key);
        self.bytes -= removed.bytes;
        if let Some(moved) = self.slots.get(at)
            && let Some(place) = self.index.get_mut(&moved.key)
        {
            *place = at;
        }
    }

    fn invariants(&self) {
        debug_assert!(self.slots.len() <= self.limits.entries);
        debug_assert!(self.bytes <= self.limits.bytes);
        debug_assert_eq!(self.index.len(), self.slots.len());
    }
}

/// The approximate cost of an entry besides content and key: its header fields, and its place in the index.
const ENTRY_BYTES: usize = 2_048;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REVALIDATE: Duration = Duration::from_secs(1);

    fn cache(bytes: usize, entries: usize) -> Cache<u32> {
        Cache::new(Limits {
            bytes,
            entries,
            revalidate: REVALIDATE,
        })
    }

    fn ms(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    #[test]
    fn entries_become_stale_and_are_confirmed() {
        let mut cache = cache(1 << 20, 10);
        assert_eq!(cache.look_up(b"a", ms(0)), Lookup::Missing);
        cache.insert(b"a", 1, 10, ms(0));
        assert_eq!(cache.look_up(b"a", ms(999)), Lookup::Fresh(1, ms(0)));
        assert_eq!(cache.look_up(b"a", ms(1_000)), Lookup::Stale(1));
        cache.confirm(b"a", ms(1_000));
        assert_eq!(cache.look_up(b"a", ms(1_999)), Lookup::Fresh(1, ms(1_000)));
        cache.remove(b"a");
        assert_eq!(cache.look_up(b"a", ms(1_999)), Lookup::Missing);
    }

    #[test]
    fn what_is_used_stays() {
        let mut cache = cache(1 << 20, 3);
        for (key, value) in [(b"a", 1), (b"b", 2), (b"c", 3)] {
            cache.insert(key, value, 10, ms(0));
        }
        cache.look_up(b"a", ms(0));
        cache.look_up(b"c", ms(0));
        cache.insert(b"d", 4, 10, ms(0));
        assert_eq!(cache.look_up(b"b", ms(0)), Lookup::Missing);
        assert_eq!(cache.look_up(b"a", ms(0)), Lookup::Fresh(1, ms(0)));
    }

    #[test]
    fn no_cache_and_too_big() {
        for (bytes, entries, size) in [(0, 10, 1), (1 << 20, 0, 1), (10_000, 10, 10_000)] {
            let mut cache = cache(bytes, entries);
            cache.insert(b"a", 1, size, ms(0));
            assert_eq!(cache.look_up(b"a", ms(0)), Lookup::Missing);
        }
    }

    #[test]
    fn a_new_value_that_is_too_big_removes_the_old() {
        let mut cache = cache(10_000, 10);
        cache.insert(b"a", 1, 10, ms(0));
        cache.insert(b"a", 2, 20_000, ms(0));
        assert_eq!(cache.look_up(b"a", ms(0)), Lookup::Missing);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, usize),
        LookUp(u8),
        Confirm(u8),
        Remove(u8),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0u8..12, 0usize..5_000).prop_map(|(key, bytes)| Step::Insert(key, bytes)),
            4 => (0u8..12).prop_map(Step::LookUp),
            1 => (0u8..12).prop_map(Step::Confirm),
            1 => (0u8..12).prop_map(Step::Remove),
            2 => (0u64..700).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// The cache may forget a value, but one that it returns is the last one, with the time of its last check.
        #[test]
        fn against_a_model(steps in proptest::collection::vec(step(), 0..200)) {
            let mut cache = cache(20_000, 5);
            let mut model = HashMap::<u8, (u32, u64)>::new();
            let (mut now, mut next) = (0, 0);
            for step in steps {
                match step {
                    Step::Insert(key, bytes) => {
                        next += 1;
                        cache.insert(&[key], next, bytes, ms(now));
                        model.insert(key, (next, now));
                        prop_assert_eq!(cache.look_up(&[key], ms(now)), Lookup::Fresh(next, ms(now)), "the newest stays");
                    }
                    Step::LookUp(key) => match (cache.look_up(&[key], ms(now)), model.get(&key)) {
                        (Lookup::Missing, _) => {}
                        (Lookup::Fresh(value, checked), Some(&(expected, at))) => {
                            prop_assert_eq!(checked, ms(at));
                            prop_assert_eq!(value, expected);
                            prop_assert!(now - at < 1_000);
                        }
                        (Lookup::Stale(value), Some(&(expected, at))) => {
                            prop_assert_eq!(value, expected);
                            prop_assert!(now - at >= 1_000);
                        }
                        (found, None) => prop_assert!(false, "{found:?} was removed"),
                    },
                    Step::Confirm(key) => {
                        cache.confirm(&[key], ms(now));
                        model.entry(key).and_modify(|(_, at)| *at = now);
                    }
                    Step::Remove(key) => {
                        cache.remove(&[key]);
                        model.remove(&key);
                    }
                    Step::Wait(ms) => now += ms,
                }
                cache.invariants();
                let bytes: usize = cache.slots.iter().map(|slot| slot.bytes).sum();
                prop_assert_eq!(bytes, cache.bytes);
                for (at, slot) in cache.slots.iter().enumerate() {
                    prop_assert_eq!(cache.index[&slot.key], at);
                }
            }
        }
    }
}
