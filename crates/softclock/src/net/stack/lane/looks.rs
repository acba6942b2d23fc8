//! Looks: before a thread judges its timeouts, the other threads that receive from the interface read their devices,
//! and hand over the frames of other threads.

use std::sync::Arc;

use super::{Lane, Lanes};

/// The looks that a thread makes for others, and its wait for those of others.
#[derive(Clone, Default)]
pub(super) struct Looks {
    /// Whether the thread receives from the interface, or has done so.
    pub(super) receives: bool,
    /// The last look that it has made.
    made: u32,
    /// Whether another thread has waited in vain for its next look.
    is_late: bool,
    /// Whether it waits for a look of others.
    waits: bool,
}

impl Looks {
    /// Whether others have to wait for this look: the thread has not made it, and has not kept others waiting for too
    /// long already.
    const fn is_awaited(&self, look: u32) -> bool {
        let ahead = self.made.wrapping_sub(look).cast_signed();
        self.receives && ahead < 0 && !self.is_late
    }
}

impl Lanes {
    /// Begins a thread's wait for a look of the others that receive from the interface; returns these.
    pub(in super::super) fn begin_wait(&mut self, thread: u32) -> Vec<Arc<Lane>> {
        let receivers = self.with(|number, looks| number != thread && looks.receives);
        self.looks[thread as usize].waits = !receivers.is_empty();
        receivers
    }

    /// Whether a thread's wait for a look has ended: all others that receive have made the look, or its time `is_over`.
    /// Those that have not made it by then are not waited for again until they have made a later one.
    pub(in super::super) fn has_waited(&mut self, thread: u32, look: u32, is_over: bool) -> bool {
        let missing = self.with(|number, looks| number != thread && looks.is_awaited(look));
        if !missing.is_empty() && !is_over {
            return false;
        }
        for lane in missing {
            self.looks[lane.number as usize].is_late = true;
        }
        self.looks[thread as usize].waits = false;
        true
    }

    /// Notes that a thread has made a look; returns the threads that wait for one.
    pub(in super::super) fn on_look(&mut self, thread: u32, look: u32) -> Vec<Arc<Lane>> {
        let looks = &mut self.looks[thread as usize];
        looks.made = look;
        looks.is_late = false;
        self.with(|_, looks| looks.waits)
    }

    /// The threads that are there and for which `f` holds.
    fn with(&self, f: impl Fn(u32, &Looks) -> bool) -> Vec<Arc<Lane>> {
        let present = self.present();
        let with = present.filter(|lane| f(lane.number, &self.looks[lane.number as usize]));
        with.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lanes of threads, of which the first and this one receive from the interface.
    fn lanes(threads: u32, receiver: u32) -> Lanes {
        let mut lanes = Lanes::new(threads);
        (1..threads).for_each(|_| drop(lanes.add()));
        lanes.looks[receiver as usize].receives = true;
        lanes
    }

    fn numbers(lanes: &[Arc<Lane>]) -> Vec<u32> {
        lanes.iter().map(|lane| lane.number).collect()
    }

    #[test]
    fn only_other_threads_that_receive_are_asked() {
        let mut lanes = lanes(4, 2);
        assert_eq!(numbers(&lanes.begin_wait(1)), [0, 2]);
        assert_eq!(numbers(&lanes.begin_wait(2)), [0]);
        assert_eq!(numbers(&lanes.begin_wait(0)), [2]);
        assert!(self::lanes(4, 0).begin_wait(0).is_empty());
    }

    #[test]
    fn a_wait_ends_when_all_others_have_looked() {
        let mut lanes = lanes(3, 2);
        lanes.begin_wait(1);
        assert_eq!(numbers(&lanes.on_look(0, 6)), [1]);
        assert!(!lanes.has_waited(1, 7, false));
        assert_eq!(numbers(&lanes.on_look(0, 7)), [1]);
        assert!(!lanes.has_waited(1, 7, false));
        assert_eq!(numbers(&lanes.on_look(2, 8)), [1]);
        assert!(lanes.has_waited(1, 7, false));
        assert!(lanes.on_look(0, 8).is_empty(), "none waits");
    }

    #[test]
    fn a_thread_that_has_ended_is_not_waited_for() {
        let mut lanes = lanes(3, 2);
        lanes.begin_wait(1);
        lanes.on_look(0, 1);
        assert!(!lanes.has_waited(1, 1, false));
        let ended = lanes.of(2).unwrap().clone();
        lanes.remove(&ended);
        assert!(lanes.has_waited(1, 1, false));
        lanes.add();
        assert_eq!(numbers(&lanes.begin_wait(1)), [0], "it has no queue yet");
    }

    #[test]
    fn a_thread_that_is_late_is_waited_for_once() {
        let mut lanes = lanes(2, 0);
        lanes.begin_wait(1);
        assert!(!lanes.has_waited(1, 1, false));
        assert!(lanes.has_waited(1, 1, true));
        lanes.begin_wait(1);
        assert!(lanes.has_waited(1, 2, false), "it is late");
        lanes.on_look(0, 2);
        lanes.begin_wait(1);
        assert!(!lanes.has_waited(1, 3, false));
    }

    #[test]
    fn numbers_of_looks_wrap() {
        let mut lanes = lanes(2, 0);
        lanes.on_look(0, u32::MAX);
        assert!(lanes.has_waited(1, u32::MAX, false));
        assert!(!lanes.has_waited(1, 0, false));
        lanes.on_look(0, 0);
        assert!(lanes.has_waited(1, 0, false));
    }
}
