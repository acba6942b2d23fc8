//! Timers for tasks, to the microsecond: each is a soft event that wakes the task.

mod interval;
mod sleep;
mod timeout;

pub use interval::{Interval, interval};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout};
