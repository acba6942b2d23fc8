//! The command `softclock`, which some experiments start.

use std::io;
use std::path::PathBuf;

/// Where it is: it is built beside this program.
///
/// # Errors
/// It is not built.
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
