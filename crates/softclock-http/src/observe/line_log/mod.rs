//! A log written by its own thread, so that a slow or blocked destination never delays the caller.
//!
//! Lines are collected in a bounded buffer, which the thread empties. Lines that find the buffer full are dropped and
//! counted. While the thread waits for room in a pipe or a terminal ([`sink`]), an order to reopen, flush or end
//! interrupts the wait, so a log that no program reads can still be reopened and ended.

mod sink;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use softclock::output::Interrupt;

use crate::observe::limit::Limit;
use sink::Sink;

/// The destination of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Appends to this file.
    File(PathBuf),
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A log of lines. After it is dropped its thread writes the remaining lines, for up to five seconds.
#[derive(Debug)]
pub struct LineLog {
    shared: Arc<Shared>,
}

/// The properties in which kinds of logs differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogUse {
    /// The name of the log in messages.
    pub(crate) name: &'static str,
    /// The thread's name.
    pub(crate) thread: &'static str,
    /// How long lines are collected before they are written, unless there are many.
    pub(crate) gather: Duration,
    /// The limit that is reached when a line is dropped.
    pub(crate) limit: Limit,
    pub(crate) counts: &'static LineCounts,
}

/// Line counts of all logs of a kind, by outcome.
#[derive(Debug, Default)]
pub(crate) struct LineCounts {
    /// Lines handed to the operating system.
    pub(crate) written: AtomicU64,
    /// Lines dropped because the buffer was full.
    pub(crate) dropped: AtomicU64,
    /// Lines that could not be written.
    pub(crate) failed: AtomicU64,
}

impl LineCounts {
    pub(crate) const fn new() -> Self {
        Self {
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }
}

/// Flushes a log. It also works after the log was dropped, while its thread writes the remaining lines.
#[derive(Debug)]
pub(crate) struct Flusher(Weak<Shared>);

#[derive(Debug)]
struct Shared {
    log: LogUse,
    state: Mutex<State>,
    /// Wakes the thread while it waits for lines.
    work: Condvar,
    /// Wakes the thread while it waits for room.
    interrupt: Interrupt,
    /// Signals that the thread has flushed or ended.
    flushed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Complete lines.
    lines: Vec<u8>,
    /// The number of lines that the thread has taken but not written yet.
    taken: u64,
    orders: Orders,
    ended: bool,
}

/// Orders that the thread executes after it has written the lines at hand.
#[derive(Clone, Copy, Debug, Default)]
struct Orders {
    reopen: bool,
    flush: bool,
    /// End, at this time at the latest.
    end: Option<Instant>,
}

impl Orders {
    const fn any(self) -> bool {
        self.reopen || self.flush || self.end.is_some()
    }
}

impl LineLog {
    /// Starts the program's own log, on standard error. Lines are written as soon as the destination has room.
    ///
    /// # Errors
    /// Those of starting a thread and of opening a descriptor.
    pub fn stderr() -> io::Result<Self> {
        static COUNTS: LineCounts = LineCounts::new();
        let log = LogUse {
            name: "log",
            thread: "softclock-err",
            gather: Duration::ZERO,
            limit: Limit::Log,
            counts: &COUNTS,
        };
        Self::start(LogTarget::Stderr, log)
    }

