//! Logging to standard error.

use std::io::{self, IsTerminal};

use tracing::Level;

/// Logs events up to the level that `-v` and `--quiet` ask for.
pub(crate) fn start(verbose: u8, quiet: bool) {
    let level = match (quiet, verbose) {
        (true, _) => Level::ERROR,
        (false, 0) => Level::WARN,
        (false, 1) => Level::INFO,
        (false, 2) => Level::DEBUG,
        (false, _) => Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .with_target(false)
        .init();
}
