//! What is known of each source of events: its readiness, and who waits for it.
//!
//! Readiness is kept as level state above the kernel's edges: set by an event, cleared when a call
//! finds nothing. A source's number is reused with another generation, so that an event of a closed
//! source reaches nobody.

use std::mem;
use std::task::{Context, Waker};

use softclock_linux::events::{Readiness, Token};

/// The source's place in the table, and which of its users this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SourceId {
    index: u32,
    generation: u32,
}

impl SourceId {
    pub(crate) fn token(self) -> Token {
        Token(u64::from(self.generation) << 32 | u64::from(self.index))
    }

    pub(crate) fn from_token(token: Token) -> Self {
        Self {
            index: token.0 as u32,
            generation: (token.0 >> 32) as u32,
        }
    }
}

/// The two directions in which a task may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    /// The readiness that ends a wait in this direction.
    fn wakes(self) -> Readiness {
        match self {
            Self::Read => Readiness::READABLE | Readiness::READ_CLOSED | Readiness::ERROR,
            Self::Write => Readiness::WRITABLE | Readiness::WRITE_CLOSED | Readiness::ERROR,
        }
    }

    /// The readiness that is used up by a call that took less than it could have.
    pub(crate) fn own(self) -> Readiness {
        match self {
            Self::Read => Readiness::READABLE,
            Self::Write => Readiness::WRITABLE,
        }
    }
}

#[derive(Default)]
pub(crate) struct Sources {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    readiness: Readiness,
    readers: Waiters,
    writers: Waiters,
}

/// Usually one task; several may share a listener or a UDP socket.
#[derive(Default)]
struct Waiters {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Sources {
    /// Adds a source that is taken to be ready until a call finds that it is not.
    pub(crate) fn insert(&mut self) -> SourceId {
        let readiness = Readiness::READABLE | Readiness::WRITABLE;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.readiness = readiness;
            return SourceId {
                index,
                generation: slot.generation,
            };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 descriptors");
        self.slots.push(Slot {
            generation: 0,
            readiness,
            readers: Waiters::default(),
            writers: Waiters::default(),
        });
        SourceId {
            index,
            generation: 0,
        }
    }

    /// Forgets a source. The caller drops its waiters when the table is no longer borrowed.
    #[must_use]
    pub(crate) fn remove(&mut self, id: SourceId) -> impl Sized + use<> {
        let slot = self.slot(id)?;
        slot.generation = slot.generation.wrapping_add(1);
        let waiters = (mem::take(&mut slot.readers), mem::take(&mut slot.writers));
        self.free.push(id.index);
        Some(waiters)
    }

    /// Whether a call in this direction may succeed; if not, `cx` will be woken when it may.
    pub(crate) fn poll_ready(
        &mut self,
        id: SourceId,
        direction: Direction,
        cx: &Context<'_>,
    ) -> bool {
        let Some(slot) = self.slot(id) else {
            return true;
        };
        if slot.readiness.intersects(direction.wakes()) {
            return true;
        }
        slot.waiters(direction).add(cx.waker());
        false
    }

    /// A call in this direction found nothing to do.
    pub(crate) fn on_would_block(&mut self, id: SourceId, direction: Direction) {
        if let Some(slot) = self.slot(id) {
            slot.readiness = slot.readiness & !direction.wakes();
        }
    }

    /// A call in this direction took or gave less than it offered: the next would find nothing to do. The
    /// end of the stream, if known, stays to be found.
    pub(crate) fn on_short(&mut self, id: SourceId, direction: Direction) {
        if let Some(slot) = self.slot(id) {
            slot.readiness = slot.readiness & !direction.own();
        }
    }

    /// The kernel says that a source has become ready. Moves those to be woken to `woken`.
    pub(crate) fn on_event(&mut self, token: Token, readiness: Readiness, woken: &mut Vec<Waker>) {
        let Some(slot) = self.slot(SourceId::from_token(token)) else {
            return;
        };
        slot.readiness |= readiness;
        for direction in [Direction::Read, Direction::Write] {
            if readiness.intersects(direction.wakes()) {
                slot.waiters(direction).take(woken);
            }
        }
    }

    fn slot(&mut self, id: SourceId) -> Option<&mut Slot> {
        self.slots
            .get_mut(id.index as usize)
            .filter(|slot| slot.generation == id.generation)
    }
}

impl Slot {
    fn waiters(&mut self, direction: Direction) -> &mut Waiters {
        match direction {
            Direction::Read => &mut self.readers,
            Direction::Write => &mut self.writers,
        }
    }
}

impl Waiters {
    fn add(&mut self, waker: &Waker) {
        match &self.first {
            None => self.first = Some(waker.clone()),
            Some(first) if first.will_wake(waker) => {}
            Some(_) if self.more.iter().any(|other| other.will_wake(waker)) => {}
            Some(_) => self.more.push(waker.clone()),
        }
    }

    fn take(&mut self, woken: &mut Vec<Waker>) {
        woken.extend(self.first.take());
        woken.append(&mut self.more);
    }
}
