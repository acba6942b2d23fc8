//! Processor time of the whole machine, because the kernel's work for frames belongs to no process, and of one process.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;

use crate::servers::cpu_time;

/// A reading of processor time.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    at: Instant,
    /// The time in which the machine's processors were idle, or taken by the hypervisor.
    idle: Duration,
    process: Duration,
    processors: usize,
}

/// Processor time between two readings, as numbers of processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busy {
    /// Processors that were not idle.
    pub machine: f64,
    /// Processors that the process used.
    pub process: f64,
}

impl Usage {
    /// Reads the processor time, and that of a process if given.
    ///
    /// # Errors
    /// The process has ended.
    pub fn now(process: Option<u32>) -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let (ticks, processors) = idle_ticks(&stat).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            at: Instant::now(),
            idle: Duration::from_secs(ticks) / clock_ticks_per_second() as u32,
            process: process.map_or(Ok(Duration::ZERO), cpu_time)?,
            processors,
        })
    }

    /// Returns the seconds from `earlier` to this reading.
    pub fn seconds_since(&self, earlier: &Self) -> f64 {
        (self.at - earlier.at).as_secs_f64()
    }

    /// Returns the processors in use since `earlier`.
    pub fn since(&self, earlier: &Self) -> Busy {
        let seconds = self.seconds_since(earlier);
        let share = |later: Duration, earlier: Duration| {
            later.saturating_sub(earlier).as_secs_f64() / seconds
        };
        Busy {
            machine: self.processors as f64 - share(self.idle, earlier.idle),
            process: share(self.process, earlier.process),
        }
    }
}

/// Returns the ticks in which the processors were idle, waiting for disks, or taken by the hypervisor (proc_stat(5)),
/// and the number of processors.
fn idle_ticks(stat: &str) -> Option<(u64, usize)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .map_while(|tick| tick.parse().ok())
        .collect();
    let idle = ticks.get(3)? + ticks.get(4)? + ticks.get(7)?;
    let is_processor = |line: &&str| {
        line.strip_prefix("cpu")
            .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    Some((idle, stat.lines().filter(is_processor).count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_of_all_processors() {
        let stat = "cpu  10 20 30 400 50 0 7 6 0 0\ncpu0 5 10 15 200 25 0 3 3 0 0\ncpu1 5 10 15 200 25 0 4 3 0 0\nintr 9\n";
        assert_eq!(idle_ticks(stat), Some((456, 2)));
        assert_eq!(idle_ticks("intr 9"), None);
    }
}
