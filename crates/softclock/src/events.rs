//! Explicit event delivery for a thread that has its own loop (*Event Delivery*, sections 4 and 5): no runtime, no
//! tasks.
//!
//! [`EventQueue::add`] adds a descriptor to the thread's [`EventQueue`] and returns a [`Source`] that owns it. The
//! thread [declares](EventQueue::declare_interest) the conditions that it is interested in, and takes events with
//! [`get_next_event`](EventQueue::get_next_event). The cost of both is independent of the number of descriptors.
//!
//! - An event reports that a condition has arrived, and carries the present state of the source as far as it is
//!   known: the readiness last reported by the kernel, without the conditions that the thread has reported as
//!   [consumed](Source::consumed). A thread should report a condition as consumed when a call returns
//!   [`WouldBlock`](io::ErrorKind::WouldBlock) or transfers less than requested; pending events that have become
//!   meaningless by then are suppressed. A thread that postpones the work need not report: the next arrival causes
//!   another event.
//! - Several events of a source before delivery are coalesced into one. Events are delivered first in, first out.
//! - Dropping a [`Source`] ends its events at once, including queued ones. They are never attributed to a later
//!   source with the same descriptor number.
//!
//! The queue uses epoll, or `poll` where epoll is forbidden; [`EventQueue::with_mechanism`] selects another
//! mechanism. io_uring and epoll report changes. `poll` and `select` report states, so with them the next event of a
//! source comes only after a condition was reported as consumed. As in the paper, a descriptor may turn out not to be
//! ready after an event, so descriptors should be nonblocking.
//!
//! # Example
//! The server of the paper's Figure 3:
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
use softclock_linux::clock::MinimalSlack;
pub use softclock_linux::readiness::Mechanism;
use softclock_linux::readiness::{BATCH, Poller, ReadyEvent, Timeout, Token, current_state};

/// The event queue of one thread. It keeps the thread's timer slack at 1 ns, so that waits with a time limit end on
/// time.
///
/// # Example
/// ```
/// use softclock::events::{EventQueue, Readiness, SourceEvent};
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
///
/// # fn main() -> std::io::Result<()> {
/// let (ours, mut theirs) = UnixStream::pair()?;
/// ours.set_nonblocking(true)?;
/// let queue = EventQueue::new()?;
/// let source = queue.add(ours);
/// queue.declare_interest(&source, Readiness::READABLE, None)?;
///
/// theirs.write_all(b"hello")?;
/// let mut events = [SourceEvent::NONE; 16];
/// let count = queue.get_next_event(&mut events, None)?;
/// assert_eq!(count, 1);
/// assert_eq!(events[0].source, source.id());
///
/// let mut buffer = [0; 64];
/// let length = (&*source).read(&mut buffer)?;
/// assert_eq!(&buffer[..length], b"hello");
/// // The buffer was not filled, so no more data is there.
/// source.consumed(Readiness::READABLE);
/// # Ok(())
/// # }
/// ```
pub struct EventQueue {
    shared: Rc<Shared>,
}

/// The state that a queue shares with its sources.
struct Shared {
    events: RefCell<EventQueues>,
    queue: QueueId,
    poller: RefCell<Poller>,
    arrived: RefCell<Vec<ReadyEvent>>,
    _slack: MinimalSlack,
}

/// A descriptor in an [`EventQueue`]. Dropping it ends its events and drops the descriptor.
pub struct Source<F: AsFd> {
    shared: Rc<Shared>,
    id: SourceId,
    delivery: Delivery,
    /// Whether the poller watches the descriptor.
    watched: Cell<bool>,
    /// `None` only after [`into_inner`](Self::into_inner).
    fd: Option<F>,
}

impl EventQueue {
    /// Creates an empty queue with the default mechanism, or the next best one that works here.
    ///
    /// # Errors
    /// If the process has no descriptor left, or may not use any mechanism.
    pub fn new() -> io::Result<Self> {
        Poller::new().map(Self::over)
    }

