//! The timing wheel that holds the pending events of *Soft Timers* (section 3).
//!
//! An event for the instant `due` belongs to the slot of the tick after the one that `due` falls into, and fires once
//! the clock has reached that slot: the paper's "T + 1", which makes an event late by at most one tick and never
//! early. Events fire in the order of their slots, and within a slot in the order in which they were scheduled.
//!
//! The paper's facility has one wheel of bounded range. This one is hierarchical (Varghese and Lauck's scheme 7): six
//! levels of 1024 slots cover a tick to 584 years. A distant event waits in a slot of a higher level. When the clock
//! reaches the start of that slot, its events move to lower levels, a bounded number per call.
//!
//! The earliest event is kept in front of the wheel. In the common case of one event due soon (of a paced sender) and
//! many distant ones (timeouts), firing and rescheduling that event touches neither slots nor bitmap.
//!
//! # Cost
//! Every operation is O(1), except for the amortised growth of the table of events, which
//! [`with_capacity`](TimerWheel::with_capacity) avoids. An event moves between levels at most five times: not at all
//! if it is due within the current 1 ms, once if within the current second. Time in which no event is due costs
//! nothing.
//!
//! # Memory
//! A pending event takes 24 bytes plus its value, rounded up to a multiple of 32: 32 bytes for an 8-byte value, 64
//! for an event of the runtime, both asserted. This memory is kept for reuse and never returned. The slots take 48
//! KiB, zeroed when the wheel is made, and the wheel itself 1 KiB.

mod bitmap;
mod level;
mod lists;
mod slab;
#[cfg(test)]
mod tests;

pub use slab::TimerKey;

use crate::Instant;
use crate::time::TICK_NS;
use bitmap::Bitmap;
use core::fmt;
use core::mem;
use level::{Home, level_of};
use lists::Lists;
use slab::{Links, NIL, Slab};

/// The largest number of events that one [`TimerWheel::pop_due`] moves between levels.
pub const MAX_MOVES: usize = 64;

/// A set of values, each due at an instant; see the [module](self).
///
/// The wheel reads no clock: callers pass the time. It should not decrease; a time earlier than before fires nothing
/// and does no harm.
///
/// # Example
/// ```
/// use softclock_core::{Instant, TimerWheel};
///
/// let mut wheel = TimerWheel::new();
/// let retry = wheel.schedule(Instant::from_ns(5_000), "retry");
/// wheel.schedule(Instant::from_ns(7_000), "give up");
///
/// // An event of tick 5 fires from tick 6 on.
/// assert_eq!(wheel.next_due(), Some(Instant::from_ns(6_000)));
/// assert_eq!(wheel.cancel(retry), Some("retry"));
/// let fired = wheel.pop_due(Instant::from_ns(9_000));
/// assert_eq!(fired, Some((Instant::from_ns(7_000), "give up")));
/// ```
pub struct TimerWheel<T> {
    /// Time in ns at which the event in front is due, before all events in slots. `u64::MAX` without an event in
    /// front.
    front_ns: u64,
    /// Start of the slot `next` in ns: no event in a slot is due before it. `u64::MAX` if no slot is occupied.
    next_ns: u64,
    /// Node of the event in front, or `NIL`.
    front: u32,
    /// The first occupied slot, if any.
    next: Home,
    /// The level of the slot at the position that is being drained into lower levels, or 0.
    ///
    /// Until it is drained, new events of that slot are appended to it, behind those still in it, to keep their
    /// order.
    draining: u32,
    /// The tick that the wheel has reached. No slot before it is occupied.
    position: u64,
    lists: Lists,
    slab: Slab<T>,
    occupied: Bitmap,
}

impl<T> TimerWheel<T> {
    /// Bytes of memory per pending event.
    pub const NODE_BYTES: usize = Slab::<T>::NODE_BYTES;

    /// Creates an empty wheel at the clock's origin.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Creates an empty wheel, in which no key of this one is valid.
    pub(crate) fn successor(&self) -> Self {
        Self {
            slab: self.slab.successor(),
            ..Self::new()
        }
    }

