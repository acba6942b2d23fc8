//! How the scheduler treats the calling thread.

use std::fmt;
use std::io;
use std::mem::zeroed;

use rustix::process::setpriority_process;

/// How the scheduler treats a thread beside others (sched(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Priority {
    /// An ordinary thread with this nice value, -20 to 19: the less, the larger its share of a processor.
    Nice(i8),
    /// Before all ordinary ones, first come first served among those of the same priority, 1 to 99 (SCHED_FIFO).
    Fifo(u8),
    /// The same, in turns of a slice (SCHED_RR).
    RoundRobin(u8),
}

impl Priority {
    /// Has the calling thread treated so, and those that it starts from now on.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_NICE or a limit that allows it (RLIMIT_NICE, RLIMIT_RTPRIO); `InvalidInput`
    /// for real-time priorities out of range.
    pub fn apply(self) -> io::Result<()> {
        match self {
            Self::Nice(nice) => Ok(setpriority_process(None, nice.into())?),
            Self::Fifo(priority) => set_scheduler(libc::SCHED_FIFO, priority),
            Self::RoundRobin(priority) => set_scheduler(libc::SCHED_RR, priority),
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nice(nice) => write!(f, "nice:{nice}"),
            Self::Fifo(priority) => write!(f, "fifo:{priority}"),
            Self::RoundRobin(priority) => write!(f, "rr:{priority}"),
        }
    }
}

/// Runs the calling thread before all ordinary ones, first come first served among those of the same `priority`, 1 to 99
/// (SCHED_FIFO of sched(7)); 0 makes it ordinary again. Children do not inherit it.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_NICE or a limit that allows it; `InvalidInput` for other priorities.
pub fn set_realtime_priority(priority: u8) -> io::Result<()> {
    let policy = match priority {
        0 => libc::SCHED_OTHER,
        _ => libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
    };
    set_scheduler(policy, priority)
}

fn set_scheduler(policy: libc::c_int, priority: u8) -> io::Result<()> {
    // SAFETY: zero is valid for these integers.
    let mut parameters: libc::sched_param = unsafe { zeroed() };
    parameters.sched_priority = priority.into();
    // SAFETY: the kernel only reads `parameters`, which outlive the call.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_have_a_range() {
        for priority in [Priority::Fifo(100), Priority::RoundRobin(0)] {
            let error = priority.apply().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        let error = set_realtime_priority(100).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        set_realtime_priority(0).unwrap();
    }

    #[test]
    fn threads_inherit_a_nice_value() {
        let nice = std::thread::spawn(|| {
            Priority::Nice(7).apply().unwrap();
            let inherited = || rustix::process::getpriority_process(None).unwrap();
            std::thread::spawn(inherited).join().unwrap()
        });
        assert_eq!(nice.join().unwrap(), 7);
    }
}
