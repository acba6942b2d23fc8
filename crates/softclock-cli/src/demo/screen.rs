//! Output to the terminal: a picture drawn over the previous one, or plain lines.

use std::io::{self, IsTerminal, StdoutLock, Write};
use std::time::Duration;

use rustix::termios::{Winsize, tcgetwinsize};

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
        if !plain && can_draw() {
            Self::Drawn(Drawing::begin())
        } else {
            Self::Plain(None)
        }
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
pub(crate) struct Drawing {
    /// Lines above the cursor that belong to the picture.
    drawn: usize,
}

impl Drawing {
    pub(crate) fn begin() -> Self {
        let drawing = Self { drawn: 0 };
        let _ = emit(&mut io::stdout().lock(), HIDE_CURSOR);
        drawing
    }

    pub(crate) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut frame = String::new();
        if self.drawn > 0 {
            frame += &format!("\x1b[{}A", self.drawn);
        }
        for line in lines {
            frame += &format!("\r{line}{CLEAR_TO_END}\n");
        }
        self.drawn = lines.len();
        emit(&mut io::stdout().lock(), &frame)
    }
}

impl Drop for Drawing {
    fn drop(&mut self) {
        let _ = emit(&mut io::stdout().lock(), SHOW_CURSOR);
    }
}

/// Writes all of `text` at once, so that a terminal does not show half a picture.
fn emit(out: &mut StdoutLock<'_>, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn can_draw() -> bool {
    let stdout = io::stdout();
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let roomy = |size: Winsize| {
        let (rows, columns) = (usize::from(size.ws_row), usize::from(size.ws_col));
        // A terminal of unknown size is assumed to be large enough.
        (rows == 0 || rows > HEIGHT) && (columns == 0 || columns >= WIDTH)
    };
    stdout.is_terminal() && !dumb && tcgetwinsize(&stdout).is_ok_and(roomy)
}

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_TO_END: &str = "\x1b[K";

/// Seconds between two lines.
const PLAIN_PAUSE_S: u64 = 2;
