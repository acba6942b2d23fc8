//! Passes the limit of a loop's wait to the kernel: in milliseconds, or by a timer descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use softclock_linux::readiness::TimerFd;

/// Converts the limit of a wait to the argument of epoll_wait(2) and poll(2): milliseconds, rounded up so that the wait
/// does not end early, or -1 for no limit. At most 24 days.
///
/// ```
/// use softclock::embed::timeout_ms;
/// use std::time::Duration;
///
/// assert_eq!(timeout_ms(Some(Duration::ZERO)), 0);
/// assert_eq!(timeout_ms(Some(Duration::from_micros(1_001))), 2);
/// assert_eq!(timeout_ms(None), -1);
/// ```
pub fn timeout_ms(limit: Option<Duration>) -> i32 {
    let Some(limit) = limit else { return -1 };
    let ms = limit.as_nanos().div_ceil(1_000_000);
    i32::try_from(ms).unwrap_or(i32::MAX)
}

/// A descriptor that ends the waits of a loop on time, for a loop with timeouts that are too coarse or out of reach.
///
/// Register it with the loop for reading, level- or edge-triggered. Before each wait, [`limit`](Self::limit) sets it.
/// It need not be read: its event only ends the wait. It costs a system call a wait, under 1 us.
///
/// # Example
/// ```
/// use rustix::event::{PollFd, PollFlags, poll};
/// use softclock::embed::{LoopTimers, WakeTimer};
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// let mut timers = LoopTimers::new();
/// let mut wake = WakeTimer::new()?;
/// timers.schedule_after(Duration::from_micros(300), "tick");
/// let due = loop {
///     let limit = wake.limit(timers.before_wait());
///     let limit = limit.map(|limit| limit.try_into().expect("zero fits"));
///     let mut descriptors = [PollFd::new(&wake, PollFlags::IN)]; // beside those of the loop
///     poll(&mut descriptors, limit.as_ref())?;
///     timers.after_wait(false);
///     if let Some(due) = timers.next_overdue() {
///         break due;
///     }
/// };
/// assert_eq!(due.value, "tick");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct WakeTimer {
    timer: TimerFd,
    is_set: bool,
}

impl WakeTimer {
    /// Creates a timer that ends no wait yet.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            timer: TimerFd::new()?,
            is_set: false,
        })
    }

    /// Sets the timer for a wait of at most this length, as
    /// [`LoopTimers::before_wait`](super::LoopTimers::before_wait) returns it. Returns the limit to pass to the wait
    /// itself: zero if it must not block, and otherwise `None`, since the timer ends it.
    pub fn limit(&mut self, wait: Option<Duration>) -> Option<Duration> {
        let time = wait.filter(|time| !time.is_zero());
        match time {
            Some(time) => self.timer.set(time),
            // Otherwise an earlier expiration would end all following waits.
            None if self.is_set => self.timer.disarm(),
            None => {}
        }
        self.is_set = time.is_some();
        wait.filter(Duration::is_zero)
    }
}

impl AsFd for WakeTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
