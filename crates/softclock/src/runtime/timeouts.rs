//! Timeouts, which end only after the events from before their deadlines were handled.
//!
//! A thread can be away at any point: stopped by a signal, in a paused virtual machine, or busy with a computing
//! task. Meanwhile time passes, and data that arrives waits in the kernel. A timer that fires afterwards proves that
//! the time has passed, but not that no data arrived. So the timer of a timeout does not wake its task. It stores the
//! waker here, and the loop
//!
//! 1. takes all events from the kernel that were ready when this check began,
//! 2. waits until the frames that the device of the runtime's own stack had then are taken ([`EachTurn::catch_up`]),
//!    also by other threads of the stack, which may have to hand over some of them,
//! 3. runs each task that is then ready once, which reads the data or passes it to another task,
//! 4. wakes the tasks whose timeouts were due before the check; their [`Sleep`](crate::Sleep) finds that it is over.
//!    It wakes only some per turn: a thousand timeouts may end together, and other tasks would wait behind all of
//!    them.
//!
//! The wait that ended with the timer does not count as step 1: a stop may have interrupted it (EINTR), or may have
//! come between the kernel's last check and the thread's next instruction. There is no threshold for the length of an
//! absence, since any would be too long for some timeout.
//!
//! [`EachTurn::catch_up`]: super::each_turn::EachTurn::catch_up

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;

use softclock_core::Instant;

use super::ready::Position;

/// The due timeouts of a runtime.
#[derive(Debug)]
pub(crate) struct Timeouts {
    /// Whether a timeout is due that has not woken its task.
    pending: Cell<bool>,
    /// Tasks whose timeouts became due after the last check began.
    due: RefCell<Vec<Waker>>,
    /// Tasks whose timeouts became due before it, to be woken when its round ends.
    looked_for: RefCell<Vec<Waker>>,
    check: Cell<Check>,
    /// Tasks whose timeouts are over, to be woken some at a time.
    ended: RefCell<VecDeque<Waker>>,
    /// Time at which the last finished check began: timeouts due before it are over.
    over: Cell<Instant>,
}

/// The state of a check whether input came in time for the timeouts that were due when the check began.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Check {
    /// There is none.
    None,
    /// The kernel, and the device of a stack, are looked at since this time.
    Looking(Instant),
    /// After a look that began at this time, the tasks before this position in the queue of ready tasks run.
    Running(Instant, Position),
}

