//! Explicit event delivery for a thread that owns its loop (*Event Delivery*, sections 4 and 5): no runtime, no tasks.
//!
//! A descriptor is [added](EventQueue::add) to the thread's [`EventQueue`], which gives a [`Source`] that owns it. The
//! thread [declares](EventQueue::declare_interest) what it wants to know of it, and takes what has happened with
//! [`get_next_event`](EventQueue::get_next_event). The cost of either does not depend on how many descriptors there are.
//!
//! - An event says that something has arrived, and carries the present state as far as it is known: the last readiness
//!   that the kernel told, less what the thread has reported as [consumed](Source::consumed). Who reads or writes until
//!   [`WouldBlock`](io::ErrorKind::WouldBlock), or less than asked for, reports it; events that have become meaningless
//!   by then are suppressed. Who defers the work need not: the next arrival gives another event.
//! - Several events of a source before delivery are one. They come first in, first out.
//! - Dropping a [`Source`] ends its events at once, also those that are queued; one that gets the same descriptor number
//!   later has nothing to do with them.
//!
//! epoll is taken, or `poll` where it is forbidden ([`EventQueue::with_mechanism`] forces one). io_uring and epoll tell edges;
//! `poll` and `select` tell states, so that with them the next event of a source comes only after something was reported as
//! consumed. As in the paper, one may find a descriptor not ready after all: descriptors should
//! be nonblocking.
//!
//! ```
#![doc = include_str!("../examples/figure_3.rs")]
//! ```

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

pub use softclock_core::{Delivery, Readiness, SourceEvent, SourceId};
use softclock_core::{EventQueues, QueueId};
pub use softclock_linux::readiness::Mechanism;
use softclock_linux::readiness::{BATCH, Poller, ReadyEvent, Timeout, Token, current_state};

/// The events of one thread.
pub struct EventQueue {
    shared: Rc<Shared>,
}

/// What the queue has in common with its sources.
struct Shared {
    events: RefCell<EventQueues>,
    queue: QueueId,
    poller: RefCell<Poller>,
    arrived: RefCell<Vec<ReadyEvent>>,
}

/// A descriptor among an [`EventQueue`]'s. Dropping it ends its events and drops the descriptor.
pub struct Source<F: AsFd> {
    shared: Rc<Shared>,
    id: SourceId,
    delivery: Delivery,
    /// The kernel tells of it.
    watched: Cell<bool>,
    /// Taken by [`into_inner`](Self::into_inner) only.
    fd: Option<F>,
}

impl EventQueue {
    /// An empty queue on the best mechanism that works here.
    ///
    /// # Errors
    /// The process has no descriptor left, or may not use any mechanism.
    pub fn new() -> io::Result<Self> {
        Poller::new().map(Self::over)
    }

    /// An empty queue on this mechanism.
    ///
    /// # Errors
    /// It does not work here, or the process has no descriptor left.
    pub fn with_mechanism(mechanism: Mechanism) -> io::Result<Self> {
        Poller::with_mechanism(mechanism).map(Self::over)
    }

    fn over(poller: Poller) -> Self {
        let mut events = EventQueues::new();
        let queue = events.add_queue();
        Self {
            shared: Rc::new(Shared {
                events: RefCell::new(events),
                queue,
                poller: RefCell::new(poller),
                arrived: RefCell::new(Vec::with_capacity(BATCH)),
            }),
        }
    }

    /// By what the kernel tells of events.
    pub fn mechanism(&self) -> Mechanism {
        self.shared.poller.borrow().mechanism()
    }

    /// Takes a nonblocking descriptor in, without interest in it. No system call.
    pub fn add<F: AsFd>(&self, fd: F) -> Source<F> {
        self.add_for(fd, Delivery::Each)
    }

