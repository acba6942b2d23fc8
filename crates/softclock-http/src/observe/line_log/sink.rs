//! The destination of a log, across failures and reopened files.

use std::io;
use std::time::Duration;

use softclock::output::{Interrupt, Output};

use super::LogTarget;

/// A file, a named pipe, or a standard stream.
pub(super) struct Sink {
    target: LogTarget,
    /// The log's name in messages.
    name: &'static str,
    /// `None` for a named pipe that no program reads.
    output: Option<Output>,
    /// Whether the last write ended within a line.
    is_within_line: bool,
    /// Whether the rest of that line was lost.
    is_torn: bool,
    /// The number of lines lost since writing began to fail.
    failing: Option<u64>,
}

impl Sink {
    pub(super) fn open(target: LogTarget, name: &'static str) -> io::Result<Self> {
        let output = match open(&target) {
            Ok(output) => Some(output),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                tracing::warn!(?target, %error, "{name}: lines are lost until a program reads the pipe");
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            target,
            name,
            output,
            is_within_line: false,
            is_torn: false,
            failing: None,
        })
    }

    /// Reopens the file; keeps the old one if that fails.
    pub(super) fn reopen(&mut self) {
        let LogTarget::File(path) = &self.target else {
            return;
        };
        let (name, path) = (self.name, path.display());
        match open(&self.target) {
            Ok(output) => {
                self.output = Some(output);
                (self.is_within_line, self.is_torn) = (false, false);
                tracing::info!(%path, "{name}: reopened");
            }
            Err(error) => {
                tracing::error!(%path, %error, "{name}: cannot reopen; writing to the old file");
            }
        }
    }

    /// Writes as much of `lines` as there is room for; returns the number of bytes.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let output = match &mut self.output {
            Some(output) => output,
            // A program may have begun to read the pipe since the last attempt.
            output => output.insert(open(&self.target)?),
        };
        // A line feed separates the torn line from the next.
        if self.is_torn {
            output.write(b"\n")?;
            self.is_torn = false;
        }
        let written = output.write(lines)?;
        self.is_within_line = lines[..written].last() != Some(&b'\n');
        Ok(written)
    }

    pub(super) fn wait_for_room(
        &self,
        interrupt: &Interrupt,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        let output = self.output.as_ref();
        output.map_or(Ok(()), |output| output.wait_for_room(interrupt, limit))
    }

    /// Records that all lines of a batch were written.
    pub(super) fn note_success(&mut self) {
        if let Some(lines) = self.failing.take() {
            let name = self.name;
            tracing::warn!(lines, "{name}: written again; lines were lost");
        }
    }

    /// Records that this many lines were lost. Logs only the first failure until a batch is written again.
    pub(super) fn note_failure(&mut self, lines: u64, error: &io::Error) {
        // The next line must not be appended to the part of a line that was written.
        self.is_torn = self.is_within_line;
        if self.failing.is_none() {
            let (name, target) = (self.name, &self.target);
            tracing::error!(
                %error, lines, ?target,
                "{name}: cannot write; lines are lost until it can"
            );
        }
        *self.failing.get_or_insert(0) += lines;
    }
}

fn open(target: &LogTarget) -> io::Result<Output> {
    match target {
        LogTarget::File(path) => Output::append(path),
        LogTarget::Stdout => Output::stdout(),
        LogTarget::Stderr => Output::stderr(),
    }
}
