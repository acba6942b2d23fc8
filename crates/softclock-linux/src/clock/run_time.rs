//! How long a thread wanted to run and could not.

use softclock_core::Instant;

/// Adds up the time in which a thread could neither run nor chose to block: it was preempted, or its processor stolen.
///
/// The bound of *Soft Timers* (section 3) counts the thread's own running time; this is what lateness may exceed it
/// by. Each sample costs what its arguments cost: a clock reading and [`cpu_time_ns`](super::cpu_time_ns).
#[derive(Clone, Copy, Debug)]
pub struct RunTime {
    wall: Instant,
    cpu_ns: u64,
    blocked_ns: u64,
    not_running_ns: u64,
}

impl RunTime {
    /// Starts at the given readings of the clock and of the thread's processor time.
    pub const fn new(wall: Instant, cpu_ns: u64) -> Self {
        Self {
            wall,
            cpu_ns,
            blocked_ns: 0,
            not_running_ns: 0,
        }
    }

    /// Declares that the thread blocked of its own will for `ns` since the last sample.
    pub fn blocked(&mut self, ns: u64) {
        self.blocked_ns = self.blocked_ns.saturating_add(ns);
    }

    /// Takes readings and returns the nanoseconds since the last sample in which the thread could not run.
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

    /// Takes readings after a time that does not count: the thread did something else.
    pub const fn resume(&mut self, wall: Instant, cpu_ns: u64) {
        self.wall = wall;
        self.cpu_ns = cpu_ns;
        self.blocked_ns = 0;
    }

    /// All the time lost so far, in nanoseconds.
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
