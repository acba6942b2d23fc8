//! A bitmap of the occupied slots: one bit per slot, one summary bit per word, and one bit per level. Three bit scans
//! find the earliest of 6144 slots, and empty time costs nothing.

use super::level::{Home, LEVELS, SLOTS};

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = SLOTS / WORD_BITS;

// One summary word must have a bit for every word of its level.
const _: () = assert!(WORDS <= WORD_BITS);

/// The occupied slots.
pub(super) struct Bitmap {
    levels: u32,
    summaries: [u64; LEVELS],
    words: [u64; LEVELS * WORDS],
}

impl Bitmap {
    pub(super) const fn new() -> Self {
        Self {
            levels: 0,
            summaries: [0; LEVELS],
            words: [0; LEVELS * WORDS],
        }
    }

    /// Marks a slot as occupied.
    #[inline]
    pub(super) fn insert(&mut self, home: Home) {
        let word = home.index() / WORD_BITS;
        let level = home.level() as usize;
        self.words[word] |= 1 << (home.index() % WORD_BITS);
        self.summaries[level] |= 1 << (word % WORDS);
        self.levels |= 1 << level;
    }

    /// Marks a slot as empty.
    #[inline]
    pub(super) fn remove(&mut self, home: Home) {
        let word = home.index() / WORD_BITS;
        let level = home.level() as usize;
        self.words[word] &= !(1 << (home.index() % WORD_BITS));
        if self.words[word] == 0 {
            self.summaries[level] &= !(1 << (word % WORDS));
            if self.summaries[level] == 0 {
                self.levels &= !(1 << level);
            }
        }
    }

    /// Returns the occupied slot that starts first: the lowest slot of the lowest level.
    #[inline]
    pub(super) fn first(&self) -> Option<Home> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        let word = level * WORDS + self.summaries[level].trailing_zeros() as usize;
        let bit = self.words[word].trailing_zeros() as usize;
        Some(Home::from_index(word * WORD_BITS + bit))
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn contains(&self, home: Home) -> bool {
        self.words[home.index() / WORD_BITS] >> (home.index() % WORD_BITS) & 1 == 1
    }
}
