//! A timer for the end of the wait after the next one, so that a wait need not program the processor's timer.

use std::sync::OnceLock;
use std::time::{Duration, Instant as WallClock};

use softclock_core::Instant;
use softclock_core::rhythm::Rhythm;

use super::TimerFd;

/// Keeps the processor's timer programmed for a thread whose waits end at regular distances.
///
/// The kernel programs the processor's timer for its earliest pending timer only. A thread that sends at regular
/// distances waits for one departure at a time, so the processor's timer is programmed twice for each: by the
/// interrupt that ends the wait, for another timer that is pending, and by the next wait. In a virtual machine each
/// takes a call of the hypervisor, up to 9 us. With a timer that is pending for the wait after the next one, the
/// interrupt programs that time, and the next wait finds it. The timer ends no wait: a wrong prediction costs an
/// interrupt.
///
/// It does nothing where programming takes less than 2 us, as without a hypervisor.
#[derive(Debug, Default)]
pub struct AheadTimer {
    rhythm: Rhythm,
    /// Two timers, because one is pending while the other is set; `None` before the first use.
    timers: Option<[TimerFd; 2]>,
}

impl AheadTimer {
    /// Prepares for a wait until `end`, a time of CLOCK_MONOTONIC, and for the one after it. Costs a system call if the
    /// waits are regular. The first prediction creates two descriptors; if that fails, this does nothing.
    pub fn before_wait(&mut self, end: Instant) {
        if let Some(next) = self.rhythm.on_wait(end)
            && is_programming_slow()
        {
            self.set(next);
        }
    }

    fn set(&mut self, end: Instant) {
        if self.timers.is_none() {
            let timers = TimerFd::new().and_then(|first| Ok([first, TimerFd::new()?]));
            self.timers = timers.ok();
        }
        if let Some(timers) = &mut self.timers {
            // The other one is pending for the wait that begins.
            timers.swap(0, 1);
            timers[0].set_at(Instant::from_ns(end.as_ns().saturating_sub(EARLY_NS)));
        }
    }
}

/// Whether programming the processor's timer takes 2 us or more. The first call in a process measures it, in at most
/// some 200 us.
fn is_programming_slow() -> bool {
    static IS_SLOW: OnceLock<bool> = OnceLock::new();
    *IS_SLOW.get_or_init(|| {
        let Ok(timer) = TimerFd::new() else {
            return false;
        };
        let mut times = [(); TRIES].map(|()| {
            let begun = WallClock::now();
            timer.set(NEAR);
            let time = begun.elapsed();
            timer.disarm();
            time
        });
        times.sort_unstable();
        times[TRIES / 2] >= SLOW
    })
}

/// The time by which the timer precedes the predicted end: ends vary by a few microseconds with the lateness that a
/// thread allows for, and the timer is of use only if it is not later. The interrupt itself is later by more than that
/// where programming is slow, and so is one interrupt for both.
const EARLY_NS: u64 = 4_000;

const SLOW: Duration = Duration::from_micros(2);
/// Nearer than other timers in most cases, so that setting it programs the processor's timer.
const NEAR: Duration = Duration::from_micros(60);
const TRIES: usize = 9;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::clock::monotonic_ns;
    use crate::readiness::{Readiness, current_state};

    fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    fn has_expired(timer: &TimerFd) -> bool {
        let state = current_state(timer.as_fd()).unwrap();
        state.contains(Readiness::READABLE)
    }

    /// The timer of the present wait stays, since the processor's timer is programmed for it.
    #[test]
    fn a_prediction_leaves_the_one_before_it() {
        let mut ahead = AheadTimer::default();
        let now = monotonic_ns();
        ahead.set(at(now));
        ahead.set(at(now + 3_600_000_000_000));
        let [second, first] = ahead.timers.as_ref().unwrap();
        assert!(has_expired(first));
        assert!(!has_expired(second));
        ahead.set(at(now));
        let [third, second] = ahead.timers.as_ref().unwrap();
        assert!(has_expired(third));
        assert!(!has_expired(second), "still pending");
    }

    #[test]
    fn irregular_waits_need_no_timer() {
        let mut ahead = AheadTimer::default();
        let now = monotonic_ns();
        for us in [100, 150, 300, 310, 900] {
            ahead.before_wait(at(now + us * 1_000));
        }
        assert!(ahead.timers.is_none());
    }
}
