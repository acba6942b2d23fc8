//! Sets the scheduling policy and priority of the calling thread (sched(7)).

use std::fmt;
use std::io;
use std::mem::zeroed;
use std::time::Duration;

use rustix::process::{Pid, setpriority_process};

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
    match priority {
        0 => set_ordinary(libc::SCHED_OTHER),
        _ => set_scheduler(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority),
    }
}

/// Makes the calling thread one that runs only while no ordinary thread of its processor is ready (SCHED_IDLE of
/// sched(7)). An ordinary thread that wakes takes the processor from it at once. Threads that it starts inherit this.
///
/// # Errors
/// Those of sched_setscheduler(2); no privilege is needed.
pub fn set_idle_priority() -> io::Result<()> {
    set_ordinary(libc::SCHED_IDLE)
}

/// Sets a policy without a priority. Only a privileged thread can stop resetting the policy of those that it starts.
fn set_ordinary(policy: libc::c_int) -> io::Result<()> {
    match set_scheduler(policy, 0) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            set_scheduler(policy | libc::SCHED_RESET_ON_FORK, 0)
        }
        set => set,
    }
}

/// Sets the time slice of an ordinary thread, 100 us to 100 ms: the time for which it keeps the processor while others
/// of its priority wait. A thread that wakes takes the processor at once from one with a longer slice, if it has had
/// less than its share. Shares stay as they are. `None` is the calling thread; threads that it starts inherit the
/// slice.
///
/// Kernels before 6.12 ignore it.
///
/// # Errors
/// `ESRCH` if the thread has ended, `InvalidInput` for a real-time thread, `PermissionDenied` for a thread of another
/// user.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// softclock_linux::priority::set_slice(None, Duration::from_micros(100)).unwrap();
/// ```
pub fn set_slice(thread: Option<Pid>, slice: Duration) -> io::Result<()> {
    let id = thread.map_or(0, |thread| thread.as_raw_nonzero().get());
    let bytes = size_of::<SchedulingAttributes>() as u32;
    let mut attributes = SchedulingAttributes::default();
    // SAFETY: the kernel writes at most `bytes` bytes to the structure, which outlives the call.
    let got = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            id,
            &raw mut attributes,
            bytes,
            0u32,
        )
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    if attributes.policy != libc::SCHED_OTHER as u32 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    attributes.runtime_ns = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the kernel only reads the structure, whose length it begins with, and which outlives the call.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, id, &raw const attributes, 0u32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `struct sched_attr` (include/uapi/linux/sched/types.h), in its first version.
#[repr(C)]
#[derive(Default)]
struct SchedulingAttributes {
    bytes: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
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
    use rustix::thread::CapabilitySet;

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

    /// Only a privileged thread may stop resetting the policy of those that it starts.
    #[test]
    fn a_thread_without_privileges_becomes_ordinary_again() {
        let set = std::thread::spawn(|| {
            if set_realtime_priority(1).is_err() {
                return false;
            }
            let mut without = rustix::thread::capabilities(None).unwrap();
            without.effective -= CapabilitySet::SYS_NICE;
            rustix::thread::set_capabilities(None, without).unwrap();
            set_realtime_priority(0).unwrap();
            set_idle_priority().unwrap();
            true
        });
        if !set.join().unwrap() {
            softclock_testing::skip!("needs CAP_SYS_NICE");
        }
    }

    #[test]
    fn a_slice_leaves_the_nice_value() {
        std::thread::spawn(|| {
            Priority::Nice(7).apply().unwrap();
            set_slice(None, Duration::from_micros(200)).unwrap();
            assert_eq!(rustix::process::getpriority_process(None).unwrap(), 7);
        })
        .join()
        .unwrap();
        let no_thread = Pid::from_raw(i32::MAX);
        let error = set_slice(no_thread, Duration::from_micros(200)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
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