impl Timeouts {
    pub(crate) fn new() -> Self {
        Self {
            pending: Cell::new(false),
            due: RefCell::default(),
            looked_for: RefCell::default(),
            check: Cell::new(Check::None),
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

    /// Returns whether the loop must not rest. While a check waits for input that tasks take, these wake it.
    pub(crate) fn has_work(&self) -> bool {
        self.is_pending() && !self.is_looking()
    }

    /// Records that the timer of a timeout has fired.
    pub(crate) fn on_due(&self, waker: Waker) {
        self.due.borrow_mut().push(waker);
        self.pending.set(true);
    }

    /// Returns whether a check should begin.
    pub(crate) fn needs_check(&self) -> bool {
        self.check.get() == Check::None && !self.due.borrow().is_empty()
    }

    /// Begins a check for the timeouts that are due now.
    pub(crate) fn begin_check(&self, now: Instant) {
        debug_assert_eq!(self.check.get(), Check::None);
        self.looked_for.swap(&self.due);
        self.check.set(Check::Looking(now));
    }

    /// Returns whether a check waits for events that had arrived when it began.
    pub(crate) fn is_looking(&self) -> bool {
        matches!(self.check.get(), Check::Looking(_))
    }

    /// Notes that all these events have woken their tasks, which are queued before the position `end`.
    pub(crate) fn end_look(&self, end: Position) {
        if let Check::Looking(began) = self.check.get() {
            self.check.set(Check::Running(began, end));
        }
    }

    /// Ends the check if its tasks were queued before `position`, and so have run. Moves the wakers of timeouts that
    /// are over to `woken`, limited to those to be woken in this turn.
    pub(crate) fn end_check(&self, position: Position, woken: &mut Vec<Waker>) {
        let mut ended = self.ended.borrow_mut();
        if let Check::Running(began, end) = self.check.get()
            && position.has_reached(end)
        {
            self.over.set(began);
            self.check.set(Check::None);
            ended.extend(self.looked_for.borrow_mut().drain(..));
        }
        // Spread over several turns, so that other tasks run in between.
        let turn = ended.len().min(WAKES_PER_TURN);
        woken.extend(ended.drain(..turn));
        let is_pending =
            !ended.is_empty() || self.check.get() != Check::None || !self.due.borrow().is_empty();
        self.pending.set(is_pending);
    }

    /// Removes all wakers at the end of the runtime, and returns them to be dropped.
    pub(crate) fn clear(&self) -> Vec<Waker> {
        self.pending.set(false);
        self.check.set(Check::None);
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

    fn behind(others: u64) -> Position {
        Position { due: 0, others }
    }

    /// Ends the check, and returns how many tasks are to be woken.
    fn end_check(timeouts: &Timeouts, others: u64) -> usize {
        let mut woken = Vec::new();
        timeouts.end_check(behind(others), &mut woken);
        woken.len()
    }

    /// A look that finds all at once.
    fn look(timeouts: &Timeouts, now: Instant, others: u64) {
        timeouts.begin_check(now);
        timeouts.end_look(behind(others));
    }

    fn due(timeouts: &Timeouts) {
        timeouts.on_due(Waker::noop().clone());
    }

    #[test]
    fn a_timeout_is_over_behind_a_look_and_the_tasks_that_it_woke() {
        let timeouts = Timeouts::new();
        assert!(!timeouts.is_pending() && !timeouts.needs_check());
        due(&timeouts);
        assert!(timeouts.is_pending() && timeouts.needs_check());
        assert!(!timeouts.is_over(at(3)), "nothing was looked at");
        look(&timeouts, at(5), 7);
        assert_eq!(end_check(&timeouts, 6), 0);
        assert!(!timeouts.is_over(at(3)), "a task has not run");
        assert_eq!(end_check(&timeouts, 7), 1);
        assert!(timeouts.is_over(at(3)) && !timeouts.is_over(at(5)));
        assert!(!timeouts.is_pending());
    }

    #[test]
    fn a_look_that_takes_several_turns_is_for_those_due_when_it_began() {
        let timeouts = Timeouts::new();
        due(&timeouts);
        timeouts.begin_check(at(5));
        due(&timeouts);
        assert!(timeouts.is_looking() && timeouts.is_pending() && !timeouts.needs_check());
        assert!(!timeouts.has_work(), "the loop may rest");
        assert_eq!(end_check(&timeouts, 100), 0, "nothing was found yet");
        timeouts.end_look(behind(101));
        assert!(!timeouts.is_looking() && timeouts.has_work());
        assert_eq!(end_check(&timeouts, 100), 0, "a task has not run");
        assert_eq!(end_check(&timeouts, 101), 1);
        assert!(timeouts.is_over(at(4)) && !timeouts.is_over(at(5)));
        assert!(timeouts.needs_check());
    }

    #[test]
    fn many_that_end_together_wake_their_tasks_in_turns() {
        let timeouts = Timeouts::new();
        (0..WAKES_PER_TURN + 1).for_each(|_| due(&timeouts));
        look(&timeouts, at(5), 1);
        assert_eq!(end_check(&timeouts, 1), WAKES_PER_TURN);
        assert!(timeouts.is_pending() && !timeouts.needs_check());
        due(&timeouts);
        assert_eq!(end_check(&timeouts, 1), 1);
        assert!(timeouts.is_pending() && timeouts.needs_check());
        (0..WAKES_PER_TURN).for_each(|_| due(&timeouts));
        look(&timeouts, at(6), 2);
        end_check(&timeouts, 2);
        assert_eq!(timeouts.clear().len(), 1, "one had not been woken");
    }

    #[test]
    fn what_is_due_during_a_check_waits_for_the_next_look() {
        let timeouts = Timeouts::new();
        due(&timeouts);
        look(&timeouts, at(5), 1);
        due(&timeouts);
        assert!(!timeouts.needs_check());
        assert_eq!(end_check(&timeouts, 1), 1);
        assert!(timeouts.is_pending() && timeouts.needs_check());
        assert_eq!(timeouts.clear().len(), 1);
        assert!(!timeouts.is_pending());
    }
}
