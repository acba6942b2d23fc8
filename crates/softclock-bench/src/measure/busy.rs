//! The busy time of one processor, with all that it does: processes, interrupts and the kernel's threads.
//!
//! Where the kernel works for a server in interrupts, the processor time of the server's processes lacks that work. If
//! all of it takes place on one processor that has nothing else to do, the busy time of that processor has it all.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;

/// A reading of the idle time of one processor.
#[derive(Clone, Copy, Debug)]
pub struct IdleTime {
    at: Instant,
    /// Also the time that the hypervisor took.
    idle: Duration,
    processor: usize,
}

impl IdleTime {
    /// Reads the time in which a processor was idle or taken by the hypervisor, which the kernel counts in steps of
    /// mostly 10 ms.
    ///
    /// # Errors
    /// The system does not list the processor.
    pub fn now(processor: usize) -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let ticks = idle_ticks(&stat, processor).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            at: Instant::now(),
            idle: Duration::from_secs(ticks) / clock_ticks_per_second() as u32,
            processor,
        })
    }

    /// Returns the busy time from this reading until now.
    ///
    /// # Errors
    /// Those of [`now`](Self::now).
    pub fn busy(&self) -> io::Result<Duration> {
        let now = Self::now(self.processor)?;
        let idle = now.idle.saturating_sub(self.idle);
        Ok((now.at - self.at).saturating_sub(idle))
    }
}

/// Returns the ticks in which a processor was idle, waiting for disks, or taken by the hypervisor (proc_stat(5)).
fn idle_ticks(stat: &str, processor: usize) -> Option<u64> {
    let name = format!("cpu{processor} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name))?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .map_while(|tick| tick.parse().ok())
        .collect();
    Some(ticks.get(3)? + ticks.get(4)? + ticks.get(7)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_of_the_processor() {
        let stat = "cpu  10 20 30 400 50 0 7 6 0 0\ncpu0 5 10 15 200 25 0 3 3 0 0\ncpu1 5 10 15 201 25 0 4 3 0 0\nintr 9\n";
        assert_eq!(idle_ticks(stat, 1), Some(229));
        assert_eq!(idle_ticks(stat, 2), None);
    }
}
