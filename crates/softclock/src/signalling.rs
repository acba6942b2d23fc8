//! How a thread learns that a device, or the kernel, has work: policies, and reports with their looks, interrupts and
//! waits.
//!
//! The policies and their state machines are those of [`softclock_core::signalling`]. A runtime takes its policy by
//! [`Builder::signalling`](crate::Builder::signalling), and a stack in its
//! [options](crate::net::stack::StackOptions::signalling).
//!
//! # Example
//! ```
//! use std::time::Duration;
//!
//! use softclock::Runtime;
//! use softclock::signalling::Policy;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Asks the kernel for events at soft events, at an interval that finds about five at a time.
//! let policy: Policy = "soft-poll=5".parse()?;
//! let runtime = Runtime::builder().signalling(policy).build()?;
//! runtime.block_on(async { softclock::sleep(Duration::from_millis(1)).await });
//! let report = runtime.statistics().signalling.ok_or("no report")?;
//! assert_eq!(report.policy, policy);
//! println!("{} looks found {} events", report.counts.looks, report.counts.packets);
//! # Ok(())
//! # }
//! ```

pub use softclock_core::signalling::*;

/// A report on how the threads of a stack have learned of frames, or those of runtimes of the kernel's events. For a
/// runtime, the counted packets are events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SignallingReport {
    /// The policy of each thread.
    pub policy: Policy,
    /// The threads that poll softly at present: at soft events, with an interval that adapts.
    pub soft_polling: u32,
    /// The looks, interrupts and waits so far, and times, summed over the threads.
    pub counts: SignallingCounts,
}

impl SignallingReport {
    pub(crate) fn of(signalling: &Signalling, now: softclock_core::Instant) -> Self {
        Self {
            policy: signalling.policy(),
            soft_polling: u32::from(signalling.is_soft_polling()),
            counts: signalling.counts(now),
        }
    }

    /// Adds the threads of another report, with the same policy.
    pub fn add(&mut self, more: &Self) {
        self.soft_polling += more.soft_polling;
        self.counts.add(&more.counts);
    }
}
