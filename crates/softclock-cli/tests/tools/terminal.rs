//! Runs the program on a pseudo-terminal, by script(1).

use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

/// The program on a terminal.
pub(crate) struct Terminal {
    child: Child,
}

impl Terminal {
    /// Starts `softclock` with these arguments, as a shell would understand them, where `script` runs.
    pub(crate) fn start(
        mut script: Command,
        arguments: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        // Not behind a shell, which an interrupt from the keyboard would end, too.
        let command = format!("exec {} {arguments}", env!("CARGO_BIN_EXE_softclock"));
        let child = script
            .args(["--quiet", "--return", "--flush", "--command"])
            .arg(command)
            .arg("/dev/null")
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Self {
            child: child.expect("script starts"),
        }
    }

    /// Reads until `part` has come.
    pub(crate) fn wait_for(&mut self, part: &str) -> String {
        let output = self.child.stdout.as_mut().expect("piped");
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&bytes);
            if text.contains(part) {
                return text.into_owned();
            }
            let read = output.read(&mut buffer).expect("readable");
            assert_ne!(read, 0, "it ended without {part:?}: {text}");
            bytes.extend_from_slice(&buffer[..read]);
        }
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &[u8]) {
        let keyboard = self.child.stdin.as_mut().expect("piped");
        keyboard.write_all(keys).expect("a program that runs");
        keyboard.flush().expect("a pipe");
    }

    /// The process ID of the program.
    #[allow(
        dead_code,
        reason = "only some of the tests that share this file send signals"
    )]
    pub(crate) fn program(&self) -> u32 {
        let script = self.child.id();
        let children = format!("/proc/{script}/task/{script}/children");
        let children = std::fs::read_to_string(children).expect("a running script");
        children.trim().parse().expect("one child")
    }

    /// Whether the program has ended.
    #[allow(
        dead_code,
        reason = "only some of the tests that share this file need it"
    )]
    pub(crate) fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait();
        status.expect("our own child").is_some()
    }

    /// All output until the end, and the exit status.
    pub(crate) fn end(mut self) -> (String, ExitStatus) {
        let mut bytes = Vec::new();
        let mut output = self.child.stdout.take().expect("piped");
        output.read_to_end(&mut bytes).expect("readable");
        let status = self.child.wait().expect("our own child");
        (String::from_utf8_lossy(&bytes).into_owned(), status)
    }
}
