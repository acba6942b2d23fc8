//! Timeouts, which end only after the events from before their deadlines were handled.
//!
//! A thread can be away at any point: stopped by a signal, in a paused virtual machine, or busy with a computing
//! task. Meanwhile time passes, and data that arrives waits in the kernel. A timer that fires afterwards proves that
//! the time has passed, but not that no data arrived. So the timer of a timeout does not wake its task. It stores the
//! waker here, and the loop
//!
//! 1. takes all events from the kernel that were ready when this check began,
//! 2. runs each task that is then ready once, which reads the data or passes it to another task,
//! 3. wakes the tasks whose timeouts were due before the check; their [`Sleep`](crate::Sleep) finds that it is over.
//!    It wakes only some per turn: a thousand timeouts may end together, and other tasks would wait behind all of
//!    them.
//!
//! The wait that ended with the timer does not count as step 1: a stop may have interrupted it (EINTR), or may have
//! come between the kernel's last check and the thread's next instruction. There is no threshold for the length of an
//! absence, since any would be too long for some timeout.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;

use softclock_core::Instant;

/// The due timeouts of a runtime.
#[derive(Debug)]
pub(crate) struct Timeouts {
    /// Whether a timeout is due that has not woken its task.
    pending: Cell<bool>,
    /// Tasks whose timeouts became due after the last check began.
    due: RefCell<Vec<Waker>>,
    /// Tasks whose timeouts became due before it, to be woken when its round ends.
    looked_for: RefCell<Vec<Waker>>,
    round: Cell<Option<Round>>,
    /// Tasks whose timeouts are over, to be woken some at a time.
    ended: RefCell<VecDeque<Waker>>,
    /// Time at which the check of the last finished round began: timeouts due before it are over.
    over: Cell<Instant>,
}

/// A check of the kernel, and the tasks that must run before timeouts due earlier are over.
#[derive(Clone, Copy, Debug)]
struct Round {
    look_began: Instant,
    /// The position in the queue of ready tasks behind the last of these tasks.
    end: u64,
}

impl Timeouts {
    pub(crate) fn new() -> Self {
        Self {
            pending: Cell::new(false),
            due: RefCell::default(),
            looked_for: RefCell::default(),
            round: Cell::new(None),
            ended: RefCell::default(),
            over: Cell::new(Instant::ORIGIN),
        }
    }

    /// Returns whether a timeout with this deadline is over.
    #[inline]
    pub(crate) fn is_over(&self, deadline: Instant) -> bool {
        deadline < self.over.get()
    }

    /// Returns whether the loop has work for timeouts in this turn.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.get()
    }

    /// Records that the timer of a timeout has fired.
    pub(crate) fn on_due(&self, waker: Waker) {
        self.due.borrow_mut().push(waker);
        self.pending.set(true);
    }

    /// Returns whether a check of the kernel should begin a round.
    pub(crate) fn needs_look(&self) -> bool {
        self.round.get().is_none() && !self.due.borrow().is_empty()
    }

    /// Begins a round. Call it when all events that were ready at `look_began` have woken their tasks, which are
    /// queued before the position `end`.
    pub(crate) fn begin_round(&self, look_began: Instant, end: u64) {
        debug_assert!(self.round.get().is_none());
        self.looked_for.swap(&self.due);
        self.round.set(Some(Round { look_began, end }));
    }

    /// Ends the round if its tasks were queued before `position`, and so have run. Moves the wakers of timeouts that
    /// are over to `woken`, limited to those to be woken in this turn.
    pub(crate) fn end_round(&self, position: u64, woken: &mut Vec<Waker>) {
        let mut ended = self.ended.borrow_mut();
        if let Some(round) = self.round.get()
            && position >= round.end
        {
            self.over.set(round.look_began);
            self.round.set(None);
            ended.extend(self.looked_for.borrow_mut().drain(..));
        }
        // Spread over several turns, so that other tasks run in between.
        let turn = ended.len().min(WAKES_PER_TURN);
        woken.extend(ended.drain(..turn));
        let is_pending =
            !ended.is_empty() || self.round.get().is_some() || !self.due.borrow().is_empty();
        self.pending.set(is_pending);
    }

    /// Removes all wakers at the end of the runtime, and returns them to be dropped.
    pub(crate) fn clear(&self) -> Vec<Waker> {
        self.pending.set(false);
        self.round.set(None);
        let mut all = self.due.take();
        all.append(&mut self.looked_for.borrow_mut());
        all.extend(self.ended.take());
        all
    }
}

/// Most tasks that ended timeouts wake in one turn.
const WAKES_PER_TURN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    /// Ends the round, and returns how many tasks are to be woken.
    fn end_round(timeouts: &Timeouts, position: u64) -> usize {
        let mut woken = Vec::new();
        timeouts.end_round(position, &mut woken);
        woken.len()
    }

    fn due(timeouts: &Timeouts) {
        timeouts.on_due(Waker::noop().clone());
    }

    #[test]
    fn a_timeout_is_over_behind_a_look_and_the_tasks_that_it_woke() {
        let timeouts = Timeouts::new();
        assert!(!timeouts.is_pending() && !timeouts.needs_look());
        due(&timeouts);
        assert!(timeouts.is_pending() && timeouts.needs_look());
        assert!(!timeouts.is_over(at(3)), "nothing was looked at");
        timeouts.begin_round(at(5), 7);
        assert_eq!(end_round(&timeouts, 6), 0);
        assert!(!timeouts.is_over(at(3)), "a task has not run");
        assert_eq!(end_round(&timeouts, 7), 1);
        assert!(timeouts.is_over(at(3)) && !timeouts.is_over(at(5)));
        assert!(!timeouts.is_pending());
    }

    #[test]
    fn many_that_end_together_wake_their_tasks_in_turns() {
        let timeouts = Timeouts::new();
        (0..WAKES_PER_TURN + 1).for_each(|_| due(&timeouts));
        timeouts.begin_round(at(5), 1);
        assert_eq!(end_round(&timeouts, 1), WAKES_PER_TURN);
        assert!(timeouts.is_pending() && !timeouts.needs_look());
        due(&timeouts);
        assert_eq!(end_round(&timeouts, 1), 1);
        assert!(timeouts.is_pending() && timeouts.needs_look());
        (0..WAKES_PER_TURN).for_each(|_| due(&timeouts));
        timeouts.begin_round(at(6), 2);
        end_round(&timeouts, 2);
        assert_eq!(timeouts.clear().len(), 1, "one had not been woken");
    }

    #[test]
    fn what_is_due_during_a_round_waits_for_the_next_look() {
        let timeouts = Timeouts::new();
        due(&timeouts);
        timeouts.begin_round(at(5), 1);
        due(&timeouts);
        assert!(!timeouts.needs_look());
        assert_eq!(end_round(&timeouts, 1), 1);
        assert!(timeouts.is_pending() && timeouts.needs_look());
        assert_eq!(timeouts.clear().len(), 1);
        assert!(!timeouts.is_pending());
    }
}
