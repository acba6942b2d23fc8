//! Lines that are written off the loop, whatever becomes of where they go.
//!
//! They gather in a bounded buffer, from which one thread takes all there are. A full buffer means that lines are dropped
//! and counted: a log may suffer, a server may not. The thread waits for room in a pipe or a terminal only as long as
//! nothing is ordered ([`sink`]), so that a log that nothing reads can be opened anew and ended.

mod sink;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use softclock::output::Interrupt;

use crate::limit::Limit;
use sink::Sink;

/// Where lines are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Appended to this file.
    File(PathBuf),
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A log of lines. Dropping it has the rest written by its thread, which gives up after five seconds.
#[derive(Debug)]
pub struct LineLog {
    shared: Arc<Shared>,
}

/// What a log is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogUse {
    /// What messages call it.
    pub(crate) name: &'static str,
    /// What the thread is called.
    pub(crate) thread: &'static str,
    /// How long lines gather unless there is much.
    pub(crate) gather: Duration,
    /// Reached when a line is dropped.
    pub(crate) limit: Limit,
    pub(crate) counts: &'static LineCounts,
}

/// Lines of all logs of a use, by what became of them.
#[derive(Debug, Default)]
pub(crate) struct LineCounts {
    /// Handed to the operating system.
    pub(crate) written: AtomicU64,
    /// Found the buffer full.
    pub(crate) dropped: AtomicU64,
    /// Could not be written.
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

/// Flushes a log, also one that was dropped and is written to its end yet.
#[derive(Debug)]
pub(crate) struct Flusher(Weak<Shared>);

#[derive(Debug)]
struct Shared {
    log: LogUse,
    state: Mutex<State>,
    /// There is something to do for the thread, where it waits for lines.
    work: Condvar,
    /// The same, where it waits for room.
    interrupt: Interrupt,
    /// The thread has flushed, or ended.
    flushed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whole lines.
    lines: Vec<u8>,
    /// Lines that the thread has taken and not written yet.
    taken: u64,
    orders: Orders,
    ended: bool,
}

/// What the thread is to do once it has written.
#[derive(Clone, Copy, Debug, Default)]
struct Orders {
    reopen: bool,
    flush: bool,
    /// To end, at the latest then.
    end: Option<Instant>,
}

impl Orders {
    const fn any(self) -> bool {
        self.reopen || self.flush || self.end.is_some()
    }
}

impl LineLog {
    /// The program's own log, on standard error. Each line is written as soon as there is room for it.
    ///
    /// # Errors
    /// No thread or descriptor to be had.
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

    /// Appends a line with its end, which `write` makes, unless the buffer is full. Never waits for the disk or a reader.
    pub fn push(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let log = &self.shared.log;
        let mut state = self.shared.lock();
        let before = state.lines.len();
        if before >= CAPACITY {
            drop(state);
            log.counts.dropped.fetch_add(1, Relaxed);
            match log.limit {
                // This message would go the same way; the thread says it when there is room.
                Limit::Log => Limit::Log.count_one(),
                limit => limit.reached("they are written too slowly", "lines are dropped"),
            }
            return;
        }
        write(&mut state.lines);
        let after = state.lines.len();
        drop(state);
        // The thread sleeps without limit on an empty buffer, and else until lines have gathered or there is much.
        if before == 0 || (before < PLENTY && after >= PLENTY) {
            self.shared.work.notify_one();
        }
    }

    /// Opens the file anew, after it was renamed. Lines so far go to the old one, unless it has no room for them.
    pub(crate) fn reopen(&self) {
        self.shared.order(|orders| orders.reopen = true);
    }

    /// Waits until all lines so far are written, but no longer than `limit`; returns how many are not. Blocks the thread.
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
    /// Whether there is a thread that writes.
    pub(crate) fn is_needed(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// As [`LineLog::flush`]; logs how many lines are lost if the process ends now.
    pub(crate) fn flush(&self, limit: Duration) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let lines = shared.flush(limit);
        if lines > 0 {
            let name = shared.log.name;
            tracing::error!(lines, "{name}: lines are lost: nothing takes them");
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
            // Now the buffer has room.
            if self.log.limit == Limit::Log {
                say_dropped(counts.dropped.load(Relaxed), &mut said);
            }
            self.write(&mut sink, &lines);
            lines.clear();
            // What a flood has grown is not kept for ever.
            lines.shrink_to(PLENTY);
            let mut state = self.lock();
            state.taken = 0;
            if orders.end.is_some() {
                // Those that came while the last were given up.
                let rest = std::mem::take(&mut state.lines);
                counts.failed.fetch_add(count(&rest), Relaxed);
                state.ended = true;
            }
            if orders.flush {
                state.orders.flush = false;
            }
            // Unless it was obeyed while waiting for room. One given since then waits for the lines before it.
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

    /// Waits for lines or an order, then takes all lines there are. Orders stay until they are obeyed, as what is written next
    /// may have to wait for room, which a file opened anew makes.
    fn take(&self, lines: &mut Vec<u8>) -> Orders {
        let state = self
            .work
            .wait_while(self.lock(), |state| {
                state.lines.is_empty() && !state.orders.any()
            })
            .unwrap_or_else(PoisonError::into_inner);
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

    /// Writes whole lines, or counts them as failed.
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

    /// Waits for room, or for an order that makes some: a file opened anew. An error if there is no more time.
    fn wait_for_room(&self, sink: &mut Sink) -> io::Result<()> {
        let orders = {
            let mut state = self.lock();
            let orders = state.orders;
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
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "nothing takes them",
            ));
        }
        sink.wait_for_room(&self.interrupt, left)
    }
}

/// Logs how many lines were dropped, but no more than once a second.
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

/// How many lines end in `bytes`.
fn count(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Bytes that may wait for the thread: a second of some 10 000 lines.
const CAPACITY: usize = 1 << 20;

/// Bytes at which the thread is woken at once.
const PLENTY: usize = 64 << 10;

/// How long a log that is dropped may take to write the rest.
const END_LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
