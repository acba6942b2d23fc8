//! Programs that only sleep, each with another runtime, for comparison.
//!
//! A sleeper is a separate process, so that all threads that a runtime keeps for its timers count. Its arguments are an
//! [`Order`], its load arrives on standard input ([`load`]), and it prints a [`Finding`]. Sleepers in Rust are hidden
//! subcommands of this program; those in C and Go are in `peers/`.
//!
//! - `tally`: the counts of a sleeper while it runs.
//! - [`finding`]: its output, and the parser of it.
//! - [`load`]: bursts of work between the sleeps.
//! - `softclock`, `tokio`, `async_io`, `uring`: the sleepers in Rust.

mod async_io;
pub mod finding;
pub mod load;
mod softclock;
pub(in crate::lab) mod tally;
mod tokio;
mod uring;

use std::future::Future;
use std::io;
use std::time::{Duration, Instant};

use crate::random::Random;
pub use finding::Finding;

/// The number of timers, their lengths and the duration. Each timer sleeps again and again, each time for a random time
/// between the two lengths.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Order {
    /// Number of timers; 0 measures the cost of the load alone
    pub timers: u32,
    /// Shortest sleep in microseconds
    pub shortest_us: u64,
    /// Longest sleep in microseconds
    pub longest_us: u64,
    /// Time before the measurement, in milliseconds
    pub warm_up_ms: u64,
    /// Length of the measurement, in milliseconds
    pub milliseconds: u64,
}

impl Order {
    /// Returns the order as arguments of a program.
    pub fn arguments(&self) -> [String; 5] {
        [
            u64::from(self.timers),
            self.shortest_us,
            self.longest_us,
            self.warm_up_ms,
            self.milliseconds,
        ]
        .map(|number| number.to_string())
    }

    /// Returns the lengths of a timer's sleeps.
    pub(in crate::lab) fn lengths(&self, timer: u32) -> Lengths {
        Lengths {
            random: Random(u64::from(timer) + 1),
            order: *self,
        }
    }
}

/// An endless sequence of lengths of sleeps.
pub(in crate::lab) struct Lengths {
    random: Random,
    order: Order,
}

impl Lengths {
    fn next(&mut self) -> Duration {
        let Order {
            shortest_us,
            longest_us,
            ..
        } = self.order;
        let span_ns = (longest_us - shortest_us) * 1000 + 1;
        Duration::from_nanos(shortest_us * 1000 + self.random.below(span_ns))
    }
}

/// The sleepers in Rust, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    /// softclock with its defaults.
    Softclock,
    /// softclock without spinning.
    SoftclockNoSpin,
    /// tokio's timers on its current-thread runtime.
    Tokio,
    /// A timerfd per timer, on tokio.
    TokioTimerfd,
    /// async-io's timers, on async-executor.
    AsyncIo,
    /// Timeouts of an io_uring.
    IoUring,
}

/// Sleeps as ordered and prints the finding.
///
/// # Errors
/// The runtime cannot be created.
pub fn sleep(kind: Kind, order: Order) -> io::Result<()> {
    match kind {
        Kind::Softclock => softclock::sleep_as(order, None),
        Kind::SoftclockNoSpin => softclock::sleep_as(order, Some(0.0)),
        Kind::Tokio => tokio::sleep_as(order),
        Kind::TokioTimerfd => tokio::sleep_by_timerfd(order),
        Kind::AsyncIo => async_io::sleep_as(order),
        Kind::IoUring => uring::sleep_as(order),
    }?;
    print!("{}", tally::finding());
    Ok(())
}

/// Runs one timer's task.
pub(in crate::lab) async fn sleep_forever<F: Future>(
    mut lengths: Lengths,
    sleep: impl Fn(Duration) -> F,
) {
    loop {
        let length = lengths.next();
        let due = Instant::now() + length;
        sleep(length).await;
        tally::count(due);
    }
}

/// Runs the main task: the warm-up, then the measurement.
pub(in crate::lab) async fn measure<F: Future>(order: Order, sleep: impl Fn(Duration) -> F) {
    sleep(Duration::from_millis(order.warm_up_ms)).await;
    tally::begin();
    sleep(Duration::from_millis(order.milliseconds)).await;
    tally::end();
}