    /// Creates an empty wheel with memory for `capacity` events. It grows as needed.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            front_ns: u64::MAX,
            next_ns: u64::MAX,
            front: NIL,
            next: Home::default(),
            draining: 0,
            position: 0,
            lists: Lists::new(),
            slab: Slab::with_capacity(capacity),
            occupied: Bitmap::new(),
        }
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Schedules `value` to fire in the first tick after that of `due`. O(1), with amortised growth.
    ///
    /// An event for an instant in the past is due at once, after all events already due at the wheel's position. An
    /// event for [`Instant::FAR_FUTURE`] never fires.
    ///
    /// # Panics
    /// With 2^32 - 1 pending events.
    #[inline]
    pub fn schedule(&mut self, due: Instant, value: T) -> TimerKey {
        let key = self.slab.insert(due, value);
        self.link(key.index, due);
        self.invariants();
        key
    }

    /// Removes an event and returns its value, or `None` if it has fired or was cancelled. O(1).
    #[inline]
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let links = self.slab.find(key)?;
        self.unlink(key.index, links);
        let (_, value) = self.slab.remove(key.index)?;
        self.invariants();
        Some(value)
    }

    /// Moves a pending event to another due time under the same key, behind events already scheduled for that tick.
    /// Returns false if it has fired or was cancelled. O(1).
    #[inline]
    pub fn reschedule(&mut self, key: TimerKey, due: Instant) -> bool {
        let Some(links) = self.slab.find(key) else {
            return false;
        };
        self.unlink(key.index, links);
        self.slab.set_due(key.index, due);
        self.link(key.index, due);
        self.invariants();
        true
    }

    /// Returns the value of a pending event.
    #[inline]
    pub fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        self.slab.value_mut(key)
    }

    /// Returns the earliest instant at which [`pop_due`](Self::pop_due) may have work, or `None` if it never will:
    /// the exact time for events of the current 1 ms, the start of the slot to be drained for later ones. Costs two
    /// loads and a comparison.
    #[inline]
    pub fn next_due(&self) -> Option<Instant> {
        let first_ns = self.first_ns();
        (first_ns != u64::MAX).then_some(Instant::from_ns(first_ns))
    }

    /// Advances the wheel to `now`. O(1).
    ///
    /// This affects only speed. Call it before scheduling if `pop_due` was not called for a while: the wheel can then
    /// link an event that is due soon into its final slot at once.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        // The position must not pass a due event.
        if now.as_ns() < self.first_ns() {
            self.position = self.position.max(now.tick());
        }
    }

    /// Returns the next due event with the instant for which it was scheduled. O(1).
    ///
    /// Moves at most [`MAX_MOVES`] events between levels. If no due event is found within that limit, it returns
    /// `None`, and [`next_due`](Self::next_due) stays at or before `now`: call it again.
    #[inline]
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, T)> {
        if now.as_ns() < self.first_ns() {
            self.advance(now);
            return None;
        }
        if self.front_ns < self.next_ns {
            return self.pop_front();
        }
        self.pop_or_move(now)
    }

    /// Takes the event in front, which is the first of all.
    fn pop_front(&mut self) -> Option<(Instant, T)> {
        self.position = self.position.max(self.front_ns / TICK_NS);
        let index = self.take_front();
        let fired = self.slab.remove(index);
        self.invariants();
        fired
    }

    fn take_front(&mut self) -> u32 {
        self.front_ns = u64::MAX;
        mem::replace(&mut self.front, NIL)
    }

    #[inline(never)]
    fn pop_or_move(&mut self, now: Instant) -> Option<(Instant, T)> {
        let mut moves = MAX_MOVES;
        while self.next_ns <= now.as_ns() && self.next_ns != u64::MAX {
            // The event in front is before the next slot, and so before all other events.
            if self.front_ns < self.next_ns {
                return self.pop_front();
            }
            // A slot of level 0 spans one tick, so its first event is due.
            if self.next.level() == 0 {
                self.position = self.next_tick();
                return self.pop_first();
            }
            // A lone event in a higher slot can fire from there, without moving down level by level.
            if let Some(tick) = self.lone_tick()
                && tick <= now.tick()
                && tick.saturating_mul(TICK_NS) < self.front_ns
            {
                self.position = tick;
                return self.pop_first();
            }
            // Otherwise move the events of the higher slot down, within the limit of one call.
            if moves == 0 {
                return None;
            }
            moves = self.drain(moves);
        }
        if self.front_ns <= now.as_ns() && self.front != NIL {
            return self.pop_front();
        }
        self.advance(now);
        None
    }

    /// Returns the tick of the only event in the next slot, if there is exactly one and the slot is not being
    /// drained: no other event can be earlier, so it can fire from this slot.
    fn lone_tick(&self) -> Option<u64> {
        if self.draining != 0 {
            return None;
        }
        let index = self.lists.only(self.next)?;
        Some(slot_of(self.slab.due(index)).max(self.position))
    }

    /// Takes the first event of the next slot, which is due at the position.
    fn pop_first(&mut self) -> Option<(Instant, T)> {
        let home = self.next;
        let (index, last) = self.lists.pop_front(&mut self.slab, home);
        if last {
            self.emptied(home);
        }
        let fired = self.slab.remove(index);
        self.invariants();
        fired
    }

    /// Moves up to `moves` events from the next slot, which is above level 0, to lower levels. Returns the number of
    /// moves left.
    fn drain(&mut self, mut moves: usize) -> usize {
        // Levels are relative to the position, so it must be at the start of the slot before events move down.
        let home = self.next;
        self.position = self.next_tick();
        self.draining = home.level();
        loop {
            let (index, last) = self.lists.pop_front(&mut self.slab, home);
            // An event of a slot that began in the past is due at the position, not before.
            let tick = slot_of(self.slab.due(index)).max(self.position);
            let lower = Home::at(level_of(self.position, tick), tick);
            self.lists.push_back(&mut self.slab, lower, index);
            self.occupied.insert(lower);
            moves -= 1;
            // Only an empty slot ends the draining; otherwise the next call continues.
            if last {
                self.emptied(home);
            }
            if last || moves == 0 {
                self.invariants();
                return moves;
            }
        }
    }

    /// Puts an event in front if it is due before all others, else into the slot of its due time.
    #[inline]
    fn link(&mut self, index: u32, due: Instant) {
        let tick = slot_of(due).max(self.position);
        let due_ns = tick.saturating_mul(TICK_NS);
        let before_ns = if self.front == NIL {
            self.next_ns
        } else {
            self.front_ns
        };
        if due_ns < before_ns {
            // The new event is the first: the former one in front moves into a slot.
            let former = mem::replace(&mut self.front, index);
            let former_ns = mem::replace(&mut self.front_ns, due_ns);
            if former != NIL {
                self.link_in_slot(former, former_ns / TICK_NS);
            }
        } else {
            // Of two events in the same slot, the one scheduled first must be linked first.
            if due_ns == self.front_ns && self.front != NIL {
                let front = self.take_front();
                self.link_in_slot(front, tick);
            }
            self.link_in_slot(index, tick);
        }
    }

    /// Appends an event to the slot of `tick`.
    #[inline(never)]
    fn link_in_slot(&mut self, index: u32, tick: u64) {
        // While a slot is drained, its new events join it, behind those that are still there.
        let level = level_of(self.position, tick).max(self.draining);
        let home = Home::at(level, tick);
        self.lists.push_back(&mut self.slab, home, index);
        self.occupied.insert(home);
        let start_ns = home.start(tick).saturating_mul(TICK_NS);
        if start_ns < self.next_ns {
            self.next_ns = start_ns;
            self.next = home;
        }
    }

    #[inline]
    fn unlink(&mut self, index: u32, links: Links) {
        if index == self.front {
            self.take_front();
        } else if self.lists.unlink(&mut self.slab, links) {
            self.emptied(links.home);
        }
    }

    /// Updates the bitmap and the next slot after the last event has left the slot `home`.
    #[inline]
    fn emptied(&mut self, home: Home) {
        self.occupied.remove(home);
        if home == self.next {
            self.draining = 0;
            self.find_next();
        }
    }

    #[inline]
    fn find_next(&mut self) {
        match self.occupied.first() {
            Some(home) => {
                // The bitmap orders slots by level and digit, which is their order in time.
                self.next = home;
                self.next_ns = self.next_tick().saturating_mul(TICK_NS);
            }
            None => self.next_ns = u64::MAX,
        }
    }

    #[inline]
    fn first_ns(&self) -> u64 {
        self.front_ns.min(self.next_ns)
    }

    /// Returns the first tick of the next slot.
    #[inline]
    fn next_tick(&self) -> u64 {
        self.next.start(self.position)
    }

    /// Checks the invariants that can be tested in a few steps.
    fn invariants(&self) {
        #[cfg(debug_assertions)]
        {
            let first = self.occupied.first();
            let in_front = usize::from(self.front != NIL);
            assert_eq!(first.is_none(), self.len() == in_front);
            assert!(self.front != NIL || self.front_ns == u64::MAX);
            assert!(self.front_ns / TICK_NS >= self.position);
            if self.draining != 0 {
                assert_eq!(self.next.level(), self.draining);
                assert_eq!(self.next_tick(), self.position);
                assert!(self.occupied.contains(self.next));
            } else if let Some(home) = first {
                let start = home.start(self.position);
                assert!(start >= self.position);
                assert_eq!(start.saturating_mul(TICK_NS), self.next_ns);
                assert!(self.next_ns == u64::MAX || home == self.next);
            } else {
                assert_eq!(self.next_ns, u64::MAX);
            }
        }
    }
}

impl<T> Default for TimerWheel<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for TimerWheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerWheel")
            .field("len", &self.len())
            .field("next_due", &self.next_due())
            .finish_non_exhaustive()
    }
}

/// Returns the tick in which an event for the instant `due` fires: the first strictly later one.
#[inline]
const fn slot_of(due: Instant) -> u64 {
    due.tick() + 1
}
