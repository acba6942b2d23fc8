//! The tasks that have not ended, and which of them were aborted.

use std::mem;
use std::task::Waker;

use slab::Slab;

/// A task that is to be polled, with its id.
pub(crate) type Runnable = async_task::Runnable<TaskId>;

/// The id of a task within its runtime. It is never used again for another task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TaskId {
    index: usize,
    serial: u64,
}

/// The tasks of a runtime that have not ended.
#[derive(Default)]
pub(crate) struct ActiveTasks {
    entries: Slab<Entry>,
    /// Tasks spawned so far.
    spawned: u64,
    /// Entries of aborted tasks.
    aborted: usize,
}

struct Entry {
    serial: u64,
    /// Queues the task, so that the runtime can drop it on its own thread.
    waker: Waker,
    is_aborted: bool,
}

impl ActiveTasks {
    /// Returns the id of the next task, which must be [inserted](Self::insert) before another id is taken.
    pub(crate) fn next_id(&mut self) -> TaskId {
        self.spawned += 1;
        TaskId {
            index: self.entries.vacant_key(),
            serial: self.spawned,
        }
    }

    pub(crate) fn insert(&mut self, id: TaskId, waker: Waker) {
        let index = self.entries.insert(Entry {
            serial: id.serial,
            waker,
            is_aborted: false,
        });
        debug_assert_eq!(index, id.index);
    }

    /// Removes a task that has ended. The caller drops the waker after the borrow of the table has ended.
    #[must_use]
    pub(crate) fn remove(&mut self, id: TaskId) -> Option<Waker> {
        if !self.contains(id) {
            return None;
        }
        let entry = self.entries.remove(id.index);
        self.aborted -= usize::from(entry.is_aborted);
        Some(entry.waker)
    }

    /// Marks a task as aborted. Returns the waker that queues it, or `None` if it has ended or is marked.
    #[must_use]
    pub(crate) fn abort(&mut self, id: TaskId) -> Option<Waker> {
        let entry = self.entries.get_mut(id.index)?;
        if entry.serial != id.serial || mem::replace(&mut entry.is_aborted, true) {
            return None;
        }
        self.aborted += 1;
        Some(entry.waker.clone())
    }

    /// Returns whether a task was aborted and has not ended. Costs a comparison while no task is aborted.
    #[inline]
    pub(crate) fn is_aborted(&self, id: TaskId) -> bool {
        self.aborted > 0 && self.get(id).is_some_and(|entry| entry.is_aborted)
    }

    /// Returns whether a task has not ended.
    pub(crate) fn contains(&self, id: TaskId) -> bool {
        self.get(id).is_some()
    }

    fn get(&self, id: TaskId) -> Option<&Entry> {
        let entry = self.entries.get(id.index)?;
        (entry.serial == id.serial).then_some(entry)
    }

    /// Returns whether all tasks have ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the wakers of all tasks.
    pub(crate) fn wakers(&self) -> Vec<Waker> {
        let entries = self.entries.iter();
        entries.map(|(_, entry)| entry.waker.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_used_again() {
        let mut active = ActiveTasks::default();
        let first = active.next_id();
        active.insert(first, Waker::noop().clone());
        assert!(active.remove(first).is_some());
        let second = active.next_id();
        active.insert(second, Waker::noop().clone());
        assert_eq!(first.index, second.index);
        assert!(!active.contains(first) && active.contains(second));
        assert!(active.abort(first).is_none());
        assert!(active.remove(first).is_none());
        assert!(!active.is_aborted(second));
    }

    #[test]
    fn aborted_until_removed() {
        let mut active = ActiveTasks::default();
        let ids = [(); 2].map(|()| {
            let id = active.next_id();
            active.insert(id, Waker::noop().clone());
            id
        });
        assert!(active.abort(ids[0]).is_some());
        assert!(active.abort(ids[0]).is_none(), "once is enough");
        assert!(active.is_aborted(ids[0]) && !active.is_aborted(ids[1]));
        assert!(active.remove(ids[0]).is_some());
        assert_eq!(active.aborted, 0);
        assert!(active.abort(ids[1]).is_some());
        assert_eq!((active.wakers().len(), active.is_empty()), (1, false));
        assert!(active.remove(ids[1]).is_some());
        assert_eq!((active.aborted, active.is_empty()), (0, true));
    }
}
