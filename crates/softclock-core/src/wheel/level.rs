//! The slot of a tick.
//!
//! Level 0 has one slot per tick. A slot of a higher level spans all slots of the level below. The level of a tick is
//! that of the highest digit (base 1024) in which it differs from the wheel's position. Hence a level has no occupied
//! slot behind the position, slots never wrap around, and every slot of a level comes before every slot of the next
//! level.

/// Bits of a tick that one level resolves: 1024 slots, 8 KiB of lists. More slots would save moves (an event up to 1
/// ms away is usually linked once, one up to 1 s away twice), but would cost cache misses when few events are pending
/// and other work has evicted the slots: on a trace of ten timers, 4096 slots were a quarter slower.
pub(super) const LEVEL_BITS: u32 = 10;
/// Slots per level.
pub(super) const SLOTS: usize = 1 << LEVEL_BITS;
/// Levels needed to cover every tick of an [`Instant`](crate::Instant).
pub(super) const LEVELS: usize = 6;

/// The slot of an event that is due in the last tick of an [`Instant`](crate::Instant).
pub(super) const LAST_TICK: u64 = u64::MAX / crate::time::TICK_NS + 1;

const DIGIT_MASK: u64 = SLOTS as u64 - 1;

const _: () = assert!(LAST_TICK >> (LEVEL_BITS * LEVELS as u32) == 0);
const _: () = assert!(LEVELS * SLOTS <= u16::MAX as usize);

/// A slot of the wheel: its level and its digit, combined into one index into the table of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Home(u16);

impl Home {
    /// Returns the slot of `level` that `tick` falls into.
    #[inline]
    pub(super) const fn at(level: u32, tick: u64) -> Self {
        let digit = (tick >> (level * LEVEL_BITS)) & DIGIT_MASK;
        Self((level << LEVEL_BITS) as u16 | digit as u16)
    }

    /// Returns the slot with this index.
    #[inline]
    pub(super) const fn from_index(index: usize) -> Self {
        debug_assert!(index < LEVELS * SLOTS);
        Self(index as u16)
    }

    /// Returns the index of this slot.
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the level of this slot.
    #[inline]
    pub(super) const fn level(self) -> u32 {
        (self.0 >> LEVEL_BITS) as u32
    }

    /// Returns the first tick of this slot, as seen from `position`.
    #[inline]
    pub(super) const fn start(self, position: u64) -> u64 {
        let shift = self.level() * LEVEL_BITS;
        let digit = self.0 as u64 & DIGIT_MASK;
        (position >> shift & !DIGIT_MASK | digit) << shift
    }
}

/// Returns the level of `tick` as seen from `position`: that of the highest digit in which they differ.
#[inline]
pub(super) const fn level_of(position: u64, tick: u64) -> u32 {
    ((position ^ tick) | 1).ilog2() / LEVEL_BITS
}
