//! The synthetic handler of *Soft Timers* (section 5.1), called a fixed time after its last call.

use std::time::Duration;

use softclock_linux::alarm::SyntheticHandler;

use super::timerfd::Again;
use super::toggles::{Signal, SignalHandler, Soft, Spacing, Timerfd, Toggle};

/// Calls the handler in a soft event, `us` microseconds after it last fired.
pub fn soft(us: u64) -> Box<dyn Toggle> {
    Box::new(Soft::new(Spacing::Since(us), || HANDLER.touch()))
}

/// Calls the handler in a POSIX timer's signal handler, `us` microseconds after the last signal was handled.
pub fn signal(us: u64) -> Box<dyn Toggle> {
    let handler = SignalHandler {
        handler: &HANDLER,
        fires: || HANDLER.fires(),
    };
    Box::new(Signal::new(after(us), handler))
}

/// Calls the handler in a task that reads a timer descriptor, `us` microseconds after the last read.
pub fn timerfd(us: u64) -> Box<dyn Toggle> {
    Box::new(Timerfd::new(after(us), || HANDLER.touch()))
}

const fn after(us: u64) -> Again {
    Again::After(Duration::from_micros(us))
}

static HANDLER: SyntheticHandler = SyntheticHandler::new();
