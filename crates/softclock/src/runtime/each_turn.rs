//! Work of the loop itself in each turn: queues in memory that it looks at, and what tasks leave for the turn's end.

use softclock_core::Instant;
use softclock_core::signalling::Wait;

use super::sources::Sources;

/// A queue in which events arrive without the kernel, such as that of a network stack. [`look`](Self::look) only reads
/// memory, so it is called in every turn, however recent the last check of the kernel.
pub(crate) trait EachTurn {
    /// Posts the events that have arrived to their sources. Does a bounded amount of work. Returns false if none will
    /// come any more, so that the runtime removes the queue.
    #[must_use]
    fn look(&self, sources: &mut Sources) -> bool;

    /// Begins to take everything that has arrived so far and of which the runtime knows nothing, such as the frames in
    /// the queue of a device. Timeouts are judged once [`has_caught_up`](Self::has_caught_up) holds. By default there
    /// is nothing to take.
    fn catch_up(&self) {}

    /// Whether all that had arrived at the last call of [`catch_up`](Self::catch_up) has been taken, so that the next
    /// [`look`](Self::look) posts the last of its events. It holds after a bounded number of turns and a bounded wait
    /// for other threads, however much arrives meanwhile. The loop may block until a task is ready, so one is woken
    /// when it may hold.
    fn has_caught_up(&self) -> bool {
        true
    }

    /// Says whether the thread, which has no work at `now`, may wait for the kernel to report events. May take a
    /// bounded number of frames to find out. If it refuses, it has woken a task.
    fn before_wait(&self, _now: Instant) -> Wait {
        Wait::UntilInterrupt
    }

    /// Called after [`before_wait`](Self::before_wait) once the thread has work: the wait is over, or was refused.
    fn after_wait(&self, _now: Instant) {}
}

/// Work that several tasks of a turn leave to be done once behind them, such as sending what they have written.
pub(crate) trait TurnEnd {
    /// Does the work. No data of the runtime is borrowed.
    fn at_turn_end(&self);
}
