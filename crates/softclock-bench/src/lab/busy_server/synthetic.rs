//! The synthetic handler of *Soft Timers* (section 5.1), so long after it fired before, by one means or another.

use std::time::Duration;

use softclock_linux::alarm::SyntheticHandler;

use super::timerfd::Again;
use super::toggles::{Signal, SignalHandler, Soft, Spacing, Timerfd, Toggle};

/// As a soft event, so many microseconds after it fired.
pub fn soft(us: u64) -> Box<dyn Toggle> {
    Box::new(Soft::new(Spacing::Since(us), || HANDLER.touch()))
}

/// In the signal handler of a POSIX timer, so many microseconds after the signal before was handled.
pub fn signal(us: u64) -> Box<dyn Toggle> {
    let handler = SignalHandler {
        handler: &HANDLER,
        fires: || HANDLER.fires(),
    };
    Box::new(Signal::new(after(us), handler))
}

/// In a task that reads a timer descriptor, so many microseconds after it was read.
pub fn timerfd(us: u64) -> Box<dyn Toggle> {
    Box::new(Timerfd::new(after(us), || HANDLER.touch()))
}

const fn after(us: u64) -> Again {
    Again::After(Duration::from_micros(us))
}

static HANDLER: SyntheticHandler = SyntheticHandler::new();
