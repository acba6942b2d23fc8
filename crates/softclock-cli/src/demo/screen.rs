//! Output to the terminal: a picture drawn over the previous one, or plain lines.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use rustix::termios::tcgetwinsize;
use softclock_linux::output::Output;

use super::picture::{self, HEIGHT, WIDTH};
use super::tally::Tally;

/// The style of the output.
pub(super) enum Screen {
    Drawn(Drawing),
    /// Plain lines, and the second of the last one printed.
    Plain(Option<u64>),
}

impl Screen {
    /// Draws if standard output is a terminal that is large enough and supports it, unless `plain` is set.
    pub(super) fn new(plain: bool) -> Self {
        let drawing = (!plain && can_draw()).then(Drawing::begin);
        drawing.flatten().map_or(Self::Plain(None), Self::Drawn)
    }

    /// Shows the results so far, after `shown` of `all` the time.
    pub(super) fn show(
        &mut self,
        tally: &Tally,
        shown: Duration,
        all: Duration,
        last: bool,
    ) -> io::Result<()> {
        match self {
            Self::Drawn(drawing) => drawing.draw(&picture::whole(tally, shown, all)),
            Self::Plain(told) => {
                let mut out = io::stdout().lock();
                if told.is_none() {
                    out.write_all(picture::opening(all).as_bytes())?;
                }
                let seconds = shown.as_secs();
                if last {
                    out.write_all(picture::table(tally).as_bytes())?;
                } else if told.is_none_or(|told| seconds >= told + PLAIN_PAUSE_S) {
                    if tally.rounds() > 0 {
                        writeln!(out, "{}", picture::progress(tally, shown))?;
                    }
                    *told = Some(seconds);
                }
                out.flush()
            }
        }
    }
}

/// A picture that is drawn over the previous one, with the cursor hidden until it is dropped.
///
/// Drawing does not wait for the terminal, which may be stopped (Ctrl-S) or behind a slow connection.
pub(crate) struct Drawing {
    out: Output,
    /// The rest of a picture for which the terminal had no room.
    rest: Vec<u8>,
    /// Lines above the cursor that belong to the picture.
    drawn: usize,
}

impl Drawing {
    /// Begins to draw on standard output; `None` if that cannot be used.
    pub(crate) fn begin() -> Option<Self> {
        let mut drawing = Self {
            out: Output::stdout().ok()?,
            rest: HIDE_CURSOR.into(),
            drawn: 0,
        };
        let _ = drawing.flush(Duration::ZERO);
        Some(drawing)
    }

    /// Draws a picture of these lines, or nothing if the terminal has not taken all of an earlier one. Leaves out what
    /// exceeds the size of the terminal, since wrapped or scrolled lines could not be drawn over.
    pub(crate) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        self.flush(Duration::ZERO)?;
        if !self.rest.is_empty() {
            return Ok(());
        }
        let mut frame = String::new();
        if self.drawn > 0 {
            frame += &format!("\x1b[{}A", self.drawn);
        }
        let (rows, columns) = size();
        let lines = &lines[..lines.len().min(rows - 1)];
        for line in lines {
            frame += &format!("\r{}\n", fitted(line, columns));
        }
        self.drawn = lines.len();
        self.rest = frame.into_bytes();
        self.flush(Duration::ZERO)
    }

    /// Writes what the terminal takes within `limit`, and keeps the rest.
    fn flush(&mut self, limit: Duration) -> io::Result<()> {
        let written = self.out.write_within(&self.rest, limit)?;
        self.rest.drain(..written);
        Ok(())
    }
}

impl Drop for Drawing {
    fn drop(&mut self) {
        self.rest.extend_from_slice(SHOW_CURSOR.as_bytes());
        let _ = self.flush(END_LIMIT);
    }
}

/// Whether standard output is a terminal that supports drawing.
pub(crate) fn is_drawable() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    io::stdout().is_terminal() && !is_dumb
}

/// Whether the pictures of the demo can be drawn.
fn can_draw() -> bool {
    let (rows, columns) = size();
    is_drawable() && rows > HEIGHT && columns >= WIDTH
}

/// Rows and columns of the terminal. One of unknown size is assumed to be large enough.
fn size() -> (usize, usize) {
    let known = |count: u16| match count {
        0 => usize::MAX,
        count => count.into(),
    };
    let size = tcgetwinsize(io::stdout());
    size.map_or((usize::MAX, usize::MAX), |size| {
        (known(size.ws_row), known(size.ws_col))
    })
}

/// Cuts a line to the width of the terminal. A line of exactly this width needs no clearing of the rest, which would
/// erase its last character.
fn fitted(line: &str, columns: usize) -> String {
    let end = line.char_indices().nth(columns);
    let cut = &line[..end.map_or(line.len(), |(end, _)| end)];
    match cut.chars().count() < columns {
        true => format!("{cut}{CLEAR_TO_END}"),
        false => cut.to_owned(),
    }
}

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_TO_END: &str = "\x1b[K";

/// Time limit for the end of a drawing if the terminal takes no output.
const END_LIMIT: Duration = Duration::from_secs(1);

/// Seconds between two lines.
const PLAIN_PAUSE_S: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_to_the_terminal() {
        assert_eq!(fitted("abc", 4), format!("abc{CLEAR_TO_END}"));
        assert_eq!(fitted("äbcd", 4), "äbcd");
        assert_eq!(fitted("äbcde", 4), "äbcd");
        assert_eq!(fitted("abc", usize::MAX), format!("abc{CLEAR_TO_END}"));
    }
}