    pub(crate) fn start(target: LogTarget, log: LogUse) -> io::Result<Self> {
        let sink = Sink::open(target, log.name)?;
        let shared = Arc::new(Shared {
            log,
            state: Mutex::default(),
            work: Condvar::new(),
            interrupt: Interrupt::new()?,
            flushed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        thread::Builder::new()
            .name(log.thread.into())
            .spawn(move || own.run(sink))?;
        Ok(Self { shared })
    }

    /// Appends a line, which `write` must end with a line feed. If the buffer is full, drops and counts the line
    /// instead. Never blocks on the disk or a reader.
    pub fn push(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let log = &self.shared.log;
        let mut state = self.shared.lock();
        let before = state.lines.len();
        if before >= CAPACITY {
            drop(state);
            log.counts.dropped.fetch_add(1, Relaxed);
            match log.limit {
                // A message about it would be dropped as well; the thread logs one when the buffer has room.
                Limit::Log => Limit::Log.count_one(),
                limit => limit.reached("lines are written too slowly", "lines dropped"),
            }
            return;
        }
        write(&mut state.lines);
        let after = state.lines.len();
        drop(state);
        // With an empty buffer the thread waits to be woken; otherwise until the lines are old enough or many.
        if before == 0 || (before < PLENTY && after >= PLENTY) {
            self.shared.work.notify_one();
        }
    }

    /// Reopens the file after it was renamed. Lines pushed before go to the old file if it has room for them.
    pub(crate) fn reopen(&self) {
        self.shared.order(|orders| orders.reopen = true);
    }

    /// Waits up to `limit` until all lines pushed before are written; returns the number of those that are not. Blocks
    /// the thread.
    pub fn flush(&self, limit: Duration) -> u64 {
        self.shared.flush(limit)
    }

    pub(crate) fn flusher(&self) -> Flusher {
        Flusher(Arc::downgrade(&self.shared))
    }
}

impl Drop for LineLog {
    fn drop(&mut self) {
        let end = Instant::now() + END_LIMIT;
        self.shared.order(|orders| orders.end = Some(end));
    }
}

impl Flusher {
    /// Returns whether the log's thread still runs.
    pub(crate) fn is_needed(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Like [`LineLog::flush`]; logs the number of lines that would be lost if the process ended.
    pub(crate) fn flush(&self, limit: Duration) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let lines = shared.flush(limit);
        if lines > 0 {
            let name = shared.log.name;
            tracing::error!(
                lines,
                "{name}: lines are lost: they could not be written in time"
            );
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, give: impl FnOnce(&mut Orders)) {
        give(&mut self.lock().orders);
        self.work.notify_one();
        self.interrupt.raise();
    }

    fn flush(&self, limit: Duration) -> u64 {
        self.order(|orders| orders.flush = true);
        // A thread that has ended clears no orders.
        let unflushed = |state: &mut State| state.orders.flush && !state.ended;
        let waited = self
            .flushed
            .wait_timeout_while(self.lock(), limit, unflushed);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.taken + count(&state.lines)
    }

    fn run(&self, mut sink: Sink) {
        let counts = self.log.counts;
        let mut lines = Vec::new();
        let mut said = (counts.dropped.load(Relaxed), None);
        loop {
            let orders = self.take(&mut lines);
            // Only here the buffer certainly has room for another line.
            if self.log.limit == Limit::Log {
                say_dropped(counts.dropped.load(Relaxed), &mut said);
            }
            self.write(&mut sink, &lines);
            lines.clear();
            // Frees the memory that a flood of lines took.
            lines.shrink_to(PLENTY);
            let mut state = self.lock();
            state.taken = 0;
            if orders.end.is_some() {
                // Lines pushed after the last ones were taken are lost.
                let rest = std::mem::take(&mut state.lines);
                counts.failed.fetch_add(count(&rest), Relaxed);
                state.ended = true;
            }
            if orders.flush {
                state.orders.flush = false;
            }
            // An order that `wait_for_room` has executed is cleared already. One given since then waits for the lines
            // pushed before it.
            let reopen = orders.reopen && std::mem::take(&mut state.orders.reopen);
            drop(state);
            self.flushed.notify_all();
            if reopen {
                sink.reopen();
            }
            if orders.end.is_some() {
                return;
            }
        }
    }

    /// Waits for lines or an order, then takes all lines. Orders stay set until they are executed: writing the lines
    /// may have to wait for room, which reopening the file can provide.
    fn take(&self, lines: &mut Vec<u8>) -> Orders {
        let state = self
            .work
            .wait_while(self.lock(), |state| {
                state.lines.is_empty() && !state.orders.any()
            })
            .unwrap_or_else(PoisonError::into_inner);
        // Waits for more lines after the first, so that one call writes them all.
        let (mut state, _) = self
            .work
            .wait_timeout_while(state, self.log.gather, |state| {
                state.lines.len() < PLENTY && !state.orders.any()
            })
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.lines, lines);
        state.taken = count(lines);
        state.orders
    }

    /// Writes all lines, or counts those that cannot be written as failed.
    fn write(&self, sink: &mut Sink, lines: &[u8]) {
        let mut rest = lines;
        while !rest.is_empty() {
            match sink.write(rest) {
                Ok(written) => {
                    let (done, left) = rest.split_at(written);
                    let done = count(done);
                    self.log.counts.written.fetch_add(done, Relaxed);
                    self.lock().taken -= done;
                    rest = left;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Err(error) = self.wait_for_room(sink) {
                        return self.fail(sink, rest, &error);
                    }
                }
                Err(error) => return self.fail(sink, rest, &error),
            }
        }
        if !lines.is_empty() {
            sink.note_success();
        }
    }

    fn fail(&self, sink: &mut Sink, lines: &[u8], error: &io::Error) {
        let lines = count(lines);
        self.log.counts.failed.fetch_add(lines, Relaxed);
        sink.note_failure(lines, error);
    }

    /// Waits for room in the sink, or for an order. Reopens the file if ordered, as that may provide room.
    ///
    /// # Errors
    /// When the time to end is over.
    fn wait_for_room(&self, sink: &mut Sink) -> io::Result<()> {
        let orders = {
            let mut state = self.lock();
            let orders = state.orders;
            // Executed here, so `run` must not execute it again.
            state.orders.reopen = false;
            orders
        };
        if orders.reopen {
            sink.reopen();
            return Ok(());
        }
        let left = orders
            .end
            .map(|end| end.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no room in time"));
        }
        sink.wait_for_room(&self.interrupt, left)
    }
}

/// Logs the number of dropped lines, at most once a second.
fn say_dropped(dropped: u64, said: &mut (u64, Option<Instant>)) {
    let (before, when) = *said;
    let is_early = when.is_some_and(|when| when.elapsed() < Duration::from_secs(1));
    if dropped > before && !is_early {
        *said = (dropped, Some(Instant::now()));
        let limit = Limit::Log.name();
        let lines = dropped - before;
        tracing::warn!(
            limit,
            lines,
            "limit reached: lines of this log were dropped, as they were written too slowly"
        );
    }
}

/// Returns the number of lines that end in `bytes`.
fn count(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// The most bytes that may wait for the thread: about a second at 10 000 lines per second.
const CAPACITY: usize = 1 << 20;

/// The number of bytes at which the thread is woken at once.
const PLENTY: usize = 64 << 10;

/// How long a dropped log may take to write its remaining lines.
const END_LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
