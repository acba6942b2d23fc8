//! What the kernel tells about time.

use std::io;
use std::num::NonZeroU64;

use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds, without a system call where the kernel's vDSO can do it (about 26 ns).
pub fn monotonic_ns() -> u64 {
    timespec_ns(clock_gettime(ClockId::Monotonic))
}

/// The processor time that the calling thread has used, in nanoseconds. A system call, about 150 ns.
pub fn cpu_time_ns() -> u64 {
    timespec_ns(clock_gettime(ClockId::ThreadCPUTime))
}

/// The length of the kernel's tick in nanoseconds: 4 ms at HZ=250.
///
/// CLOCK_MONOTONIC_COARSE is advanced by the tick, so its resolution is the tick.
pub fn tick_ns() -> u64 {
    timespec_ns(clock_getres(ClockId::MonotonicCoarse)).max(1)
}

/// Lets the kernel delay the calling thread's time-outs by at most `ns` (at least 1; the default is 50 us).
///
/// Threads created later inherit it. Fails only where a sandbox forbids prctl(2).
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
