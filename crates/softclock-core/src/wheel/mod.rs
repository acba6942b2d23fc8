//! The timing wheel that holds the pending events of *Soft Timers* (section 3).
//!
//! An event asked for instant `due` belongs to the slot one tick after the tick `due` falls into,
//! and fires once the clock has reached that slot: the paper's "T + 1", which makes an event late
//! by at most one tick and never early. Events come out in the order of their slots, and within a
//! slot in the order in which they were scheduled.
//!
//! Where the paper's facility keeps one wheel of bounded reach, this one is hierarchical (Varghese
//! and Lauck's scheme 7): six levels of 1024 slots reach from a tick to 584 years. An event far
//! away waits in a slot of a higher level, which is emptied into lower ones when the clock reaches
//! its start, a bounded number of events a call.
//!
//! An event that is scheduled before all others waits in front of the wheel. Where one event at a time is due soon (a
//! paced sender's) and all others are far away (timeouts), it touches neither slots nor bitmap.
//!
//! # Cost
//! Every operation is O(1), but for the amortised growth of the table of events, which
//! [`with_capacity`](TimerWheel::with_capacity) avoids. An event is moved between levels at most
//! five times in its life: not at all if it is due within the current 1 ms, once within the current
//! second. Time in which nothing is due costs nothing.
//!
//! # Memory
//! 24 bytes and the value for each pending event, rounded up to a multiple of 32 (32 bytes for an
//! 8-byte value, which the code asserts; 64 for an event of the runtime, which asserts it); places are
//! kept for reuse, never given back. 48 KiB of slots, zeroed when the wheel is made, and 1 KiB for the
//! wheel itself.

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

/// Most events that one [`TimerWheel::pop_due`] moves between levels.
pub const MAX_MOVES: usize = 64;

/// A set of values, each due at an instant; see the [module](self).
///
/// It reads no clock: the callers say what time it is, and should not let it go backwards (an
/// earlier time than before fires nothing and harms nothing).
pub struct TimerWheel<T> {
    /// When the event in front is due, in ns, which is before everything in the slots. `u64::MAX` if there is none.
    front_ns: u64,
    /// The start of `next`, in ns: before it nothing in the slots is due. `u64::MAX` if that never comes.
    next_ns: u64,
    /// The event in front, or `NIL`.
    front: u32,
    /// The first occupied slot, if any is occupied.
    next: Home,
    /// The level whose slot at the position is being emptied into lower ones; 0 if none is.
    ///
    /// Until that is done, new events of that slot queue up behind those still in it.
    draining: u32,
    /// The tick that the wheel has reached; no slot before it is occupied.
    position: u64,
    lists: Lists,
    slab: Slab<T>,
    occupied: Bitmap,
}

impl<T> TimerWheel<T> {
    /// The memory of a pending event.
    pub const NODE_BYTES: usize = Slab::<T>::NODE_BYTES;

    /// An empty wheel at the clock's origin.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty wheel with room for this many events; it grows beyond them.
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

    /// How many events are pending.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Schedules `value` to fire at the first tick after that of `due`. O(1), growth amortised.
    ///
    /// An instant in the past is due at once, behind everything already due at the wheel's
    /// position. [`Instant::FAR_FUTURE`] never comes.
    ///
    /// # Panics
    /// At 2^32 - 1 pending events.
    #[inline]
    pub fn schedule(&mut self, due: Instant, value: T) -> TimerKey {
        let key = self.slab.insert(due, value);
        self.link(key.index, due);
        self.invariants();
        key
    }

    /// Takes back an event, unless it has fired or was cancelled. O(1).
    #[inline]
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let links = self.slab.find(key)?;
        self.unlink(key.index, links);
        let (_, value) = self.slab.remove(key.index)?;
        self.invariants();
        Some(value)
    }

    /// Gives a pending event another due time, as if it were scheduled now, under the same key;
    /// false if it has fired or was cancelled. O(1).
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

    /// The value of a pending event.
    #[inline]
    pub fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        self.slab.value_mut(key)
    }

    /// The earliest instant at which [`pop_due`](Self::pop_due) may have work: exact for events
    /// of the current 1 ms, the start of the slot to be emptied for later ones. `None` if that is
    /// never. Two loads and a compare.
    #[inline]
    pub fn next_due(&self) -> Option<Instant> {
        let first_ns = self.first_ns();
        (first_ns != u64::MAX).then_some(Instant::from_ns(first_ns))
    }

    /// Tells the wheel the time. O(1).
    ///
    /// It matters only for speed, and only before scheduling after a while in which `pop_due` was
    /// not called: a wheel that knows the time can put what is due soon where it will fire from.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        // With something due, the position must not pass it.
        if now.as_ns() < self.first_ns() {
            self.position = self.position.max(now.tick());
        }
    }

    /// The next event that is due, with the instant it was asked for. O(1).
    ///
    /// Moves at most [`MAX_MOVES`] events between levels. If that does not bring up a due event,
    /// the answer is `None` and [`next_due`](Self::next_due) stays at or before `now`: call again.
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

    /// Takes the event in front, before which nothing is due.
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
            if self.front_ns < self.next_ns {
                return self.pop_front();
            }
            if self.next.level() == 0 {
                self.position = self.next_tick();
                return self.pop_first();
            }
            if let Some(tick) = self.lone_tick()
                && tick <= now.tick()
                && tick.saturating_mul(TICK_NS) < self.front_ns
            {
                self.position = tick;
                return self.pop_first();
            }
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

    /// The tick of the only event in the next slot, if there is just one and none has been moved
    /// out of it: then nothing comes before it, and it can fire from where it is.
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

    /// Moves up to `moves` events of the next slot, which is not of level 0, to lower levels.
    /// Returns how many moves are left.
    fn drain(&mut self, mut moves: usize) -> usize {
        let home = self.next;
        self.position = self.next_tick();
        self.draining = home.level();
        loop {
            let (index, last) = self.lists.pop_front(&mut self.slab, home);
            let tick = slot_of(self.slab.due(index)).max(self.position);
            let lower = Home::at(level_of(self.position, tick), tick);
            self.lists.push_back(&mut self.slab, lower, index);
            self.occupied.insert(lower);
            moves -= 1;
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
            let former = mem::replace(&mut self.front, index);
            let former_ns = mem::replace(&mut self.front_ns, due_ns);
            if former != NIL {
                self.link_in_slot(former, former_ns / TICK_NS);
            }
        } else {
            // Of two in the same slot the first must come first there.
            if due_ns == self.front_ns && self.front != NIL {
                let front = self.take_front();
                self.link_in_slot(front, tick);
            }
            self.link_in_slot(index, tick);
        }
    }

    /// Puts an event into the slot of `tick`.
    #[inline(never)]
    fn link_in_slot(&mut self, index: u32, tick: u64) {
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

    /// Accounts for a slot whose last event has left it.
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

    /// The first tick of the next slot.
    #[inline]
    fn next_tick(&self) -> u64 {
        self.next.start(self.position)
    }

    /// What always holds and can be told in a few steps.
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

/// The slot in which an event due at `due` fires, as a tick: the first strictly later one.
#[inline]
const fn slot_of(due: Instant) -> u64 {
    due.tick() + 1
}
