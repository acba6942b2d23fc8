//! Sets the scheduling policy and priority of the calling thread (sched(7)).

use std::fmt;
use std::io;
use std::mem::zeroed;

use rustix::process::setpriority_process;

/// A scheduling policy with its priority (sched(7)). Displays as `nice:-5`, `fifo:10` or `rr:10`.
///
/// ```
/// use softclock_linux::priority::Priority;
///
/// assert_eq!(Priority::Nice(-5).to_string(), "nice:-5");
/// // Needs no privilege: a thread may always lower its share.
/// Priority::Nice(19).apply().unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Priority {
    /// An ordinary thread with this nice value, -20 to 19. A lower value gives a larger share of the processor.
    Nice(i8),
    /// A real-time thread with this priority, 1 to 99 (SCHED_FIFO). Runs before all ordinary threads, and until it
    /// blocks or a thread of higher priority is ready.
    Fifo(u8),
    /// Like `Fifo`, but threads of the same priority take turns, a time slice each (SCHED_RR).
    RoundRobin(u8),
}

impl Priority {
    /// Applies this priority to the calling thread and to the threads that it starts later. One system call.
    ///
    /// # Errors
    /// Returns `PermissionDenied` if the process has neither CAP_SYS_NICE nor a limit that allows this priority
    /// (RLIMIT_NICE, RLIMIT_RTPRIO), and `InvalidInput` if a real-time priority is not 1 to 99. The kernel limits nice
    /// values to their range without an error.
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

/// Makes the calling thread a real-time thread of this priority, 1 to 99 (SCHED_FIFO of sched(7)); 0 makes it an
/// ordinary thread again. Threads and processes that it starts are ordinary ones.
///
/// # Errors
/// Returns `PermissionDenied` if the process has neither CAP_SYS_NICE nor a limit that allows this priority
/// (RLIMIT_RTPRIO), and `InvalidInput` for priorities above 99.
pub fn set_realtime_priority(priority: u8) -> io::Result<()> {
    let policy = match priority {
        0 => libc::SCHED_OTHER,
        _ => libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
    };
    set_scheduler(policy, priority)
}

/// Makes the calling thread one that runs only while no ordinary thread of its processor is ready (SCHED_IDLE of
/// sched(7)). An ordinary thread that wakes takes the processor from it at once. Threads that it starts inherit this.
///
/// # Errors
/// Those of sched_setscheduler(2); no privilege is needed.
pub fn set_idle_priority() -> io::Result<()> {
    set_scheduler(libc::SCHED_IDLE, 0)
}

fn set_scheduler(policy: libc::c_int, priority: u8) -> io::Result<()> {
    // SAFETY: `sched_param` consists of integers, for which zero is valid.
    let mut parameters: libc::sched_param = unsafe { zeroed() };
    parameters.sched_priority = priority.into();
    // SAFETY: the kernel only reads `parameters`, which outlives the call.
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