    /// As [`add`](Self::add), for a file that several threads watch, each in a queue of its own, such as a listener: with
    /// [`Delivery::One`] an event is told to one of those that wait for it, or to a few, instead of all. That takes epoll, and
    /// is for reading only.
    ///
    /// Who is told is the kernel's choice (EPOLLEXCLUSIVE): it goes through the threads in the order in which they declared
    /// their interest, leaves the event with each that is busy, and ends at the first that waits. So idle ones come first,
    /// and wake-ups are few; but turns are not taken: one thread gets most of a light load, and others only what comes while
    /// that one is busy. And once told, nobody else is: who ends its interest or drops the [`Source`] between the event and
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) leaves what is there until the next arrival, at which another finds both.
    ///
    /// A listener for each thread (SO_REUSEPORT) spreads connections evenly, by their addresses, to busy threads as well as
    /// to idle ones: one that is stuck keeps its part waiting, and one that closes its listener resets what it has not
    /// accepted. The experiment `event-delivery/wake-one` measures both.
    pub fn add_for<F: AsFd>(&self, fd: F, delivery: Delivery) -> Source<F> {
        let mut events = self.shared.events.borrow_mut();
        Source {
            shared: Rc::clone(&self.shared),
            id: events.add_source(Readiness::NONE, delivery),
            delivery,
            watched: Cell::new(false),
            fd: Some(fd),
        }
    }

    /// Declares what the thread wants to know of a source from now on, in place of what it declared before; closing and
    /// errors are always part of it. An empty `mask` ends the interest.
    ///
    /// With `state`, also tells the present state, at the cost of a poll(2), before any event of it is queued: what was
    /// there before is not missed. The first declaration costs a system call more; all others are a few memory accesses.
    /// The price of that is that the kernel goes on to tell of a source in which there is no interest any more: with epoll
    /// and io_uring each arrival wakes the thread inside [`get_next_event`](Self::get_next_event), which then waits on. Only
    /// [`Delivery::One`] makes a system call for the end of an interest and for the next beginning, so that the kernel tells
    /// another thread.
    ///
    /// # Errors
    /// Those of the mechanism: files that are always ready cannot be watched, and with `select` no descriptor from 1024
    /// on; [`Delivery::One`] takes epoll. A source of another queue is [`InvalidInput`](io::ErrorKind::InvalidInput).
    pub fn declare_interest<F: AsFd>(
        &self,
        source: &Source<F>,
        mask: Readiness,
        state: Option<&mut Readiness>,
    ) -> io::Result<()> {
        if !Rc::ptr_eq(&self.shared, &source.shared) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, FOREIGN));
        }
        match source.delivery {
            _ if !mask.is_empty() => source.watch()?,
            // Else the kernel would tell this thread in place of one that wants to know.
            Delivery::One => source.unwatch(),
            Delivery::Each => {}
        }
        let now = match state {
            Some(state) => {
                *state = current_state(source.as_fd())?;
                Some(*state)
            }
            None => None,
        };
        let mut events = self.shared.events.borrow_mut();
        if let Some(now) = now {
            events.set_state(source.id, now);
        }
        events.declare_interest(self.shared.queue, source.id, mask);
        Ok(())
    }

    /// Takes events in the order of their arrival, as many as `events` has room for; returns their number. Returns at
    /// once if any is queued; else waits until one comes, or `timeout` passes (`None`: for ever), or a signal is handled.
    /// In the latter two cases the number is 0.
    ///
    /// # Errors
    /// Those of the mechanism's wait; none in a process that may make the call.
    pub fn get_next_event(
        &self,
        events: &mut [SourceEvent],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let shared = &*self.shared;
        if events.is_empty() {
            return Ok(0);
        }
        let mut found = shared.take(events);
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        while found == 0 && shared.wait(end)? > 0 {
            found = shared.take(events);
        }
        // A full batch may have left more in the kernel, for which there may be room.
        while found > 0 && found < events.len() && shared.arrived.borrow().len() == BATCH {
            shared.receive(Timeout::Now)?;
            found += shared.take(&mut events[found..]);
        }
        Ok(found)
    }
}

impl Shared {
    fn take(&self, events: &mut [SourceEvent]) -> usize {
        self.events.borrow_mut().get_next_event(self.queue, events)
    }

    fn wait(&self, end: Option<Instant>) -> io::Result<usize> {
        let timeout = match end {
            None => Timeout::Never,
            Some(end) => match end.saturating_duration_since(Instant::now()) {
                Duration::ZERO => Timeout::Now,
                time => Timeout::After(time),
            },
        };
        self.receive(timeout)
    }

    /// Moves what the kernel tells into the queue.
    fn receive(&self, timeout: Timeout) -> io::Result<usize> {
        let mut arrived = self.arrived.borrow_mut();
        let found = self.poller.borrow_mut().wait(timeout, &mut arrived)?;
        let mut events = self.events.borrow_mut();
        for event in &*arrived {
            events.post(SourceId::from_bits(event.token.0), event.readiness);
        }
        Ok(found)
    }
}

impl<F: AsFd> Source<F> {
    /// The number by which events name this source.
    pub fn id(&self) -> SourceId {
        self.id
    }

    /// Reports that these conditions hold no more: a call found nothing to do, or did less than asked.
    pub fn consumed(&self, conditions: Readiness) {
        let mut events = self.shared.events.borrow_mut();
        events.consume(self.id, conditions);
        self.shared
            .poller
            .borrow_mut()
            .rearm(self.as_fd(), conditions);
    }

    /// Ends the events and gives the descriptor back.
    pub fn into_inner(mut self) -> F {
        self.forget();
        self.fd.take().expect(PRESENT)
    }

    fn watch(&self) -> io::Result<()> {
        if !self.watched.get() {
            let token = Token(self.id.to_bits());
            let mut poller = self.shared.poller.borrow_mut();
            match self.delivery {
                Delivery::Each => poller.add(self.as_fd(), token)?,
                Delivery::One => poller.add_exclusive(self.as_fd(), token)?,
            }
            self.watched.set(true);
        }
        Ok(())
    }

    fn unwatch(&self) {
        if self.watched.take() {
            // Can only fail if the watch has ended already.
            let _ = self.shared.poller.borrow_mut().remove(self.as_fd());
        }
    }

    fn forget(&mut self) {
        self.unwatch();
        self.shared.events.borrow_mut().remove_source(self.id);
    }
}

impl<F: AsFd> Drop for Source<F> {
    fn drop(&mut self) {
        if self.fd.is_some() {
            self.forget();
        }
    }
}

impl<F: AsFd> Deref for Source<F> {
    type Target = F;

    fn deref(&self) -> &F {
        self.fd.as_ref().expect(PRESENT)
    }
}

impl<F: AsFd> AsFd for Source<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue").finish_non_exhaustive()
    }
}

impl<F: AsFd> fmt::Debug for Source<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

const FOREIGN: &str = "this source belongs to another event queue";
const PRESENT: &str = "the descriptor leaves with the source";
