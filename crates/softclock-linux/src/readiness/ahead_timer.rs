//! A timer for the end of the wait after the next one, so that a wait need not program the processor's timer.

use std::io;
use std::time::Duration;

use softclock_core::Instant;
use softclock_core::rhythm::Rhythm;

use super::TimerFd;
use crate::clock::monotonic_ns;

/// Keeps the processor's timer programmed for a thread whose waits end at regular distances.
///
/// The kernel programs the processor's timer for its earliest pending timer only. A thread that sends at regular
/// distances waits for one departure at a time, so the processor's timer is programmed twice for each: by the
/// interrupt that ends the wait, for another timer that is pending, and by the next wait. In a virtual machine each
/// takes a call of the hypervisor, up to 9 us. With a timer that is pending for the wait after the next one, the
/// interrupt programs that time, and the next wait finds it. The timer ends no wait: a wrong prediction costs an
/// interrupt.
///
/// There is none where programming takes less than 2 us, as without a hypervisor.
#[derive(Debug)]
pub struct AheadTimer {
    rhythm: Rhythm,
    /// Two timers, because one is pending while the other is set.
    timers: [TimerFd; 2],
}

impl AheadTimer {
    /// Creates a timer, unless programming the processor's timer is fast, which this measures in at most some 200 us.
    ///
    /// # Errors
    /// Returns EMFILE or ENFILE if descriptors have run out: it has two.
    pub fn new() -> io::Result<Option<Self>> {
        let timers = [TimerFd::new()?, TimerFd::new()?];
        Ok(is_programming_slow(&timers[0]).then(|| Self {
            rhythm: Rhythm::default(),
            timers,
        }))
    }

    /// Prepares for a wait from `now` until `end`, and for the one after it. Returns whether that has taken a system
    /// call, as it does if the waits are regular.
    pub fn before_wait(&mut self, now: Instant, end: Instant) -> bool {
        let Some(next) = self.rhythm.on_wait(end) else {
            return false;
        };
        self.set(next.since(now).saturating_sub(EARLY));
        true
    }

    fn set(&mut self, time: Duration) {
        // The other one is pending for the wait that begins.
        self.timers.swap(0, 1);
        self.timers[0].set(time);
    }
}

/// Whether programming the processor's timer takes 2 us or more.
fn is_programming_slow(timer: &TimerFd) -> bool {
    let mut times = [(); TRIES].map(|()| {
        let begun_ns = monotonic_ns();
        timer.set(NEAR);
        let time_ns = monotonic_ns() - begun_ns;
        timer.disarm();
        time_ns
    });
    times.sort_unstable();
    times[TRIES / 2] >= SLOW_NS
}

/// The time by which the timer precedes the predicted end: ends vary by a few microseconds with the lateness that a
/// thread allows for, and the timer is of use only if it is not later. Where programming is slow, the interrupt comes
/// later than that, so one interrupt serves both.
const EARLY: Duration = Duration::from_micros(4);

const SLOW_NS: u64 = 2_000;

/// Nearer than other timers in most cases, so that setting it programs the processor's timer.
const NEAR: Duration = Duration::from_micros(60);
const TRIES: usize = 9;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::readiness::{Readiness, current_state};

    const HOUR: Duration = Duration::from_secs(3600);

    fn ahead() -> AheadTimer {
        AheadTimer {
            rhythm: Rhythm::default(),
            timers: [(); 2].map(|()| TimerFd::new().unwrap()),
        }
    }

    fn is_pending(timer: &TimerFd) -> bool {
        let state = current_state(timer.as_fd()).unwrap();
        !state.contains(Readiness::READABLE)
    }

    /// Waits until the timer expires.
    fn expires(timer: &TimerFd) -> bool {
        let patience = Timespec {
            tv_sec: 30,
            tv_nsec: 0,
        };
        let mut timers = [PollFd::new(timer, PollFlags::IN)];
        poll(&mut timers, Some(&patience)).unwrap() == 1
    }

    /// The timer of the present wait stays, since the processor's timer is programmed for it.
    #[test]
    fn a_prediction_leaves_the_one_before_it() {
        let mut ahead = ahead();
        ahead.set(Duration::ZERO);
        ahead.set(HOUR);
        let [second, first] = &ahead.timers;
        assert!(expires(first));
        assert!(is_pending(second));
        ahead.set(Duration::ZERO);
        let [third, second] = &ahead.timers;
        assert!(expires(third));
        assert!(is_pending(second), "of the present wait");
    }

    #[test]
    fn regular_waits_alone_set_a_timer() {
        let mut ahead = ahead();
        let at = |us: u64| Instant::from_ns(us * 1_000);
        for us in [100, 150, 300, 310, 900] {
            assert!(!ahead.before_wait(at(0), at(us)));
        }
        assert!(!ahead.before_wait(at(0), at(1_000)));
        assert!(ahead.before_wait(at(0), at(1_100)));
        let [set, other] = &ahead.timers;
        assert!(expires(set) && is_pending(other));
    }
}
