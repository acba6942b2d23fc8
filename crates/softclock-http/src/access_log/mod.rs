//! The access log: a line for each response, written off the loop.
//!
//! [`format`](mod@format) makes a line, in the thread that served. It goes into a bounded buffer, from which one
//! writer thread takes all that has gathered once a second, or sooner when there is much ([`writer`]). A full buffer
//! means that lines are dropped and counted: the log may suffer, the server may not.

mod date;
mod format;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use format::{Entry, RequestLine};
pub use format::{LogFormat, UnknownFormat};
pub(crate) use writer::LogCounts;
use writer::Writer;

/// Where lines are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Appended to this file.
    File(PathBuf),
    /// Standard output.
    Stdout,
}

/// A log that is written. Clones write to the same; the last one dropped writes the rest and waits for it.
#[derive(Clone, Debug)]
pub struct AccessLog {
    format: LogFormat,
    target: LogTarget,
    writer: Arc<Writer>,
}

impl AccessLog {
    /// Opens the file and starts the writer.
    ///
    /// # Errors
    /// Those of `open(2)`, and no thread to be had.
    pub fn open(target: LogTarget, format: LogFormat) -> io::Result<Self> {
        let writer = Arc::new(Writer::start(target.clone())?);
        Ok(Self {
            format,
            target,
            writer,
        })
    }

    /// The same log in another format.
    #[must_use]
    pub fn with_format(self, format: LogFormat) -> Self {
        Self { format, ..self }
    }

    /// Where it writes.
    pub const fn target(&self) -> &LogTarget {
        &self.target
    }

    /// Opens the file anew, after it was renamed (logrotate). Lines so far go to the old one.
    pub fn reopen(&self) {
        self.writer.reopen();
    }

    /// Waits until all lines so far are written, but no longer than `limit`: before the process ends by itself. Blocks the
    /// thread.
    pub fn flush(&self, limit: Duration) {
        self.writer.flush(limit);
    }

    pub(crate) fn record(&self, entry: &Entry<'_>) {
        self.writer
            .push(|line| format::write(self.format, entry, line));
    }

    pub(crate) fn counts(&self) -> LogCounts {
        self.writer.counts()
    }
}

impl From<&Path> for LogTarget {
    /// `-` is standard output.
    fn from(path: &Path) -> Self {
        if path == Path::new("-") {
            Self::Stdout
        } else {
            Self::File(path.into())
        }
    }
}
