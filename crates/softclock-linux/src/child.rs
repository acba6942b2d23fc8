//! Starts child processes that do not outlive their parent, even if the parent is killed.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Makes the process that `command` starts receive SIGTERM when the thread that starts it ends (PR_SET_PDEATHSIG of
/// prctl(2)).
///
/// The kernel clears this setting when it executes a program with set-user-ID, set-group-ID or file capabilities. Spawn
/// from a thread that lives as long as the child should.
///
/// # Example
/// ```
/// use std::process::Command;
///
/// use softclock_linux::child::end_with_parent;
///
/// # fn main() -> std::io::Result<()> {
/// let mut child = end_with_parent(&mut Command::new("true")).spawn()?;
/// assert!(child.wait()?.success());
/// # Ok(())
/// # }
/// ```
pub fn end_with_parent(command: &mut Command) -> &mut Command {
    let set = || set_parent_process_death_signal(Some(Signal::TERM)).map_err(io::Error::from);
    // SAFETY: between fork and exec only async-signal-safe functions may be called; `set` makes one system call, and
    // neither allocates nor locks, even if the call fails.
    unsafe { command.pre_exec(set) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::thread;

    #[test]
    fn the_child_ends_with_the_thread() {
        let start = || {
            let mut command = Command::new("sleep");
            end_with_parent(command.arg("3600")).spawn()
        };
        let mut child = thread::spawn(start).join().unwrap().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    }
}
