//! The kernel's clocks, tick and timer slack.

use std::io;
use std::num::NonZeroU64;

use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// Reads CLOCK_MONOTONIC in nanoseconds. Takes about 26 ns if the vDSO can read the clock, otherwise a system call.
pub fn monotonic_ns() -> u64 {
    timespec_ns(clock_gettime(ClockId::Monotonic))
}

/// Returns the processor time that the calling thread has used, in nanoseconds. One system call, about 150 ns.
pub fn cpu_time_ns() -> u64 {
    timespec_ns(clock_gettime(ClockId::ThreadCPUTime))
}

/// Returns the length of the kernel's tick in nanoseconds: 4 ms at HZ=250.
///
/// It is the resolution of CLOCK_MONOTONIC_COARSE, which the kernel advances at each tick.
pub fn tick_ns() -> u64 {
    timespec_ns(clock_getres(ClockId::MonotonicCoarse)).max(1)
}

/// Sets the timer slack of the calling thread: the time by which the kernel may delay its timeouts. At least 1 ns; the
/// default is 50 us. Threads that it starts later inherit the value.
///
/// # Errors
/// Returns `PermissionDenied` if a sandbox forbids prctl(2).
pub fn set_timer_slack_ns(ns: u64) -> io::Result<()> {
    let ns = NonZeroU64::new(ns).unwrap_or(NonZeroU64::MIN);
    Ok(set_current_timer_slack(Some(ns))?)
}

fn timespec_ns(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_is_plausible() {
        assert!((500_000..=20_000_000).contains(&tick_ns()));
    }

    #[test]
    fn slack_can_be_set() {
        set_timer_slack_ns(0).unwrap();
        assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
    }

    #[test]
    fn work_takes_cpu_time() {
        let before = cpu_time_ns();
        let mut x = 1u64;
        while cpu_time_ns() == before {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(cpu_time_ns() > before);
    }
}
