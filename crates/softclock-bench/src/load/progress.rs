//! The progress of a load, in one line on the terminal.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use super::hot::HotResult;

/// A progress bar on standard error; not shown if that is not a terminal.
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
            // A failure to write to the terminal must not end the load.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_as_full_as_the_time_is_over() {
        let mut result = HotResult::new();
        result.latency_us.saturating_record(70);
        result.errors.insert("no answer in time".into(), 2);
        let line = |elapsed, total| {
            let [elapsed, total] = [elapsed, total].map(Duration::from_secs);
            line(elapsed, total, &result)
        };
        let half = line(5, 10);
        let bar = format!("[{}{}]", "=".repeat(15), " ".repeat(15));
        assert_eq!(
            half,
            format!("{bar} 5/10 s  1 answered  2 failed  p99 70 us")
        );
        // Late answers can arrive after the load's duration.
        assert!(line(12, 10).starts_with(&format!("[{}]", "=".repeat(30))));
        assert!(line(0, 0).starts_with(&format!("[{}]", " ".repeat(30))));
    }
}
