//! The thread that writes the access log, and the buffer before it.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::LogTarget;

/// A writer thread, ended when this is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to do for the writer.
    work: Condvar,
    /// The writer has flushed.
    flushed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whole lines.
    lines: Vec<u8>,
    orders: Orders,
    counts: LogCounts,
}

/// What the writer is to do once it has written.
#[derive(Clone, Copy, Debug, Default)]
struct Orders {
    reopen: bool,
    flush: bool,
    end: bool,
}

impl Orders {
    fn any(self) -> bool {
        self.reopen || self.flush || self.end
    }
}

/// Lines of an access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct LogCounts {
    /// Lines handed to the operating system.
    pub(crate) written: u64,
    /// Lines that found the buffer full.
    pub(crate) dropped: u64,
    /// Lines that could not be written.
    pub(crate) failed: u64,
}

impl Writer {
    pub(super) fn start(target: LogTarget) -> io::Result<Self> {
        let sink = Sink::open(target)?;
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("softclock-log".into())
            .spawn(move || own.run(sink))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Appends a line, which `write` makes, unless the buffer is full. Never waits for the disk.
    pub(super) fn push(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.shared.lock();
        if state.lines.len() >= CAPACITY {
            state.counts.dropped += 1;
            return;
        }
        let before = state.lines.len();
        write(&mut state.lines);
        let after = state.lines.len();
        drop(state);
        // The writer sleeps without limit on an empty buffer, and else for a second or until there is much.
        if before == 0 || (before < PLENTY && after >= PLENTY) {
            self.shared.work.notify_one();
        }
    }

    pub(super) fn reopen(&self) {
        self.shared.lock().orders.reopen = true;
        self.shared.work.notify_one();
    }

    /// Waits until all lines so far are written, but no longer than `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let mut state = self.shared.lock();
        state.orders.flush = true;
        self.shared.work.notify_one();
        let flushed = &self.shared.flushed;
        let waited = flushed.wait_timeout_while(state, limit, |state| state.orders.flush);
        drop(waited);
    }

    pub(super) fn counts(&self) -> LogCounts {
        self.shared.lock().counts
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().orders.end = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut sink: Sink) {
        let mut taken = Vec::new();
        let mut told = (0, Instant::now());
        loop {
            let orders = self.take(&mut taken);
            let (lines, result) = sink.write(&taken);
            taken.clear();
            // What a flood has grown is not kept for ever.
            taken.shrink_to(PLENTY);
            let mut state = self.lock();
            match result {
                Ok(()) => state.counts.written += lines,
                Err(()) => state.counts.failed += lines,
            }
            let dropped = state.counts.dropped;
            if orders.flush {
                state.orders.flush = false;
                self.flushed.notify_all();
            }
            drop(state);
            if dropped > told.0 && (orders.end || told.1.elapsed() >= TELL_EACH) {
                tracing::warn!(
                    lines = dropped - told.0,
                    "access log: dropped, too many to write"
                );
                told = (dropped, Instant::now());
            }
            if orders.reopen {
                sink.reopen();
            }
            if orders.end {
                return;
            }
        }
    }

    /// Waits for lines or an order, then takes all there is.
    fn take(&self, taken: &mut Vec<u8>) -> Orders {
        let state = self
            .work
            .wait_while(self.lock(), |state| {
                state.lines.is_empty() && !state.orders.any()
            })
            .unwrap_or_else(PoisonError::into_inner);
        let (mut state, _) = self
            .work
            .wait_timeout_while(state, FLUSH_EACH, |state| {
                state.lines.len() < PLENTY && !state.orders.any()
            })
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.lines, taken);
        let orders = state.orders;
        state.orders.reopen = false;
        orders
    }
}

/// The file, or standard output.
struct Sink {
    target: LogTarget,
    file: Option<File>,
    /// What was written last was cut off within a line.
    cut: bool,
    /// Lines lost since writing began to fail.
    failing: Option<u64>,
}

impl Sink {
    fn open(target: LogTarget) -> io::Result<Self> {
        let file = match &target {
            LogTarget::File(path) => Some(append_to(path)?),
            LogTarget::Stdout => None,
        };
        Ok(Self {
            target,
            file,
            cut: false,
            failing: None,
        })
    }

