//! Woken tasks, in the order in which they are to run.

use std::collections::VecDeque;

/// Those whose time has come run before those that events or other tasks woke: a timer that fired on time would else
/// wait behind all work there is. Within each kind the first woken is the first to run, and neither kind starves the
/// other.
#[derive(Debug)]
pub(crate) struct Ready<T> {
    due: VecDeque<T>,
    others: VecDeque<T>,
    /// Due ones taken since the last other.
    in_a_row: u32,
    /// Others taken since the start.
    taken: u64,
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

    /// Takes the task that is to run next.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let turn_of_due = self.in_a_row < DUE_IN_A_ROW || self.others.is_empty();
        match self.due.pop_front_if(|_| turn_of_due) {
            Some(task) => {
                self.in_a_row += 1;
                Some(task)
            }
            None => {
                self.in_a_row = 0;
                self.taken += 1;
                self.others.pop_front()
            }
        }
    }

    /// Returns how many tasks that no timer woke were taken since the start.
    pub(crate) fn position(&self) -> u64 {
        self.taken
    }

    /// Returns the [`position`](Self::position) at which all tasks that wait now will have been taken.
    pub(crate) fn end(&self) -> u64 {
        self.taken + self.others.len() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len() + self.others.len()
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
            in_a_row: 0,
            taken: 0,
        }
    }
}

/// After so many due tasks one other runs.
const DUE_IN_A_ROW: u32 = 16;

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
}
