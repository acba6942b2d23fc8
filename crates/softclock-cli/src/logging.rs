//! Logging to standard error.

use std::io::{self, IsTerminal};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::cli::LogLevel;

/// Changes what is logged from now on.
pub(crate) struct Logging {
    level: reload::Handle<LevelFilter, Registry>,
}

/// Logs events up to `level`.
pub(crate) fn start(level: LogLevel) -> Logging {
    let (filter, level) = reload::Layer::new(filter(level));
    let lines = fmt::layer()
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .with_target(false);
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
    Logging { level }
}

impl Logging {
    pub(crate) fn set_level(&self, level: LogLevel) {
        // Fails only where the subscriber is gone.
        let _ = self.level.reload(filter(level));
    }
}

const fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
