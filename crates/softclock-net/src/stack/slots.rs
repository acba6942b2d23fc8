//! Numbered entries, such as endpoints and connections. The number of a removed entry is never used again.

use alloc::vec::Vec;

/// The number of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct SlotId {
    slot: u32,
    generation: u32,
}

/// The memory of the demultiplexer's table is stated for handles of this size.
const _: () = assert!(size_of::<SlotId>() == 8);

/// Entries by number. Grows to the most entries that there were at a time, by a chunk at a time: growth
/// copies at most the first chunk, and memory is held for less than a chunk of entries in advance.
#[derive(Debug)]
pub(super) struct Slots<T> {
    chunks: Vec<Vec<Slot<T>>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.places() - self.free.len()
    }

    /// Adds an entry. The caller bounds their number.
    pub(super) fn insert(&mut self, entry: T) -> SlotId {
        if let Some(slot) = self.free.pop()
            && let Some(place) = self.place_mut(slot)
        {
            place.entry = Some(entry);
            return SlotId {
                slot,
                generation: place.generation,
            };
        }
        let slot = self.places() as u32;
        let place = Slot {
            generation: 0,
            entry: Some(entry),
        };
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(place),
            _ => {
                // The first chunk grows as it is needed, since most stacks have few entries.
                let capacity = if self.chunks.is_empty() { 1 } else { CHUNK };
                let mut chunk = Vec::with_capacity(capacity);
                chunk.push(place);
                self.chunks.push(chunk);
            }
        }
        SlotId {
            slot,
            generation: 0,
        }
    }

    pub(super) fn remove(&mut self, id: SlotId) -> Option<T> {
        let place = self.place_mut(id.slot)?;
        if place.generation != id.generation {
            return None;
        }
        let entry = place.entry.take()?;
        // A slot whose numbers are used up stays empty.
        if let Some(next) = place.generation.checked_add(1) {
            place.generation = next;
            self.free.push(id.slot);
        }
        Some(entry)
    }

    pub(super) fn get(&self, id: SlotId) -> Option<&T> {
        let slot = id.slot as usize;
        let place = self.chunks.get(slot / CHUNK)?.get(slot % CHUNK)?;
        let entry = place.entry.as_ref()?;
        (place.generation == id.generation).then_some(entry)
    }

    pub(super) fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        let place = self.place_mut(id.slot)?;
        let entry = place.entry.as_mut()?;
        (place.generation == id.generation).then_some(entry)
    }

    /// The numbers of all entries.
    pub(super) fn ids(&self) -> Vec<SlotId> {
        self.iter().map(|(id, _)| id).collect()
    }

    /// All entries, in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotId, &T)> {
        let entries = self.chunks.iter().flatten().enumerate();
        entries.filter_map(|(slot, place)| {
            let id = SlotId {
                slot: slot as u32,
                generation: place.generation,
            };
            Some((id, place.entry.as_ref()?))
        })
    }

    fn places(&self) -> usize {
        let last = self.chunks.last().map_or(0, Vec::len);
        self.chunks.len().saturating_sub(1) * CHUNK + last
    }

    fn place_mut(&mut self, slot: u32) -> Option<&mut Slot<T>> {
        let slot = slot as usize;
        self.chunks.get_mut(slot / CHUNK)?.get_mut(slot % CHUNK)
    }
}

/// The entries of a chunk: 180 KB of connections.
const CHUNK: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_removed_entry_is_never_used_again() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        let other = slots.insert('b');
        assert_eq!(slots.remove(first), Some('a'));
        let next = slots.insert('c');
        assert_ne!(first, next);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(next), Some(&mut 'c'));
        assert_eq!((slots.get(other), slots.len()), (Some(&'b'), 2));
        assert!(slots.iter().map(|(_, entry)| *entry).eq(['c', 'b']));
    }

    #[test]
    fn entries_beyond_a_chunk_are_found() {
        let mut slots = Slots::new();
        let ids: Vec<_> = (0..3 * CHUNK + 1)
            .map(|number| slots.insert(number))
            .collect();
        assert_eq!(slots.len(), ids.len());
        for (number, &id) in ids.iter().enumerate() {
            assert_eq!(slots.get(id), Some(&number));
        }
        assert_eq!(slots.ids(), ids);
    }
}
