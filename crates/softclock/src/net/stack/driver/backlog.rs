//! The frames that had arrived in the device at some time, which the driver takes before a timeout is judged.

use std::cell::Cell;

use super::Driver;

/// What is left of these frames: the driver's turns after which all of them are taken for sure.
#[derive(Default)]
pub(super) struct Backlog(Cell<u32>);

impl Backlog {
    /// Begins with the frames that the device has now.
    fn begin(&self) {
        self.0.set(MOST_TURNS);
    }

    /// Notes that the driver has had a turn, in which the device was empty, or not.
    pub(super) fn on_turn(&self, is_empty: bool) {
        self.0.set(match is_empty {
            true => 0,
            false => self.0.get().saturating_sub(1),
        });
    }

    /// Whether all of the frames are taken.
    fn is_taken(&self) -> bool {
        self.0.get() == 0
    }
}

impl Driver {
    /// Begins to take the frames that the device has now, a batch a turn as always: the tasks that have got some run in
    /// between, so that their channels do not overflow.
    pub(super) fn catch_up(&self) {
        self.backlog.begin();
        self.wake();
    }

    /// Whether these frames are taken, and their receivers are known.
    pub(super) fn has_caught_up(&self) -> bool {
        self.is_gone.get() || self.backlog.is_taken()
    }
}

/// The batches of frames that a device holds at most: more than the 4 MiB of an AF_PACKET socket, where the shortest
/// frame takes more than 512 bytes.
const MOST_TURNS: u32 = 256;

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
