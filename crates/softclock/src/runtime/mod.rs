//! The runtime: an event loop with tasks, soft events and sockets, one per thread.
//!
//! - `inner`: the state of a thread's runtime, and the steps of a trigger state.
//! - `turn`: the loop: receive, trigger, run tasks.
//! - `receive`: its first step: receive events, or rest until there is one.
//! - `turn_buffers`: memory for the events of a turn.
//! - `outer_loop`: the runtime inside another loop.
//! - `soft_events`: soft events and the restricted context of their handlers.
//! - `task`: tasks and their handles; `active`: the table of those that have not ended.
//! - `join_set`: sets of tasks; `join_error`: ends without a result; `reported`: a future that
//!   reports its end.
//! - `ready`: the order in which woken tasks run.
//! - `give_way`: tasks whose next step has a low priority.
//! - `far_timer`: a kernel timer for waits that events keep interrupting.
//! - `mailbox`: the queue of wakers and closures from other threads; `remote`: their handle, and tasks that return them
//!   results;
//!   `promise`: a value that passes between threads.
//! - `each_turn`: queues in memory, in which events arrive without the kernel.
//! - `sources`: readiness of descriptors, and the tasks that wait for it.
//! - `timeouts`: timeouts that are due, and when they end.
//! - `statistics`: counts and histograms.

mod active;
pub(crate) mod each_turn;
mod far_timer;
mod give_way;
pub(crate) mod inner;
mod join_error;
mod join_set;
mod kernel_events;
pub(crate) mod mailbox;
mod outer_loop;
pub(crate) mod promise;
mod ready;
mod receive;
mod remote;
mod reported;
pub(crate) mod soft_events;
pub(crate) mod sources;
pub(crate) mod statistics;
mod task;
pub(crate) mod timeouts;
mod turn;
mod turn_buffers;

use std::cell::OnceCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

pub use give_way::GiveWay;
use inner::Inner;
pub use join_error::JoinError;
pub use join_set::JoinSet;
pub use mailbox::PostError;
pub use remote::{Remote, RemoteHandle, remote, try_remote};
pub use soft_events::{EventContext, SoftEvent};
use softclock_core::signalling::Policy;
use softclock_linux::busy_poll::BusyPoll;
pub use softclock_linux::readiness::{Mechanism, UnknownMechanism};
pub use statistics::Statistics;
pub use task::{AbortHandle, JoinHandle};

/// The event loop of one thread. It and its tasks, sockets and timers stay on the thread that created it.
///
/// # Example
/// ```
/// use softclock::{Mechanism, Runtime};
///
/// # fn main() -> std::io::Result<()> {
/// // Like Runtime::new(), but never spins, and uses poll(2) instead of epoll.
/// let runtime = Runtime::builder()
///     .spin_cap(0.0)
///     .events(Mechanism::Poll)
///     .build()?;
/// assert_eq!(runtime.mechanism(), Mechanism::Poll);
/// assert_eq!(runtime.block_on(async { 6 * 7 }), 42);
/// # Ok(())
/// # }
/// ```
pub struct Runtime {
    inner: Rc<Inner>,
    /// A duplicate of the poller's descriptor, made when it is first asked for.
    descriptor: OnceCell<OwnedFd>,
}

impl Runtime {
    /// Creates a runtime with default settings.
    ///
    /// # Errors
    /// If the process is out of descriptors or timers, and `AlreadyExists` if the thread has a runtime.
    pub fn new() -> io::Result<Self> {
        Self::builder().build()
    }

