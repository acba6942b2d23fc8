//! Tasks, timers, soft events and the mailbox of a runtime.

mod joins;
mod outer_loop;
mod outside;
mod remotes;
mod soft_events;
mod starvation;
mod survival;
mod tasks;
mod timers;

use std::time::Duration;

use softclock::Runtime;

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

/// Longer than any of these tests takes.
const LIMIT: Duration = Duration::from_secs(30);

fn run<T>(future: impl Future<Output = T>) -> T {
    Runtime::new().unwrap().block_on(future)
}
