//! The times of a thread, as the scheduler counts them.

use std::fs;
use std::io;
use std::ops::Sub;
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

/// The times of a thread since it began (`/proc/PID/task/TID/schedstat`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accounts {
    /// On a processor.
    pub ran: Duration,
    /// Ready, while another thread had the processor.
    pub waited: Duration,
    /// The times that it was given a processor.
    pub runs: u64,
}

impl Accounts {
    /// Reads the times of a thread of this process.
    ///
    /// # Errors
    /// The thread has ended, or the kernel does not count (CONFIG_SCHED_INFO).
    pub fn of(thread: Pid) -> io::Result<Self> {
        let id = thread.as_raw_nonzero();
        Self::read(Path::new(&format!("/proc/self/task/{id}")))
    }

    /// Reads the times of all threads of a process.
    ///
    /// # Errors
    /// The process or one of its threads has ended, or the kernel does not count (CONFIG_SCHED_INFO).
    pub fn of_process(id: u32) -> io::Result<Vec<Self>> {
        let threads = fs::read_dir(format!("/proc/{id}/task"))?;
        threads.map(|thread| Self::read(&thread?.path())).collect()
    }

    /// Reads the times of the thread that has this directory in `/proc`.
    fn read(directory: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(directory.join("schedstat"))?;
        Self::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
        Some(Self {
            ran: Duration::from_nanos(numbers.next()??),
            waited: Duration::from_nanos(numbers.next()??),
            runs: numbers.next()??,
        })
    }
}

impl Sub for Accounts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            ran: self.ran.saturating_sub(before.ran),
            waited: self.waited.saturating_sub(before.waited),
            runs: self.runs.saturating_sub(before.runs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_understood() {
        let after = Accounts::parse("5000 700 9\n").unwrap();
        let before = Accounts::parse("1000 200 4\n").unwrap();
        let between = after - before;
        assert_eq!(between.ran, Duration::from_nanos(4000));
        assert_eq!(between.waited, Duration::from_nanos(500));
        assert_eq!(between.runs, 5);
        assert_eq!(Accounts::parse("5000"), None);
    }
}
