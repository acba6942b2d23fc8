//! Logging to standard error that never blocks the server: lines wait in memory if the reader is slow.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use softclock::output::Output;
use softclock_http::LineLog;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

/// The least level of the events that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// The running log: changes its level, and adds lines without an event. Clones share it.
#[derive(Clone)]
pub(crate) struct Logging {
    level: reload::Handle<Targets, Registry>,
    lines: Arc<LineLog>,
}

/// Starts to log events up to `level`; a separate thread writes the lines.
pub(crate) fn start(level: LogLevel) -> io::Result<Logging> {
    let lines = Arc::new(LineLog::stderr()?);
    let (filter, level) = reload::Layer::new(filter(level));
    let own = Arc::clone(&lines);
    let layer = fmt::layer()
        .with_ansi(io::stderr().is_terminal())
        .with_writer(move || Line(Arc::clone(&own)))
        .with_target(false);
    tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .init();
    let logging = Logging { level, lines };
    logging.take_panics();
    Ok(logging)
}

/// Writes to standard error why the program ends or does not start. Waits up to five seconds for a slow reader, as the
/// reason appears nowhere else.
pub(crate) fn complain(line: &str) {
    tell(&format!("softclock: {line}\n"), COMPLAIN_LIMIT);
}

/// Writes a line about the running program to standard error. Waits up to a tenth of a second for a slow reader, since
/// the thread may have frames to forward.
pub(crate) fn note(line: &str) {
    tell(&format!("softclock: {line}\n"), NOTE_LIMIT);
}

/// Writes a question to standard error.
pub(crate) fn ask(question: &str) {
    tell(&format!("softclock: {question} "), COMPLAIN_LIMIT);
}

/// Writes to standard error. Ignores errors, which `eprint!` would turn into a panic.
fn tell(text: &str, limit: Duration) {
    let _ = Output::stderr().and_then(|out| out.write_within(text.as_bytes(), limit));
}

impl Logging {
    pub(crate) fn set_level(&self, level: LogLevel) {
        // Fails only if the subscriber no longer exists; then there is no level to set.
        let _ = self.level.reload(filter(level));
    }

    /// Appends a line without a time or a level.
    pub(crate) fn say(&self, line: &str) {
        let _ = writeln!(Line(Arc::clone(&self.lines)), "{line}");
    }

    /// Waits up to a second until all lines are written. Call it before the process ends.
    pub(crate) fn finish(&self) {
        self.lines.flush(FINISH_LIMIT);
    }

    /// Returns a guard that finishes the log when dropped, also by a panic that ends the process.
    pub(crate) fn finish_at_end(&self) -> FinishAtEnd {
        FinishAtEnd(self.clone())
    }

    /// Sends the messages of panics to the log. The standard library would write them to standard error directly, and
    /// block this thread until the reader takes them, while other tasks could run.
    fn take_panics(&self) {
        let logging = self.clone();
        std::panic::set_hook(Box::new(move |panic| {
            let trace = std::backtrace::Backtrace::capture();
            let trace = match trace.status() {
                std::backtrace::BacktraceStatus::Captured => format!("\n{trace}"),
                _ => String::new(),
            };
            logging.say(&format!("softclock: {panic}{trace}"));
        }));
    }
}

/// Writes the last lines of the log when dropped.
pub(crate) struct FinishAtEnd(Logging);

impl Drop for FinishAtEnd {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Collects the text of one event, and appends it to the log as a line.
struct Line(Arc<LineLog>);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(|line| line.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn filter(level: LogLevel) -> Targets {
    let filter = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let targets = Targets::new().with_default(filter);
    match level {
        LogLevel::Error => targets,
        _ => targets.with_target(NOTICE, LevelFilter::INFO),
    }
}

/// Target of INFO events that are logged even at the default level: the answers to an operator's request, such as a
/// reload.
pub(crate) const NOTICE: &str = "softclock::notice";

const COMPLAIN_LIMIT: Duration = Duration::from_secs(5);
const NOTE_LIMIT: Duration = Duration::from_millis(100);

const FINISH_LIMIT: Duration = Duration::from_secs(1);
