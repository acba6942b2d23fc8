//! Polls beside those of receivers that have nothing left.
//!
//! They empty the ring of the link, so that the packets of other receivers are not lost there among those of a flood,
//! and the flood's are discarded by their own channel. Their share of the time is limited, since this is the work that
//! takes the processor from receivers under overload: to a small one for a receiver that still has packets, and to a
//! larger one while another waits.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use softclock_linux::clock::monotonic_ns;
use softclock_linux::link::Poller;

/// Decides when a receiver polls.
#[derive(Debug)]
pub(super) struct Pace {
    share_percent: u64,
    /// The least pause after polls that have found frames.
    least_pause_ns: u64,
    /// The pause after polls that have found nothing.
    idle_pause_ns: u64,
    next_ns: u64,
}

impl Pace {
    /// For a receiver with packets.
    pub(super) const fn of_work() -> Self {
        Self::new(WORK_SHARE_PERCENT, 0, WORK_IDLE_NS)
    }

    /// For receivers that wait while others are awake, on their behalf.
    pub(super) const fn of_waiting() -> Self {
        Self::new(WAIT_SHARE_PERCENT, LEAST_PAUSE_NS, WAIT_IDLE_NS)
    }

    const fn new(share_percent: u64, least_pause_ns: u64, idle_pause_ns: u64) -> Self {
        Self {
            share_percent,
            least_pause_ns,
            idle_pause_ns,
            next_ns: 0,
        }
    }

    /// Whether a poll is due, at this time.
    pub(super) const fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// The time until the next poll is due.
    pub(super) fn pause(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.next_ns.saturating_sub(now_ns))
    }

    /// Begins the pause, at this time.
    pub(super) fn restart(&mut self, now_ns: u64) {
        self.next_ns = now_ns + self.least_pause_ns;
    }

    /// Polls until the ring of the link is empty, or a quarter of it has been received: receivers that have packets
    /// then wait no longer. `poll` returns the number of frames.
    pub(super) fn drain(&mut self, mut poll: impl FnMut() -> usize) {
        let begun = monotonic_ns();
        let mut frames = 0;
        while frames < LINK_RING / 4 {
            let found = poll();
            frames += found;
            if found < Poller::MOST_FRAMES {
                break;
            }
        }
        self.polled(begun, monotonic_ns(), frames > 0);
    }

    /// Notes polls in this time, and whether they have found frames.
    pub(super) fn polled(&mut self, begun_ns: u64, ended_ns: u64, has_found: bool) {
        let pause = match has_found {
            true => (ended_ns - begun_ns) * (100 - self.share_percent) / self.share_percent,
            false => self.idle_pause_ns,
        };
        self.next_ns = ended_ns + pause.max(self.least_pause_ns);
    }
}

/// The load of a link, by the results of polls.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// The times of the last poll, and of the last that left frames in the ring of the link, in nanoseconds.
    polled_ns: AtomicU64,
    full_ns: AtomicU64,
}

impl Busy {
    /// The pause between polls while all receivers sleep and the link is busy: instead of interrupts, each of which
    /// would receive all that arrives until the ring is empty.
    pub(super) const PAUSE: Duration = Duration::from_micros(200);

    /// Notes a poll with this number of frames.
    pub(super) fn polled(&self, now_ns: u64, frames: usize) {
        self.polled_ns.store(now_ns, Relaxed);
        if frames >= Poller::MOST_FRAMES {
            self.full_ns.store(now_ns, Relaxed);
        }
    }

    /// Whether a poll has left frames in the ring within the last millisecond.
    pub(super) fn is_busy(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.full_ns.load(Relaxed)) < BUSY_NS
    }

    /// The time since the last poll.
    pub(super) fn idle(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.polled_ns.load(Relaxed)))
    }
}

/// The frames that the ring of veth holds.
const LINK_RING: usize = 256;

/// Longer than the intervals of bursts.
const BUSY_NS: u64 = 1_000_000;

/// The most of the processor's time for polls of a receiver with packets.
const WORK_SHARE_PERCENT: u64 = 5;

/// The most for polls on behalf of receivers that wait.
const WAIT_SHARE_PERCENT: u64 = 25;

/// Half of the interval of interrupts that network interfaces are set to.
const LEAST_PAUSE_NS: u64 = 100_000;

/// The pauses after polls that have found nothing. Shorter than the kernel's backup timer, which would receive frames
/// that only the next poll finds.
const WORK_IDLE_NS: u64 = 200_000;
const WAIT_IDLE_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_that_find_frames_take_their_share() {
        let mut pace = Pace::of_work();
        assert!(pace.is_due(0));
        pace.polled(1000, 2000, true);
        assert!(!pace.is_due(20_999) && pace.is_due(21_000));
        pace.polled(21_000, 22_000, false);
        assert!(!pace.is_due(200_000) && pace.is_due(222_000));
        let mut pace = Pace::of_waiting();
        pace.polled(0, 1000, true);
        assert_eq!(pace.pause(1000), Duration::from_micros(100));
        pace.polled(0, 100_000, true);
        assert_eq!(pace.pause(150_000), Duration::from_micros(250));
    }
}
