//! One line on the terminal that says how far the load is.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use super::hot::HotResult;

/// A bar on standard error, if that is a terminal.
pub(super) struct Bar {
    total: Duration,
    shown: bool,
}

impl Bar {
    pub(super) fn new(total: Duration) -> Self {
        Self {
            total,
            shown: stderr().is_terminal(),
        }
    }

    pub(super) fn show(&self, elapsed: Duration, result: &HotResult) {
        if self.shown {
            eprint!("\r\x1b[K{}", line(elapsed, self.total, result));
            // A terminal that is gone is noticed elsewhere.
            let _ = stderr().flush();
        }
    }

    pub(super) fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

fn line(elapsed: Duration, total: Duration, result: &HotResult) -> String {
    let share = (elapsed.as_secs_f64() / total.as_secs_f64().max(1e-9)).min(1.0);
    let full = (share * WIDTH as f64) as usize;
    format!(
        "[{}{}] {:.0}/{:.0} s  {} answered  {} failed  p99 {} us",
        "=".repeat(full),
        " ".repeat(WIDTH - full),
        elapsed.as_secs_f64(),
        total.as_secs_f64(),
        result.completed(),
        result.failed(),
        result.latency_us(0.99),
    )
}

const WIDTH: usize = 30;
