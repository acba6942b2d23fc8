//! The timer of a sender: a place on a timer thread, or in a loop of another kind.

use std::sync::Arc;

use softclock_core::{FireWindow, TimerKey};

use crate::timers::{SendJob, Timers};

/// Runs one [`PacedSender`](super::PacedSender) when datagrams are due. [`Timers::sender_timer`] is the usual one, and
/// a program whose event loop has timers of its own implements this with them, which saves a switch of threads for each
/// transmission.
///
/// A sender calls these methods under its lock, from any thread that sends and from within the job, and sets the timer
/// only while it is not set. They must not block, nor run the job. Times are of CLOCK_MONOTONIC. The job may panic;
/// later ones must run all the same.
pub trait SendTimer: Send + 'static {
    /// Runs `job` once, from the beginning of `window` on. The window is rough where lateness is made up later.
    fn set(&mut self, window: FireWindow, job: Arc<dyn SendJob>);

    /// Moves the time. Does nothing if the job has begun.
    fn reset(&mut self, window: FireWindow);

    /// Gives up the job. Returns false if it has begun, or was not set.
    fn cancel(&mut self) -> bool;
}

impl Timers {
    /// Returns the timer of a sender, by this thread.
    pub fn sender_timer(&self) -> impl SendTimer {
        OnThread {
            timers: self.clone(),
            key: None,
        }
    }
}

struct OnThread {
    timers: Timers,
    key: Option<TimerKey>,
}

impl SendTimer for OnThread {
    fn set(&mut self, window: FireWindow, job: Arc<dyn SendJob>) {
        self.key = Some(self.timers.run_at(window.earliest, job));
    }

    fn reset(&mut self, window: FireWindow) {
        if let Some(key) = self.key {
            self.timers.reschedule(key, window.earliest);
        }
    }

    fn cancel(&mut self) -> bool {
        self.key.take().is_some_and(|key| self.timers.cancel(key))
    }
}
