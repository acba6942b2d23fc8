//! The frames that a device had when a check of timeouts began: the driver takes them before a timeout is judged.

use std::cell::Cell;

use super::Driver;

/// The most turns that the driver needs to take the rest of these frames.
#[derive(Default)]
pub(super) struct Backlog(Cell<u32>);

impl Backlog {
    /// Begins with the frames that are in the device at this moment.
    pub(super) fn begin(&self) {
        self.0.set(MOST_TURNS);
    }

    /// Notes that the driver has had a turn: one that left nothing to do (`is_empty`), or another.
    pub(super) fn on_turn(&self, is_empty: bool) {
        self.0.set(match is_empty {
            true => 0,
            false => self.0.get().saturating_sub(1),
        });
    }

    /// Whether all of the frames are taken.
    pub(super) fn is_taken(&self) -> bool {
        self.0.get() == 0
    }
}

impl Driver {
    /// Begins to take the frames that are in the device at this moment, a batch a turn as always: the tasks that
    /// receive them run in between, so that their channels do not overflow. Other threads that receive do the same.
    pub(super) fn catch_up(&self) {
        self.ask_others();
        self.backlog.begin();
        self.wake();
    }

    /// Whether these frames are taken, so that the next look wakes the last of their receivers.
    pub(super) fn has_caught_up(&self) -> bool {
        self.is_gone.get() || self.have_others_looked() && self.backlog.is_taken()
    }
}

/// The most batches that the driver takes: 16384 frames. The buffer of an AF_PACKET socket holds fewer: the kernel
/// doubles the 4 MiB that are asked for, and charges 768 bytes for a short frame, which makes 10922 frames. A limit,
/// since a device under load is never empty.
const MOST_TURNS: u32 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_when_the_device_is_empty_or_must_have_given_them_all() {
        let backlog = Backlog::default();
        assert!(backlog.is_taken());
        backlog.begin();
        backlog.on_turn(false);
        assert!(!backlog.is_taken());
        backlog.on_turn(true);
        assert!(backlog.is_taken());
        backlog.begin();
        (1..MOST_TURNS).for_each(|_| backlog.on_turn(false));
        assert!(!backlog.is_taken());
        backlog.on_turn(false);
        assert!(backlog.is_taken(), "all that comes now came later");
        backlog.on_turn(false);
        assert!(backlog.is_taken());
    }
}
