//! How the scheduler treats the calling thread.

use std::io;
use std::mem::zeroed;

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
        let error = set_realtime_priority(100).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        set_realtime_priority(0).unwrap();
    }
}
