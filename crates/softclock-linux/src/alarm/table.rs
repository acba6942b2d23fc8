//! The table of a thread's recurring alarm-safe events, in fixed memory.

use std::cell::Cell;

use softclock_core::Instant;

use super::safe::AlarmSafe;

/// A table of up to [`CAPACITY`] events.
///
/// The signal handler and the code that it interrupts both change it, but never at the same time, so cells suffice. All
/// operations look at no more than [`CAPACITY`] slots.
pub(super) struct Table {
    slots: [Slot; CAPACITY],
    /// A bit set, with the bit of each slot that is in use.
    used: Cell<u32>,
}

/// Identifies a registration of an alarm-safe event. Not reused: an ID of an ended registration stays invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AlarmId {
    slot: u32,
    generation: u32,
}

/// The error for a thread that has [`CAPACITY`] alarm-safe events already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull;

struct Slot {
    handler: Cell<Option<&'static dyn AlarmSafe>>,
    period_ns: Cell<u64>,
    /// The time from the due time to the deadline; `None` if the event has no deadline.
    slack_ns: Cell<Option<u64>>,
    due: Cell<Instant>,
    /// Counts the registrations that used this slot, so that the IDs of earlier ones do not match.
    generation: Cell<u32>,
}

/// An event that is due, as [`Table::most_overdue`] returns it.
pub(super) struct DueEvent {
    pub(super) slot: usize,
    pub(super) handler: &'static dyn AlarmSafe,
    pub(super) due: Instant,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            slots: std::array::from_fn(|_| Slot {
                handler: Cell::new(None),
                period_ns: Cell::new(0),
                slack_ns: Cell::new(None),
                due: Cell::new(Instant::FAR_FUTURE),
                generation: Cell::new(0),
            }),
            used: Cell::new(0),
        }
    }

    pub(super) fn insert(
        &self,
        handler: &'static dyn AlarmSafe,
        period_ns: u64,
        slack_ns: Option<u64>,
        due: Instant,
    ) -> Result<AlarmId, TableFull> {
        let free = self.used.get().trailing_ones();
        let slot = self.slots.get(free as usize).ok_or(TableFull)?;
        self.used.set(self.used.get() | 1 << free);
        slot.handler.set(Some(handler));
        slot.period_ns.set(period_ns);
        slot.slack_ns.set(slack_ns);
        slot.due.set(due);
        Ok(AlarmId {
            slot: free,
            generation: slot.generation.get(),
        })
    }

    /// Removes an event. Returns whether it was in the table.
    pub(super) fn remove(&self, id: AlarmId) -> bool {
        let bit = 1 << id.slot;
        let slot = &self.slots[id.slot as usize];
        if self.used.get() & bit == 0 || slot.generation.get() != id.generation {
            return false;
        }
        self.used.set(self.used.get() & !bit);
        slot.generation.set(slot.generation.get().wrapping_add(1));
        slot.handler.set(None);
        true
    }

    /// Returns the event that has been due longest; `None` if no event is due at `now`.
    pub(super) fn most_overdue(&self, now: Instant) -> Option<DueEvent> {
        let (slot, due) = self
            .in_use()
            .map(|(i, s)| (i, s.due.get()))
            .min_by_key(|x| x.1)?;
        if due > now {
            return None;
        }
        let handler = self.slots[slot].handler.get()?;
        Some(DueEvent { slot, handler, due })
    }

    /// Makes the event in `slot`, which fires at `now`, due again one period later.
    pub(super) fn reschedule(&self, slot: usize, now: Instant) {
        let slot = &self.slots[slot];
        slot.due.set(now.add_ns(slot.period_ns.get()));
    }

    /// The earliest due time; the far future if the table is empty.
    pub(super) fn next_due(&self) -> Instant {
        let dues = self.in_use().map(|(_, slot)| slot.due.get());
        dues.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// The earliest time for which an alarm should be set, given that alarms land `early_ns` late; the far future if no
    /// event has a deadline. The alarm for an event is never set before the event is due.
    pub(super) fn next_alarm(&self, early_ns: u64) -> Instant {
        let alarms = self.in_use().filter_map(|(_, slot)| {
            let slack_ns = slot.slack_ns.get()?;
            Some(slot.due.get().add_ns(slack_ns.saturating_sub(early_ns)))
        });
        alarms.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// The slots in use, with their numbers.
    fn in_use(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let mut rest = self.used.get();
        std::iter::from_fn(move || {
            let slot = rest.trailing_zeros() as usize;
            // Clears the lowest bit that is set. At the end `slot` is 32, which `get` refuses.
            rest &= rest.wrapping_sub(1);
            Some((slot, self.slots.get(slot)?))
        })
    }
}

impl std::fmt::Display for TableFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "all {CAPACITY} alarm-safe events of the thread are in use"
        )
    }
}

impl std::error::Error for TableFull {}

/// The most alarm-safe events that one thread can have.
pub const CAPACITY: usize = 32;

const _: () = assert!(CAPACITY == u32::BITS as usize);

#[cfg(test)]
mod tests {
    use super::super::safe::AlarmCounter;
    use super::*;

    static COUNTER: AlarmCounter = AlarmCounter::new();

    fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[test]
    fn the_most_overdue_comes_first() {
        let table = Table::new();
        for due in [30, 10, 20] {
            table.insert(&COUNTER, 100, None, at(due)).unwrap();
        }
        assert_eq!(table.next_due(), at(10));
        let mut order = Vec::new();
        while let Some(event) = table.most_overdue(at(25)) {
            order.push(event.due.as_ns());
            table.reschedule(event.slot, at(25));
        }
        assert_eq!(order, [10, 20]);
        assert_eq!(table.next_due(), at(30));
    }

    #[test]
    fn fills_up_and_frees() {
        let table = Table::new();
        let insert = || table.insert(&COUNTER, 100, None, at(1));
        let ids: Vec<_> = (0..CAPACITY).map(|_| insert().unwrap()).collect();
        assert_eq!(insert(), Err(TableFull));
        assert!(table.remove(ids[5]));
        assert!(!table.remove(ids[5]));
        let again = insert().unwrap();
        assert_ne!(again, ids[5]);
        assert!(!table.remove(ids[5]));
        for id in ids {
            table.remove(id);
        }
        assert!(table.remove(again));
        assert_eq!(table.next_due(), Instant::FAR_FUTURE);
    }

    #[test]
    fn alarms_are_early_but_not_before_the_due_time() {
        let table = Table::new();
        assert_eq!(table.next_alarm(20), Instant::FAR_FUTURE);
        table.insert(&COUNTER, 1, None, at(0)).unwrap();
        assert_eq!(table.next_alarm(20), Instant::FAR_FUTURE);
        table.insert(&COUNTER, 1, Some(50), at(1_000)).unwrap();
        assert_eq!(table.next_alarm(20), at(1_030));
        assert_eq!(table.next_alarm(80), at(1_000));
    }
}
