//! What is undone also if an experiment is killed.

use std::io;
use std::process::{Child, Command, Stdio};

/// A shell that runs a script when this value is dropped, or when this process has ended, by a signal for instance.
#[derive(Debug)]
pub(super) struct AtEnd(Child);

impl AtEnd {
    /// Starts the shell, which waits.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn run(script: &str) -> io::Result<Self> {
        // An interrupt goes to the whole group of the terminal.
        let script = format!("trap '' HUP INT TERM; read -r _; {script}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        // The shell reads the end of its input when the last descriptor of the other end, which is this process's, is closed.
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        Ok(Self(command.spawn()?))
    }
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends by itself.
        let _ = self.0.wait();
    }
}
