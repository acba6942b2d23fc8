//! Programs that only sleep, each by another runtime, so that they can be compared.
//!
//! A sleeper is a process of its own: whatever threads a runtime keeps for its timers count. It is told what to do by
//! its arguments (an [`Order`]), gets its load through standard input ([`load`]), and prints what it found (a
//! [`Finding`]). Those in Rust are this program itself with a hidden subcommand; those in C and Go are in `peers/`.
//!
//! - `tally`: what a sleeper counts while it runs.
//! - [`finding`]: what it prints, and how that is read.
//! - [`load`]: bursts of work between the sleeps.
//! - `softclock`, `tokio`, `async_io`, `uring`: the sleepers in Rust.

mod async_io;
pub mod finding;
pub mod load;
mod softclock;
mod tally;
mod tokio;
mod uring;

use std::future::Future;
use std::io;
use std::time::{Duration, Instant};

use crate::random::Random;
pub use finding::Finding;

/// How many timers, of which lengths, for how long. Each sleeps a time between the two lengths anew as soon as it has
/// slept.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Order {
    /// How many timers; with none the sleeper measures what the load alone costs.
    pub timers: u32,
    /// The shortest sleep, in microseconds.
    pub shortest_us: u64,
    /// The longest.
    pub longest_us: u64,
    /// How long not to count, in milliseconds.
    pub warm_up_ms: u64,
    /// How long to count then.
    pub milliseconds: u64,
}

impl Order {
    /// The same as arguments of a program.
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

    /// The sleeps of one timer.
    fn lengths(&self, timer: u32) -> Lengths {
        Lengths {
            random: Random(u64::from(timer) + 1),
            order: *self,
        }
    }
}

/// One sleep after the other, without end.
struct Lengths {
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
    /// softclock, with its settings as they are.
    Softclock,
    /// softclock that does not spin.
    SoftclockNoSpin,
    /// tokio's timers, of one thread.
    Tokio,
    /// A timerfd each, on tokio.
    TokioTimerfd,
    /// async-io's timers, on async-executor.
    AsyncIo,
    /// Timeouts of an io_uring.
    IoUring,
}

/// Sleeps as ordered, prints the finding and ends the process.
///
/// # Errors
/// When a runtime cannot be made.
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

/// One timer's task.
async fn sleep_forever<F: Future>(mut lengths: Lengths, sleep: impl Fn(Duration) -> F) {
    loop {
        let length = lengths.next();
        let due = Instant::now() + length;
        sleep(length).await;
        tally::count(due);
    }
}

/// The main task: counts from the end of the warm-up on.
async fn measure<F: Future>(order: Order, sleep: impl Fn(Duration) -> F) {
    sleep(Duration::from_millis(order.warm_up_ms)).await;
    tally::begin();
    sleep(Duration::from_millis(order.milliseconds)).await;
    tally::end();
}
