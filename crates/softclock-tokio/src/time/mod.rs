//! Timers for tasks.
//!
//! - `sleep`: waits until a point in time.
//! - `interval`: ticks at a fixed period.

mod interval;
mod sleep;

pub use interval::{Interval, interval};
pub use sleep::{Sleep, sleep, sleep_until};
