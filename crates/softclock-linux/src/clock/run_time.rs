//! Measures the time in which a thread was ready to run but did not run.

use softclock_core::Instant;

/// Adds up the time in which a thread was ready but not running: it was preempted, or a hypervisor had stopped its
/// processor.
///
/// The bound on lateness of *Soft Timers* (section 3) is in the thread's own running time, so on the wall clock an
/// event may exceed it by this time. The cost of a sample is that of its arguments: a clock reading and a call of
/// [`cpu_time_ns`](super::cpu_time_ns).
///
/// ```
/// use softclock_core::Instant;
/// use softclock_linux::clock::RunTime;
///
/// let mut time = RunTime::new(Instant::from_ns(0), 0);
/// time.blocked(300);
/// // Of 1000 ns it ran for 500 and blocked for 300.
/// assert_eq!(time.sample(Instant::from_ns(1_000), 500), 200);
/// assert_eq!(time.not_running_ns(), 200);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RunTime {
    wall: Instant,
    cpu_ns: u64,
    blocked_ns: u64,
    not_running_ns: u64,
}

impl RunTime {
    /// Starts at these readings of the clock and of the thread's processor time.
    pub const fn new(wall: Instant, cpu_ns: u64) -> Self {
        Self {
            wall,
            cpu_ns,
            blocked_ns: 0,
            not_running_ns: 0,
        }
    }

    /// Records that the thread blocked voluntarily for `ns` since the last sample.
    pub fn blocked(&mut self, ns: u64) {
        self.blocked_ns = self.blocked_ns.saturating_add(ns);
    }

    /// Takes new readings, and returns the nanoseconds since the last sample in which the thread was ready but not
    /// running.
    pub fn sample(&mut self, wall: Instant, cpu_ns: u64) -> u64 {
        let passed = wall.ns_since(self.wall);
        let accounted = cpu_ns
            .saturating_sub(self.cpu_ns)
            .saturating_add(self.blocked_ns);
        let lost = passed.saturating_sub(accounted);
        *self = Self {
            wall,
            cpu_ns,
            blocked_ns: 0,
            not_running_ns: self.not_running_ns.saturating_add(lost),
        };
        lost
    }

    /// Takes new readings without counting the time since the last sample, in which the thread did something else.
    pub const fn resume(&mut self, wall: Instant, cpu_ns: u64) {
        self.wall = wall;
        self.cpu_ns = cpu_ns;
        self.blocked_ns = 0;
    }

    /// The sum of all samples, in nanoseconds.
    pub const fn not_running_ns(&self) -> u64 {
        self.not_running_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_run_nor_blocked_is_lost() {
        let mut time = RunTime::new(Instant::from_ns(1_000), 50);
        time.blocked(300);
        assert_eq!(time.sample(Instant::from_ns(2_000), 450), 300);
        assert_eq!(time.sample(Instant::from_ns(3_000), 1_450), 0);
        assert_eq!(time.not_running_ns(), 300);
        time.resume(Instant::from_ns(9_000), 1_500);
        assert_eq!(time.sample(Instant::from_ns(9_700), 2_000), 200);
    }
}
