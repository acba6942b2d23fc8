//! Timers for tasks with microsecond precision. Each is a soft event that wakes its task.
//!
//! [`to_std`] and [`from_std`] convert between [`Instant`](crate::Instant) and the standard library's.

mod interval;
mod sleep;
mod std_instant;
mod timeout;

pub use interval::{Interval, MissedTickBehavior, interval};
pub use sleep::{Sleep, sleep, sleep_until};
pub use std_instant::{from_std, to_std};
pub use timeout::{Elapsed, Timeout, timeout};
