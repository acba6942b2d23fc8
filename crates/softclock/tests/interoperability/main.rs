//! Other crates on a softclock runtime: each line of the first table of docs/interoperability.md has its test here.

mod channels;
mod limits;
mod selecting;
mod shutdown;

use std::time::Duration;

use softclock::Runtime;

const MS: Duration = Duration::from_millis(1);

/// Longer than any of these tests takes.
const LIMIT: Duration = Duration::from_secs(30);

fn run<T>(future: impl Future<Output = T>) -> T {
    Runtime::new().unwrap().block_on(future)
}