    /// Returns default settings, to be changed before building a runtime.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Runs `future` and the tasks that it spawns until `future` completes. Tasks that have not ended by then
    /// continue in the next `block_on`, or are dropped with the runtime.
    ///
    /// # Panics
    /// If the thread is already inside a runtime, if `future` or the handler of a soft event panics, and if the
    /// kernel refuses to wait for events, which [`Builder::build`] checks in advance.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _entered = self.inner.enter();
        self.inner.run(future)
    }

    /// Starts a task, which runs in the turns of the runtime: those of [`block_on`](Self::block_on) and
    /// [`turn`](Self::turn). Does not enter the runtime. Within tasks, [`spawn_local`](crate::spawn_local) does the
    /// same.
    pub fn spawn_local<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.inner.spawn(future)
    }

    /// Takes one turn of the loop: receives events, fires those that are due, and runs the tasks that are ready, each
    /// once and at most 64. Without work, it waits for `longest` at most (`None` for no limit), or until something
    /// arrives or is due. It may also end with nothing done.
    ///
    /// With zero it never waits. A program with a loop of its own thus runs this one inside it:
    ///
    /// 1. it watches the runtime's [`descriptor`](Self::descriptor) for reading,
    /// 2. it waits for events, no longer than [`before_wait`](Self::before_wait) returns, and
    /// 3. it calls `turn(Some(Duration::ZERO))` after each wait.
    ///
    /// # Example
    /// ```
    /// use rustix::event::{PollFd, PollFlags, poll};
    /// use softclock::{Mechanism, Runtime};
    /// use std::time::Duration;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let runtime = Runtime::builder().events(Mechanism::Epoll).build()?;
    /// let task = runtime.spawn_local(async { softclock::sleep(Duration::from_millis(2)).await });
    /// while !task.is_finished() {
    ///     let longest = runtime.before_wait().map(|time| time.try_into().expect("it is short"));
    ///     // Beside the descriptors of the program.
    ///     let mut descriptors = [PollFd::from_borrowed_fd(runtime.descriptor()?, PollFlags::IN)];
    ///     poll(&mut descriptors, longest.as_ref())?;
    ///     runtime.turn(Some(Duration::ZERO));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the thread is already inside a runtime, and as [`block_on`](Self::block_on) does.
    pub fn turn(&self, longest: Option<Duration>) {
        let _entered = self.inner.enter();
        self.inner.turn_within(longest);
    }

    /// Begins a wait of the loop around this one, and returns the longest time for which it may wait: zero if a task is
    /// ready or an event is close, and `None` if nothing is pending, so that an idle runtime causes no wake-ups. Call
    /// it before each wait, and [`turn`](Self::turn) after it.
    ///
    /// During the wait, a task that another thread wakes makes the [`descriptor`](Self::descriptor) readable; at other
    /// times it does not. A loop that waits for whole milliseconds needs an [`embed::WakeTimer`] for events on time.
    ///
    /// [`embed::WakeTimer`]: crate::embed::WakeTimer
    ///
    /// # Panics
    /// If the thread is already inside a runtime.
    pub fn before_wait(&self) -> Option<Duration> {
        let _entered = self.inner.enter();
        self.inner.before_outer_wait()
    }

    /// Returns a descriptor that is readable while events have arrived for this runtime, to be watched by a loop around
    /// it. Do not use it for anything else.
    ///
    /// # Errors
    /// `Unsupported` with other mechanisms than [`Mechanism::Epoll`], the default, and if the process is out of
    /// descriptors.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        if self.descriptor.get().is_none() {
            let descriptor = self.inner.poller.borrow().descriptor()?;
            // Only this method sets it, so it is not set yet.
            let _ = self.descriptor.set(descriptor);
        }
        Ok(self.descriptor.get().expect("set above").as_fd())
    }

    /// Returns a handle through which other threads reach this runtime.
    pub fn remote(&self) -> Remote {
        Remote::new(self.inner.mailbox.clone())
    }

    /// Returns the mechanism by which the kernel reports ready descriptors.
    pub fn mechanism(&self) -> Mechanism {
        self.inner.poller.borrow().mechanism()
    }

    /// Returns all counts and histograms so far. Copies about 100 KB.
    pub fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let entered = (!inner::is_entered()).then(|| self.inner.enter());
        self.inner.drop_tasks();
        drop(entered);
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("id", &self.inner.mailbox.id())
            .finish_non_exhaustive()
    }
}

/// Settings for a [`Runtime`], created by [`Runtime::builder`], where an example is.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) spin_cap: f64,
    pub(crate) has_regular_waits: bool,
    pub(crate) events: Option<Mechanism>,
    pub(crate) signalling: Policy,
    pub(crate) busy_poll: BusyPoll,
    #[cfg(feature = "memory-net")]
    pub(crate) is_in_memory: bool,
}

