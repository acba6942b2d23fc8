//! The command `softclock`, which some experiments start as a separate process.

use std::io;
use std::path::PathBuf;

/// Returns the path of the command, which cargo builds into the same directory as this program.
///
/// # Errors
/// The command has not been built.
pub fn softclock() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("softclock");
    match program.exists() {
        true => Ok(program),
        false => Err(io::Error::other(
            "the command softclock is not built beside this program (cargo build --package softclock-cli, with --release \
             if this is)",
        )),
    }
}
