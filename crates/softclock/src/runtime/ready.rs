//! The queue of woken tasks.

use std::collections::VecDeque;

/// Woken tasks in the order in which they will run.
///
/// Tasks whose time has come run before those woken by events or by other tasks; otherwise a timer that fired on time
/// would wait behind all other work. Tasks that gave way ([`GiveWay`](crate::GiveWay)) run after both. Each kind is
/// first in, first out, and no kind starves another.
#[derive(Debug)]
pub(crate) struct Ready<T> {
    due: VecDeque<T>,
    others: VecDeque<T>,
    late: VecDeque<T>,
    /// Due tasks taken since the last other task.
    in_a_row: u32,
    taken: Position,
    /// Tasks of both kinds taken since the last one that gave way.
    since_late: u32,
}

/// Numbers of tasks taken since the start; those that gave way and were not [hurried](Ready::hurry) are not counted.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Position {
    pub(super) due: u64,
    pub(super) others: u64,
}

impl Position {
    /// Returns whether all tasks before `end` have been taken.
    pub(crate) fn has_reached(self, end: Self) -> bool {
        self.due >= end.due && self.others >= end.others
    }
}

impl<T> Ready<T> {
    /// Adds a task that a timer woke.
    pub(crate) fn push_due(&mut self, task: T) {
        self.due.push_back(task);
    }

    /// Adds a task that something else woke.
    pub(crate) fn push(&mut self, task: T) {
        self.others.push_back(task);
    }

    /// Adds a task that gives way.
    pub(crate) fn push_late(&mut self, task: T) {
        self.late.push_back(task);
    }

    /// Moves the tasks that gave way to the others.
    pub(crate) fn hurry(&mut self) {
        self.others.append(&mut self.late);
    }

    /// Returns whether the next task gave way.
    pub(crate) fn is_late_next(&self) -> bool {
        let has_waited = self.since_late >= TASKS_PER_LATE;
        !self.late.is_empty() && (has_waited || self.due.is_empty() && self.others.is_empty())
    }

    /// Takes the next task.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.is_late_next() {
            self.since_late = 0;
            return self.late.pop_front();
        }
        self.since_late += 1;
        // Due tasks come first, but one other runs after every few of them.
        let turn_of_due = self.in_a_row < DUE_IN_A_ROW || self.others.is_empty();
        let due = if turn_of_due {
            self.due.pop_front()
        } else {
            None
        };
        match due {
            Some(task) => {
                self.in_a_row += 1;
                self.taken.due += 1;
                Some(task)
            }
            None => {
                self.in_a_row = 0;
                self.taken.others += 1;
                self.others.pop_front()
            }
        }
    }

    /// Returns the position before the next task.
    pub(crate) fn position(&self) -> Position {
        self.taken
    }

    /// Returns the position behind all tasks that are queued now, except for those that gave way.
    pub(crate) fn end(&self) -> Position {
        Position {
            due: self.taken.due + self.due.len() as u64,
            others: self.taken.others + self.others.len() as u64,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len() + self.others.len() + self.late.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Default for Ready<T> {
    fn default() -> Self {
        Self {
            due: VecDeque::new(),
            others: VecDeque::new(),
            late: VecDeque::new(),
            in_a_row: 0,
            taken: Position::default(),
            since_late: 0,
        }
    }
}

/// Due tasks in a row, after which one other task runs.
const DUE_IN_A_ROW: u32 = 16;

/// Tasks in a row, after which one that gave way runs.
const TASKS_PER_LATE: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_tasks_come_first_but_not_for_ever() {
        let mut ready = Ready::default();
        (0..3).for_each(|task| ready.push(task));
        (100..140).for_each(|task| ready.push_due(task));
        let order: Vec<_> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!(order.len(), 43);
        assert_eq!(order[..16], (100..116).collect::<Vec<_>>());
        assert_eq!(order[16], 0);
        assert_eq!(order[33], 1);
        assert_eq!(order[42], 2);
    }

    #[test]
    fn tasks_that_gave_way_come_last_but_come() {
        let mut ready = Ready::default();
        [1000, 1001]
            .into_iter()
            .for_each(|task| ready.push_late(task));
        (0..100).for_each(|task| ready.push(task));
        assert!(!ready.is_late_next());
        let order: Vec<_> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!(order[TASKS_PER_LATE as usize], 1000);
        assert_eq!(order[101], 1001);
        ready.push_late(7);
        ready.hurry();
        assert!(!ready.is_late_next());
        let end = ready.end();
        assert!(!ready.position().has_reached(end));
        assert_eq!(ready.pop(), Some(7));
        assert!(ready.position().has_reached(end));
    }

    #[test]
    fn the_end_is_behind_the_due_tasks_and_the_others() {
        let mut ready = Ready::default();
        (0..99).for_each(|task| ready.push_due(task));
        ready.push(99);
        let end = ready.end();
        (100..200).for_each(|task| ready.push_due(task));
        let mut before = Vec::new();
        while !ready.position().has_reached(end) {
            before.extend(ready.pop());
        }
        before.sort_unstable();
        assert_eq!(before, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn tasks_that_gave_way_come_amid_due_ones() {
        let mut ready = Ready::default();
        ready.push_late(7);
        let order = (100..1_000).map(|task| {
            ready.push_due(task);
            ready.pop()
        });
        assert!(order.into_iter().any(|task| task == Some(7)));
    }
}