impl Builder {
    /// Sets the share of its time, 0 to 1, that an idle thread may spin so that events fire on time. The default is
    /// 0.05.
    ///
    /// A blocking wait returns about 50 us late, so the thread blocks until shortly before an event and spins for the
    /// rest. With 0, or when the share is used up, events of an idle thread are as late as the wait. The thread does
    /// not spin while all pending events may be late ([`Sleep::with_slack`](crate::Sleep::with_slack)).
    #[must_use]
    pub fn spin_cap(mut self, share: f64) -> Self {
        self.spin_cap = share;
        self
    }

    /// Sets whether the thread prepares for waits that end at regular distances, such as those between the packets of a
    /// paced stream. The default is not to.
    ///
    /// In a virtual machine, programming the processor's timer takes several microseconds, and a thread that sends at
    /// regular distances does it twice for each wait. With this, a timer is kept pending for the wait after the next
    /// one, so that the interrupt that ends a wait programs the time of the next
    /// ([`AheadTimer`](softclock_linux::readiness::AheadTimer)). It costs two descriptors and a system call a wait,
    /// does nothing where programming is fast, and gains little for a thread that spins.
    #[must_use]
    pub fn regular_waits(mut self, on: bool) -> Self {
        self.has_regular_waits = on;
        self
    }

    /// Sets the mechanism by which the kernel reports ready descriptors. The default is epoll, or poll where epoll is
    /// forbidden. If the selected mechanism does not work, [`build`](Self::build) fails.
    #[must_use]
    pub fn events(mut self, mechanism: Mechanism) -> Self {
        self.events = Some(mechanism);
        self
    }

    /// Sets how the thread learns of the kernel's events, such as those of its sockets. By default each event ends a
    /// wait ([`Policy::Interrupt`]), and a thread with work looks every 20 us.
    ///
    /// Each wait and each look is a system call, so finding several events at once costs less for each. With soft
    /// polls, a thread with work looks less often while few events come. With [`Wakeups::Deferred`] a loaded thread
    /// that has no work sleeps instead of waiting, and then looks: events, and messages of other threads, wait for up
    /// to the latency bound.
    ///
    /// The stack of a runtime has a policy of its own, for its frames
    /// ([`StackOptions::signalling`](crate::net::stack::StackOptions::signalling)). A thread with a stack waits instead
    /// of sleeping, since a frame may have to end the wait.
    ///
    /// [`Wakeups::Deferred`]: softclock_core::signalling::Wakeups::Deferred
    #[must_use]
    pub fn signalling(mut self, policy: Policy) -> Self {
        self.signalling = policy;
        self
    }

    /// Makes waits for the kernel's events poll the network device before they sleep. By default they do not.
    ///
    /// Each wait then takes a processor for up to [`BusyPoll::time`]. Frames that arrive in this time cause neither
    /// interrupts nor switches to the thread; the thread's timers may be late by as much. With
    /// [`BusyPoll::is_preferred`] and a [delay](crate::net::stack::InterruptDelay) of the device's interrupts, these
    /// stay masked while the thread works, too. Devices without receive work of their own, such as the loopback and, by
    /// default, veth, are not polled.
    ///
    /// ```
    /// use std::time::Duration;
    /// use softclock::{BusyPoll, Runtime};
    ///
    /// let builder = Runtime::builder().busy_poll(BusyPoll::of(Duration::from_micros(50)));
    /// ```
    #[must_use]
    pub fn busy_poll(mut self, polling: BusyPoll) -> Self {
        self.busy_poll = polling;
        self
    }

    /// Gives the runtime TCP and UDP sockets in memory, which reach only each other, for tests of code that uses
    /// sockets.
    #[cfg(feature = "memory-net")]
    #[doc(hidden)]
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.is_in_memory = true;
        self
    }

    /// Creates the runtime. It keeps the thread's timer slack at 1 ns.
    ///
    /// # Errors
    /// If the process is out of descriptors or timers, if the kernel or a sandbox refuses the mechanism of
    /// [`events`](Self::events), `Unsupported` if that mechanism cannot [poll devices](Self::busy_poll), and
    /// `AlreadyExists` if the thread has a runtime.
    pub fn build(&self) -> io::Result<Runtime> {
        Ok(Runtime {
            inner: Inner::new(self)?,
            descriptor: OnceCell::new(),
        })
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            spin_cap: 0.05,
            has_regular_waits: false,
            events: None,
            signalling: Policy::Interrupt,
            busy_poll: BusyPoll::OFF,
            #[cfg(feature = "memory-net")]
            is_in_memory: false,
        }
    }
}
