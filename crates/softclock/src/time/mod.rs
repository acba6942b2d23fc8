//! Timers for tasks with microsecond precision. Each is a soft event that wakes its task.

mod interval;
mod sleep;
mod timeout;

pub use interval::{Interval, interval};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout};
