//! The runtime's sources of events, and the tasks that wait for them.
//!
//! Readiness and delivery are handled by [`EventQueues`]. The kernel's events are posted to the thread's queue, and
//! each delivered event wakes the tasks that wait for its conditions. A call that would block, or transfers less than
//! it could have, consumes readiness, so that an event whose cause a task has already handled wakes no task.

use std::mem;
use std::task::{Context, Waker};
use std::time::Duration;

use softclock_core::{Delivery, EventQueues, Instant, QueueId, SourceId};
use softclock_linux::readiness::Readiness;

/// A direction in which a task may wait for a descriptor or a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Data to read, or connections to accept.
    Read,
    /// Room to write.
    Write,
}

impl Direction {
    /// Returns the conditions that end a wait in this direction.
    fn wakes(self) -> Readiness {
        match self {
            Self::Read => Readiness::READABLE | Readiness::READ_CLOSED | Readiness::ERROR,
            Self::Write => Readiness::WRITABLE | Readiness::WRITE_CLOSED | Readiness::ERROR,
        }
    }

    /// Returns the condition that a partial transfer in this direction consumes.
    pub(crate) fn own(self) -> Readiness {
        match self {
            Self::Read => Readiness::READABLE,
            Self::Write => Readiness::WRITABLE,
        }
    }
}

pub(crate) struct Sources {
    events: EventQueues,
    queue: QueueId,
    /// Indexed by the source's index.
    waiting: Vec<Waiting>,
}

#[derive(Default)]
struct Waiting {
    readers: Waiters,
    writers: Waiters,
}

/// Waiting tasks. There is usually one, but several may share a listener or a UDP socket.
#[derive(Default)]
struct Waiters {
    first: Option<Waker>,
    /// The others, including tasks that have stopped waiting, which nothing reports.
    more: Vec<Waker>,
    /// When `more` was last found full. All of them were woken then, so that only those that still wait came back.
    cleared: Instant,
}

impl Sources {
    pub(crate) fn new() -> Self {
        let mut events = EventQueues::new();
        let queue = events.add_queue();
        Self {
            events,
            queue,
            waiting: Vec::new(),
        }
    }

