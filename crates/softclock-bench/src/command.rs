//! Other products of the workspace that experiments use: the command `softclock`, and the library for C.

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

/// Returns the path of the static library for C, which cargo builds into the folder of this program's dependencies.
///
/// # Errors
/// The library has not been built.
pub fn c_library() -> io::Result<PathBuf> {
    let library = std::env::current_exe()?.with_file_name("deps/libsoftclock_c.a");
    match library.exists() {
        true => Ok(library),
        false => Err(io::Error::other(
            "the library for C is not built beside this program (cargo xtask bench does so, or cargo build --package \
             softclock-c, with --release if this is)",
        )),
    }
}
