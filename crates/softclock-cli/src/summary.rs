//! The summary that a bridge or a server prints when it ends.

use std::io;
use std::time::Duration;

use softclock_linux::output::Output;

/// Writes a summary to standard output. Waits up to five seconds for a slow reader, so that a stopped one does not keep
/// the process, which no longer handles signals.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let written = Output::stdout()?.write_within(text.as_bytes(), LIMIT)?;
    match written == text.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::TimedOut.into()),
    }
}

const LIMIT: Duration = Duration::from_secs(5);
