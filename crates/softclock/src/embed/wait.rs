//! Passes the limit of a loop's wait to the kernel: in milliseconds, or by a timer descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

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
/// It need not be read: its event only ends the wait. It costs a reading of the clock a wait, and a system call if the
/// wait ends at another time than the one before, or has no end of its own after one that had: below 1 us, and up to 10
/// us in a virtual machine.
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
    /// The time for which the timer is set.
    set: Option<Instant>,
}

impl WakeTimer {
    /// Creates a timer that ends no wait yet.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            timer: TimerFd::new()?,
            set: None,
        })
    }

    /// Sets the timer for a wait of at most this length, as [`LoopTimers::before_wait`](super::LoopTimers::before_wait)
    /// returns it. Returns the limit to pass to the wait itself: zero if it must not block, and otherwise `None`, since
    /// the timer ends it. The wait may end sooner, by up to 1/16 of its length, and after a year at the latest.
    pub fn limit(&mut self, wait: Option<Duration>) -> Option<Duration> {
        match wait {
            // Waits that follow each other often end for the same event.
            Some(time) if !time.is_zero() => {
                let (now, time) = (Instant::now(), time.min(LONGEST));
                let is_kept = self.set.is_some_and(|set| is_in_time(set, now, time));
                if !is_kept {
                    self.timer.set(time);
                    self.set = Some(now + time);
                }
            }
            // Otherwise an earlier expiration would end all following waits.
            _ if self.set.take().is_some() => self.timer.disarm(),
            _ => {}
        }
        wait.filter(Duration::is_zero)
    }
}

/// Returns whether a timer that is set for `set` serves for a wait of `time` from `now` on: it ends the wait at most
/// [`LATE`] later than it should end, and not much sooner.
fn is_in_time(set: Instant, now: Instant, time: Duration) -> bool {
    let rest = set.saturating_duration_since(now);
    !rest.is_zero() && rest <= time + LATE && rest >= time - time / 16
}

impl AsFd for WakeTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The difference of two readings of the clock that are taken together. Wake-ups are later by more.
const LATE: Duration = Duration::from_micros(1);

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Waits as a loop would, without a limit of its own.
    fn wait(wake: &WakeTimer) {
        let mut descriptors = [PollFd::new(wake, PollFlags::IN)];
        let patience = rustix::time::Timespec {
            tv_sec: 30,
            tv_nsec: 0,
        };
        let found = poll(&mut descriptors, Some(&patience)).unwrap();
        assert_eq!(found, 1, "the timer has not ended the wait");
    }

    #[test]
    fn a_timer_for_the_same_end_is_kept() {
        let now = Instant::now();
        let set = now + 16 * MS;
        assert!(is_in_time(set, now, 16 * MS));
        assert!(is_in_time(set, now + 8 * MS, 8 * MS));
        assert!(is_in_time(set, now, 17 * MS), "a little sooner");
        assert!(!is_in_time(set, now, 20 * MS), "much sooner");
        assert!(!is_in_time(set, now, 15 * MS), "later");
        assert!(!is_in_time(set, set, 16 * MS), "expired");
    }

    #[test]
    fn a_wait_ends_at_its_own_time() {
        let mut wake = WakeTimer::new().unwrap();
        for time in [20 * MS, 2 * MS, 10 * MS, 10 * MS] {
            let began = Instant::now();
            assert_eq!(wake.limit(Some(time)), None);
            // Loops that are woken earlier ask again.
            assert_eq!(wake.limit(Some(time)), None);
            wait(&wake);
            let waited = began.elapsed();
            assert!(waited >= time - time / 16, "{waited:?} of {time:?}");
        }
    }

    #[test]
    fn a_wait_of_any_length_has_a_limit() {
        let mut wake = WakeTimer::new().unwrap();
        for time in [MS, Duration::MAX, Duration::MAX, MS] {
            assert_eq!(wake.limit(Some(time)), None);
        }
        wait(&wake);
    }

    #[test]
    fn an_expired_timer_ends_no_other_wait() {
        let mut wake = WakeTimer::new().unwrap();
        wake.limit(Some(MS));
        wait(&wake);
        assert_eq!(wake.limit(None), None);
        let zero = rustix::time::Timespec::default();
        let mut descriptors = [PollFd::new(&wake, PollFlags::IN)];
        assert_eq!(poll(&mut descriptors, Some(&zero)).unwrap(), 0);
        assert_eq!(wake.limit(Some(Duration::ZERO)), Some(Duration::ZERO));
    }
}
