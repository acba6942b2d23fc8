//! The access log: one line for each response, written by a thread of the log.
//!
//! [`format`](mod@format) formats a line in the thread that served the request. A [`LineLog`] writes the collected
//! lines once a second, or sooner when they are many.

mod date;
mod format;

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::observe::limit::Limit;
use crate::observe::line_log::{Flusher, LineCounts, LineLog, LogTarget, LogUse};
pub(crate) use format::{Entry, RequestLine};
pub use format::{LogFormat, UnknownFormat};

/// An access log. Clones share it. After the last clone is dropped, the remaining lines are still written;
/// [`flush_all`](Self::flush_all) waits for that.
#[derive(Clone, Debug)]
pub struct AccessLog {
    format: LogFormat,
    target: LogTarget,
    lines: Arc<LineLog>,
}

/// Line counts of all access logs of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct LogCounts {
    /// Lines handed to the operating system.
    pub(crate) written: u64,
    /// Lines dropped because the buffer was full.
    pub(crate) dropped: u64,
    /// Lines that could not be written.
    pub(crate) failed: u64,
}

impl AccessLog {
    /// Opens the file and starts the writing thread. Does not wait for a reader of a named pipe: lines are lost until
    /// there is one.
    ///
    /// # Errors
    /// Those of `open(2)` and of starting a thread.
    pub fn open(target: LogTarget, format: LogFormat) -> io::Result<Self> {
        let log = LogUse {
            name: "access log",
            thread: "softclock-log",
            gather: GATHER,
            limit: Limit::AccessLog,
            counts: &COUNTS,
        };
        let lines = Arc::new(LineLog::start(target.clone(), log)?);
        let mut all = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(Flusher::is_needed);
        all.push(lines.flusher());
        Ok(Self {
            format,
            target,
            lines,
        })
    }

    /// Returns the same log with another format.
    #[must_use]
    pub fn with_format(self, format: LogFormat) -> Self {
        Self { format, ..self }
    }

    /// Returns the destination.
    pub const fn target(&self) -> &LogTarget {
        &self.target
    }

    /// Reopens the file after it was renamed, as by logrotate. Lines recorded before go to the old file.
    pub fn reopen(&self) {
        self.lines.reopen();
    }

    /// Waits up to `limit` until the lines of all access logs of this process are written, including logs that were
    /// dropped. If some are not, logs their number. Call this before the process ends. Blocks the thread.
    pub fn flush_all(limit: Duration) {
        let deadline = Instant::now() + limit;
        // The lock is not held while waiting, so that other threads can open logs.
        let all = std::mem::take(&mut *RUNNING.lock().unwrap_or_else(PoisonError::into_inner));
        for log in &all {
            log.flush(deadline.saturating_duration_since(Instant::now()));
        }
        let mut kept = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(all.into_iter().filter(Flusher::is_needed));
    }

    pub(crate) fn record(&self, entry: &Entry<'_>) {
        self.lines
            .push(|line| format::write(self.format, entry, line));
    }

    /// Returns the counts of all access logs since the start, so that counters do not fall when a reload names another
    /// file.
    pub(crate) fn counts() -> LogCounts {
        LogCounts {
            written: COUNTS.written.load(Relaxed),
            dropped: COUNTS.dropped.load(Relaxed),
            failed: COUNTS.failed.load(Relaxed),
        }
    }
}

impl From<&Path> for LogTarget {
    /// `-` means standard output.
    fn from(path: &Path) -> Self {
        if path == Path::new("-") {
            Self::Stdout
        } else {
            Self::File(path.into())
        }
    }
}

static COUNTS: LineCounts = LineCounts::new();

/// The logs whose threads run, including dropped ones that still have lines to write.
static RUNNING: Mutex<Vec<Flusher>> = Mutex::new(Vec::new());

/// How long lines are collected before they are written.
const GATHER: Duration = Duration::from_secs(1);
