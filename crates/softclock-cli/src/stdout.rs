//! Standard output, as all commands use it: that its reader has closed it is no error, since `head` and `less` do so.

use std::io::{self, Write};
use std::time::Duration;

use softclock_linux::output::Output;

/// Writes all of `text`.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    readable(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes the summary of a bridge or a server that ends. Waits up to five seconds for a slow reader, so that a stopped
/// one does not keep the process, which no longer handles signals.
pub(crate) fn print_summary(text: &str) -> io::Result<()> {
    let written = Output::stdout().and_then(|out| out.write_within(text.as_bytes(), LIMIT));
    readable(written.and_then(|written| match written == text.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::TimedOut.into()),
    }))
}

/// Words an error of these functions for the user.
pub(crate) fn not_written(error: &io::Error) -> String {
    format!("cannot write to standard output: {error}")
}

fn readable(written: io::Result<()>) -> io::Result<()> {
    is_read(written).map(|_| ())
}

/// Returns whether standard output still has a reader, by the result of a write to it.
pub(crate) fn is_read(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

const LIMIT: Duration = Duration::from_secs(5);
