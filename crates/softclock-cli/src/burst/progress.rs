//! A progress bar for reading captures.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::units::format_bytes;
use crate::bar::bar;

/// A line on standard error that is erased at the end; does nothing if standard error is not a terminal.
pub(super) struct Progress {
    /// `None` if the size of an input is unknown.
    total_bytes: Option<u64>,
    done_bytes: u64,
    /// Time of the last update, or `None` if standard error is not a terminal.
    last: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(total_bytes: Option<u64>) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let seen = io::stderr().is_terminal() && !dumb;
        Self {
            total_bytes,
            done_bytes: 0,
            last: seen.then(Instant::now),
            is_shown: false,
        }
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.done_bytes += bytes as u64;
        if let Some(last) = &mut self.last
            && last.elapsed() >= PAUSE
        {
            *last = Instant::now();
            self.is_shown = true;
            let line = line(self.done_bytes, self.total_bytes);
            // Ignore the error: progress is not essential.
            let _ = write!(io::stderr(), "\r{line}{CLEAR_TO_END}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r{CLEAR_TO_END}");
        }
    }
}

fn line(done_bytes: u64, total_bytes: Option<u64>) -> String {
    let done = format_bytes(done_bytes);
    match total_bytes {
        Some(total) if total > 0 => {
            let share = (done_bytes as f64 / total as f64).min(1.0);
            let bar = bar(share, WIDTH);
            let percent = share * 100.0;
            let total = format_bytes(total);
            format!("{percent:>3.0} % {bar:<WIDTH$} {done} of {total}")
        }
        _ => format!("{done} read"),
    }
}

/// Interval between updates.
const PAUSE: Duration = Duration::from_millis(100);

const WIDTH: usize = 40;

const CLEAR_TO_END: &str = "\x1b[K";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let half = line(500_000_000, Some(1_000_000_000));
        assert!(half.starts_with(" 50 % ████████████████████ "), "{half}");
        assert!(half.ends_with("500 MB of 1.00 GB"), "{half}");
        assert_eq!(line(7_000, None), "7.00 kB read");
    }
}
