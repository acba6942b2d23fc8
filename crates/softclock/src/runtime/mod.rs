//! The runtime: one per thread.
//!
//! - `inner`: the state of a thread's runtime; what a trigger state does.
//! - `turn`: the loop: trigger, receive, run tasks, transmit, sleep.
//! - `soft_events`: soft events and the restricted context of their handlers.
//! - `task`: tasks and their handles.
//! - `give_way`: tasks whose next step is not urgent.
//! - `far_timer`: the kernel timer for waits that events keep interrupting.
//! - `mailbox`: how other threads reach a runtime.
//! - `ring`: queues in memory, where events arrive without the kernel.
//! - `sources`: readiness, and who waits for it.
//! - `timeouts`: when timeouts that are due are over.
//! - `statistics`: what happened so far.

mod far_timer;
mod give_way;
pub(crate) mod inner;
pub(crate) mod mailbox;
mod ready;
#[cfg(feature = "memory-net")]
pub(crate) mod ring;
pub(crate) mod soft_events;
pub(crate) mod sources;
pub(crate) mod statistics;
mod task;
pub(crate) mod timeouts;
mod turn;

use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;

pub use give_way::GiveWay;
use inner::Inner;
pub use mailbox::{PostError, Remote};
pub use soft_events::{EventContext, SoftEvent};
pub use softclock_linux::readiness::{Mechanism, UnknownMechanism};
pub use statistics::Statistics;
pub use task::JoinHandle;

/// A thread's runtime. It and all that lives in it stays on the thread that made it.
pub struct Runtime {
    inner: Rc<Inner>,
}

impl Runtime {
    /// A runtime with default settings.
    ///
    /// # Errors
    /// When the process is out of descriptors or timers, and `AlreadyExists` where the thread has a runtime.
    pub fn new() -> io::Result<Self> {
        Self::builder().build()
    }

    /// Settings for a runtime.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Runs `future` and all that it spawns until `future` ends. Tasks that have not ended then go on in the
    /// next `block_on`, or are dropped with the runtime.
    ///
    /// # Panics
    /// If the thread is already inside a runtime, when `future` or a soft event's handler panics, and when the kernel
    /// refuses to wait for events, which [`Builder::build`] tries.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _entered = self.inner.enter();
        self.inner.run(future)
    }

    /// A handle by which other threads reach this runtime.
    pub fn remote(&self) -> Remote {
        Remote::new(self.inner.mailbox.clone())
    }

    /// How it learns which descriptors are ready.
    pub fn mechanism(&self) -> Mechanism {
        self.inner.poller.borrow().mechanism()
    }

    /// All counts and histograms so far. Copies about 100 KB.
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

/// Settings for a [`Runtime`].
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) spin_cap: f64,
    pub(crate) events: Option<Mechanism>,
    #[cfg(feature = "memory-net")]
    pub(crate) is_in_memory: bool,
}

impl Builder {
    /// The share of its time, 0 to 1, that an idle thread may spin so that events fire on time; default 0.05.
    ///
    /// A blocking wait returns some 50 us late, so the thread blocks until shortly before an event and spins for
    /// the rest. With 0, or when the share is used up, events of an idle thread are as late as the wait. Nothing is spun
    /// while all that is pending may be late ([`Sleep::with_slack`](crate::Sleep::with_slack)).
    #[must_use]
    pub fn spin_cap(mut self, share: f64) -> Self {
        self.spin_cap = share;
        self
    }

    /// How the runtime learns which descriptors are ready; by default by epoll, or by poll where epoll is forbidden. What
    /// does not work here makes [`build`](Self::build) fail.
    #[must_use]
    pub fn events(mut self, mechanism: Mechanism) -> Self {
        self.events = Some(mechanism);
        self
    }

    /// Gives the runtime sockets in memory: those of TCP and UDP reach only each other. For tests of what is above them.
    #[cfg(feature = "memory-net")]
    #[doc(hidden)]
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.is_in_memory = true;
        self
    }

    /// Makes the runtime. Sets the thread's timer slack to 1 ns.
    ///
    /// # Errors
    /// When the process is out of descriptors or timers, when the kernel or a sandbox refuses the mechanism of
    /// [`events`](Self::events), and `AlreadyExists` where the thread has a runtime.
    pub fn build(&self) -> io::Result<Runtime> {
        Ok(Runtime {
            inner: Rc::new(Inner::new(self)?),
        })
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            spin_cap: 0.05,
            events: None,
            #[cfg(feature = "memory-net")]
            is_in_memory: false,
        }
    }
}