    /// Keeps the old file where the new one can't be opened.
    fn reopen(&mut self) {
        let LogTarget::File(path) = &self.target else {
            return;
        };
        match append_to(path) {
            Ok(file) => {
                self.file = Some(file);
                self.cut = false;
                tracing::info!(path = %path.display(), "access log: reopened");
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "access log: cannot reopen; writing to the old file");
            }
        }
    }

    /// Writes whole lines; tells how many there were, and whether they were written.
    fn write(&mut self, lines: &[u8]) -> (u64, Result<(), ()>) {
        if lines.is_empty() {
            return (0, Ok(()));
        }
        let count = lines.iter().filter(|&&byte| byte == b'\n').count() as u64;
        match self.try_write(lines) {
            Ok(()) => {
                if let Some(lost) = self.failing.take() {
                    tracing::warn!(lines = lost, "access log: written again; lines were lost");
                }
                (count, Ok(()))
            }
            Err(error) => {
                if self.failing.is_none() {
                    tracing::error!(%error, "access log: cannot write; lines are lost until it can");
                }
                *self.failing.get_or_insert(0) += count;
                (count, Err(()))
            }
        }
    }

    fn try_write(&mut self, lines: &[u8]) -> io::Result<()> {
        let out: &mut dyn Write = match &mut self.file {
            Some(file) => file,
            None => &mut io::stdout(),
        };
        if self.cut {
            out.write_all(b"\n")?;
            self.cut = false;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            match out.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.cut = rest[written - 1] != b'\n';
                    rest = &rest[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        out.flush()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

/// Bytes that may wait for the writer: a second of some 10 000 lines.
const CAPACITY: usize = 1 << 20;

/// Bytes at which the writer is woken at once.
const PLENTY: usize = 64 << 10;

const FLUSH_EACH: Duration = Duration::from_secs(1);

/// Between messages of dropped lines.
const TELL_EACH: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn push(writer: &Writer, text: &str) {
        writer.push(|line| {
            line.extend_from_slice(text.as_bytes());
            line.push(b'\n');
        });
    }

    #[test]
    fn lines_are_written_within_about_a_second_and_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let writer = Writer::start(LogTarget::File(path.clone())).unwrap();
        push(&writer, "a");
        let begun = Instant::now();
        while fs::read_to_string(&path).unwrap() != "a\n" {
            assert!(begun.elapsed() < Duration::from_secs(5));
            thread::sleep(Duration::from_millis(10));
        }
        push(&writer, "b");
        drop(writer);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
    }

    #[test]
    fn a_renamed_file_keeps_the_lines_before() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("log"), directory.path().join("old"));
        let writer = Writer::start(LogTarget::File(path.clone())).unwrap();
        push(&writer, "a");
        fs::rename(&path, &old).unwrap();
        writer.reopen();
        let begun = Instant::now();
        while !path.exists() {
            assert!(begun.elapsed() < Duration::from_secs(5));
            thread::sleep(Duration::from_millis(1));
        }
        push(&writer, "b");
        drop(writer);
        assert_eq!(fs::read_to_string(&old).unwrap(), "a\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "b\n");
    }

    #[test]
    fn a_flush_writes_what_was_pushed_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let writer = Writer::start(LogTarget::File(path.clone())).unwrap();
        for n in 1..=10 {
            push(&writer, "a");
            writer.flush(Duration::from_secs(10));
            assert_eq!(fs::read_to_string(&path).unwrap(), "a\n".repeat(n));
        }
        writer.flush(Duration::from_secs(10));
    }

    #[test]
    fn a_full_disk_costs_lines_only() {
        let writer = Writer::start(LogTarget::File("/dev/full".into())).unwrap();
        push(&writer, "a");
        push(&writer, "b");
        let begun = Instant::now();
        while writer.counts().failed != 2 {
            assert!(begun.elapsed() < Duration::from_secs(5));
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(writer.counts().written, 0);
    }

    #[test]
    fn a_full_buffer_drops_and_counts() {
        let shared = Shared::default();
        let writer = Writer {
            shared: Arc::new(shared),
            thread: None,
        };
        let line = "x".repeat(1023);
        for _ in 0..CAPACITY / 1024 + 5 {
            push(&writer, &line);
        }
        assert_eq!(writer.counts().dropped, 5);
    }
}
