//! Starting other programs from the workspace's root, without a terminal's input.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The workspace's root, wherever the task was started from.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The directory in which cargo builds the workspace.
pub(crate) fn target_directory() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(named)
}

/// The cargo that runs this task.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    program(cargo, arguments)
}

/// A program in the workspace's root.
pub(crate) fn program<S: AsRef<OsStr>>(
    name: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(name);
    command
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null());
    command
}

/// Runs `command` with its output shown.
pub(crate) fn run(mut command: Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} ended with {status}", name_of(&command))),
        Err(error) => Err(format!("cannot start {}: {error}", name_of(&command))),
    }
}

/// Runs `command` and returns its standard output. The error includes its standard error.
pub(crate) fn output(mut command: Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("cannot start {}: {error}", name_of(&command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "{} ended with {}\n{stderr}",
            name_of(&command),
            output.status
        ));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{}: not UTF-8", name_of(&command)))
}

/// The program and its first argument, enough to recognise it.
fn name_of(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let first = command.get_args().next().unwrap_or_default();
    format!("{} {}", program.display(), first.display())
        .trim_end()
        .to_owned()
}
