//! Processes that do not outlive the one that started them, whatever ends it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Has `command` start a process that gets SIGTERM when the thread that started it ends, as `PR_SET_PDEATHSIG` of
/// `prctl(2)` tells. A program with privileges of its own does not get it.
pub fn end_with_parent(command: &mut Command) -> &mut Command {
    let set = || set_parent_process_death_signal(Some(Signal::TERM)).map_err(io::Error::from);
    // SAFETY: between fork and exec only what is safe in a signal may be done; `set` makes one system call, and neither
    // allocates nor locks, also if it fails.
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