    /// Returns an upper bound of the number of sources.
    pub(crate) fn capacity(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a source in the state `initially`. For a descriptor of unknown state this is ready: a call will find out.
    pub(crate) fn insert(&mut self, initially: Readiness) -> SourceId {
        let id = self.events.add_source(initially, Delivery::Each);
        // Interest in both directions: the wakers in `waiting` select the tasks to wake.
        let interest = Readiness::READABLE | Readiness::WRITABLE;
        self.events.declare_interest(self.queue, id, interest);
        if id.index() == self.waiting.len() {
            self.waiting.push(Waiting::default());
        }
        id
    }

    /// Removes a source. The caller drops the returned waiters after the borrow of the table has ended.
    #[must_use]
    pub(crate) fn remove(&mut self, id: SourceId) -> impl Sized + use<> {
        let removed = self.events.remove_source(id);
        removed.then(|| mem::take(&mut self.waiting[id.index()]))
    }

    /// Returns whether a call in this direction may succeed. If not, `cx` will be woken when it may. The caller wakes
    /// the tasks in `excess` after the borrow of the table has ended.
    pub(crate) fn poll_ready(
        &mut self,
        id: SourceId,
        direction: Direction,
        cx: &Context<'_>,
        now: Instant,
        excess: &mut Vec<Waker>,
    ) -> bool {
        if self.is_ready(id, direction) {
            return true;
        }
        let waiters = self.waiting[id.index()].of(direction);
        waiters.add(cx.waker(), now, excess);
        false
    }

    /// Returns whether any of `conditions`, each of which must end a wait to read, is known to hold. If not, `cx`
    /// will be woken when one does, and when there is data to read. The caller wakes those in `excess`, as after
    /// [`poll_ready`](Self::poll_ready).
    pub(crate) fn poll_condition(
        &mut self,
        id: SourceId,
        conditions: Readiness,
        cx: &Context<'_>,
        now: Instant,
        excess: &mut Vec<Waker>,
    ) -> bool {
        if self.is_known(id, conditions) {
            return true;
        }
        let waiters = self.waiting[id.index()].of(Direction::Read);
        waiters.add(cx.waker(), now, excess);
        false
    }

    /// Returns whether any of `conditions` is known to hold, or the source was removed.
    pub(crate) fn is_known(&self, id: SourceId, conditions: Readiness) -> bool {
        let state = self.events.state(id);
        state.is_none_or(|state| state.intersects(conditions))
    }

    /// Removes the waiters in this direction. The caller drops them after the borrow of the table has ended.
    #[must_use]
    pub(crate) fn forget(&mut self, id: SourceId, direction: Direction) -> impl Sized + use<> {
        mem::take(self.waiting[id.index()].of(direction))
    }

    /// Returns whether a call in this direction may succeed.
    pub(crate) fn is_ready(&self, id: SourceId, direction: Direction) -> bool {
        self.is_known(id, direction.wakes())
    }

    /// Records that a call in this direction would have blocked.
    pub(crate) fn on_would_block(&mut self, id: SourceId, direction: Direction) {
        self.events.consume(id, direction.wakes());
    }

    /// Records that a call in this direction transferred less than requested, so that the next one would block. A
    /// known end of the stream stays to be read.
    pub(crate) fn on_short(&mut self, id: SourceId, direction: Direction) {
        self.events.consume(id, direction.own());
    }

    /// Posts conditions to a source. The next [`deliver`](Self::deliver) wakes the tasks that wait for them.
    pub(crate) fn post(&mut self, source: SourceId, readiness: Readiness) {
        self.events.post(source, readiness);
    }

    /// Posts those of `conditions` that are not known yet. Others have woken the tasks that wait for them, and would
    /// wake again and again a task that looks for them each time it runs.
    pub(crate) fn post_new(&mut self, source: SourceId, conditions: Readiness) {
        let known = self.events.state(source).unwrap_or(conditions);
        let new = conditions & !known;
        if !new.is_empty() {
            self.post(source, new);
        }
    }

    /// Moves the wakers of the tasks for which there are events to `woken`.
    pub(crate) fn deliver(&mut self, woken: &mut Vec<Waker>) {
        while let Some(event) = self.events.pop_event(self.queue) {
            let waiting = &mut self.waiting[event.source.index()];
            for direction in [Direction::Read, Direction::Write] {
                if event.readiness.intersects(direction.wakes()) {
                    waiting.of(direction).take(woken);
                }
            }
        }
    }
}

impl Waiting {
    fn of(&mut self, direction: Direction) -> &mut Waiters {
        match direction {
            Direction::Read => &mut self.readers,
            Direction::Write => &mut self.writers,
        }
    }
}

impl Waiters {
    /// Adds a task. If there are many, those that were there are moved to `excess` to be woken. The memory for them
    /// doubles if that was necessary a short time before: then most of them still wait.
    fn add(&mut self, waker: &Waker, now: Instant, excess: &mut Vec<Waker>) {
        match &self.first {
            None => self.first = Some(waker.clone()),
            Some(first) if first.will_wake(waker) => {}
            Some(_) if self.more.iter().any(|other| other.will_wake(waker)) => {}
            Some(first) => {
                let most = self.more.capacity();
                if most >= MANY && self.more.len() == most {
                    let is_soon = now.since(self.cleared) < CLEARINGS_APART;
                    let most = if is_soon { 2 * most } else { most };
                    *excess = mem::replace(&mut self.more, Vec::with_capacity(most));
                    excess.push(first.clone());
                    self.cleared = now;
                }
                self.more.push(waker.clone());
            }
        }
    }

    fn take(&mut self, woken: &mut Vec<Waker>) {
        woken.extend(self.first.take());
        woken.append(&mut self.more);
    }
}

/// The waiting tasks of a source and direction among which some may have stopped waiting.
const MANY: usize = 32;

/// The time after which so many new tasks have not all come back to wait.
const CLEARINGS_APART: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    /// Tasks that no longer wait are not kept for ever, and those that wait do not wake each other again and again.
    #[test]
    fn given_up_waits_are_forgotten() {
        let mut now = Instant::from_ns(1);
        let mut waiters = Waiters::default();
        for _ in 0..100_000 {
            now += Duration::from_millis(1);
            waiters.add(&Waker::from(Arc::new(Task)), now, &mut Vec::new());
            // Those of about two seconds at most.
            assert!(waiters.more.len() <= 2048, "{}", waiters.more.len());
        }
        let waiting: Vec<_> = (0..100).map(|_| Waker::from(Arc::new(Task))).collect();
        let mut waiters = Waiters::default();
        let mut to_add: Vec<_> = waiting.clone();
        let mut rounds = 0;
        while !to_add.is_empty() {
            rounds += 1;
            let mut woken = Vec::new();
            for waker in to_add {
                let mut excess = Vec::new();
                waiters.add(&waker, now, &mut excess);
                woken.append(&mut excess);
            }
            to_add = woken;
        }
        assert!(rounds < 6, "{rounds}");
        let mut all = Vec::new();
        waiters.take(&mut all);
        assert_eq!(all.len(), 100);
    }
}