    /// Creates an empty queue with this mechanism.
    ///
    /// # Errors
    /// If the mechanism does not work here, or the process has no descriptor left.
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
                _slack: MinimalSlack::of_this_thread(),
            }),
        }
    }

    /// Returns the mechanism by which the kernel reports events.
    pub fn mechanism(&self) -> Mechanism {
        self.shared.poller.borrow().mechanism()
    }

    /// Adds a nonblocking descriptor, without interest in it. Makes no system call.
    pub fn add<F: AsFd>(&self, fd: F) -> Source<F> {
        self.add_for(fd, Delivery::Each)
    }

    /// Like [`add`](Self::add), for a file that several threads watch, each with its own queue, such as a listener.
    /// With [`Delivery::One`], an event wakes one of the waiting threads, or a few, instead of all. This needs epoll,
    /// and works for reading only.
    ///
    /// The kernel selects the thread (EPOLLEXCLUSIVE). It goes through the threads in the order in which they
    /// declared their interest, leaves the event with each that is busy, and stops at the first that waits. Idle
    /// threads are thus preferred and wake-ups are few, but threads do not take turns: one thread handles most of a
    /// light load, and others only events that arrive while it is busy. An event that was reported to one thread is
    /// not passed on: if that thread ends its interest or drops the [`Source`] before it has seen
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), the remaining data waits until the next arrival, which is reported
    /// to another thread.
    ///
    /// One listener per thread (SO_REUSEPORT) instead spreads connections evenly by their addresses, to busy threads
    /// as well as to idle ones: a thread that is stuck keeps its connections waiting, and closing a listener resets
    /// the connections that it has not accepted. The experiment `event-delivery/wake-one` measures both.
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

    /// Declares the conditions of a source that the thread is interested in, replacing its earlier declaration.
    /// Closing and errors are always included. An empty `mask` ends the interest.
    ///
    /// With `state`, it also stores the present state there, before any event is queued, so that conditions from
    /// before the declaration are not missed. This costs a poll(2). The first declaration costs another system call;
    /// later ones take a few memory accesses. In return, the kernel keeps reporting a source after its interest has
    /// ended: with epoll and io_uring, each arrival wakes the thread inside [`get_next_event`](Self::get_next_event),
    /// which then continues to wait. Only with [`Delivery::One`] do the end and the renewal of an interest each make
    /// a system call, so that the kernel selects another thread.
    ///
    /// # Errors
    /// Those of the mechanism: files that are always ready cannot be watched, `select` cannot watch descriptors from
    /// 1024 on, and [`Delivery::One`] needs epoll. [`InvalidInput`](io::ErrorKind::InvalidInput) for a source of
    /// another queue.
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
            // Otherwise the kernel might select this thread instead of an interested one.
            Delivery::One => source.unwatch(),
            Delivery::Each => {}
        }
        // Queried before the interest is declared: an arrival in between causes an event as well, and is not lost.
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

    /// Fills `events` with events in the order of their arrival, and returns their number.
    ///
    /// Returns at once if events are queued. Otherwise it waits until an event arrives, `timeout` passes (`None` for
    /// no limit), or a signal handler has run. In the latter two cases it returns 0.
    ///
    /// # Errors
    /// Those of the mechanism's wait, which do not occur in a process that may make the call.
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
        // A wait may end with events that are suppressed: wait on until the end of the timeout.
        while found == 0 && shared.wait(end)? > 0 {
            found = shared.take(events);
            if found == 0 && end.is_some_and(|end| Instant::now() >= end) {
                return Ok(0);
            }
        }
        // After a full batch the kernel may have more events, and `events` may have room for them.
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

    /// Moves events from the kernel into the queue.
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
    /// Returns the id by which events name this source.
    pub fn id(&self) -> SourceId {
        self.id
    }

    /// Reports that these conditions no longer hold: a call would have blocked, or transferred less than requested.
    pub fn consumed(&self, conditions: Readiness) {
        let mut events = self.shared.events.borrow_mut();
        events.consume(self.id, conditions);
        self.shared
            .poller
            .borrow_mut()
            .rearm(self.as_fd(), conditions);
    }

    /// Ends the events of this source and returns the descriptor.
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
            // Fails only if the kernel has already ended the watch.
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
