//! The terminal: an alternate screen and single keys, restored at the end.

use std::io::{self, Stdin, Write};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use softclock_linux::signal::{Signal, SignalFd, SignalSet};

/// The terminal while `top` uses it. Dropping it restores the terminal.
pub(super) struct Terminal {
    input: Stdin,
    before: Termios,
    signals: SignalFd,
}

/// The request of a key or a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    /// End the display.
    End,
    /// No key, or one without a meaning.
    None,
}

impl Terminal {
    /// Switches to the alternate screen. Ctrl-C becomes a key, and signals become readable from a descriptor, so that
    /// the terminal is restored for these too.
    pub(super) fn enter() -> io::Result<Self> {
        let ending = [Signal::Interrupt, Signal::Terminate, Signal::Hangup];
        // Block the signals before the terminal changes: one that ended the program now would leave it changed.
        let signals = SignalSet::block(&ending)?.descriptor()?;
        let input = io::stdin();
        let before = tcgetattr(&input)?;
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(&input, OptionalActions::Now, &modes)?;
        let terminal = Self {
            input,
            before,
            signals,
        };
        terminal.write(OWN_SCREEN)?;
        Ok(terminal)
    }

    pub(super) fn width(&self) -> usize {
        let size = tcgetwinsize(&self.input);
        size.map_or(0, |size| usize::from(size.ws_col)).max(40)
    }

    /// The lines of text for which the terminal has room.
    fn height(&self) -> usize {
        let rows = tcgetwinsize(&self.input).map_or(0, |size| usize::from(size.ws_row));
        match rows {
            // Of unknown size, and so assumed to be large enough.
            0 => usize::MAX,
            rows => rows.saturating_sub(LAST_LINES),
        }
    }

    /// Replaces the displayed text. Leaves out the last lines if the terminal has less room, so that it does not scroll
    /// the first away.
    pub(super) fn show(&self, text: &str) -> io::Result<()> {
        let lines: String = text
            .lines()
            .take(self.height())
            .map(|line| format!("{line}{REST_OF_LINE}\r\n"))
            .collect();
        self.write(&format!("{HOME}{lines}\r\nq ends.{REST_OF_SCREEN}"))
    }

    /// Waits for a key or a signal, at most for `time`.
    pub(super) fn wait(&self, time: Duration) -> Key {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Key::None;
            }
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut sources = [
                PollFd::new(&self.input, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            // An interrupted poll reports no ready descriptors, so loop.
            let _ = poll(&mut sources, Some(&timeout));
            let [input, signals] = sources.map(|source| !source.revents().is_empty());
            if signals || (input && self.read() == Key::End) {
                return Key::End;
            }
        }
    }

    fn read(&self) -> Key {
        let mut keys = [0; 16];
        match rustix::io::read(&self.input, &mut keys) {
            Ok(count @ 1..) if !keys[..count].iter().any(|key| ENDING.contains(key)) => Key::None,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Key::None,
            // A key of `ENDING`, or the end of input.
            _ => Key::End,
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.write(FORMER_SCREEN);
        let _ = tcsetattr(&self.input, OptionalActions::Now, &self.before);
    }
}

/// Keys that end the display: q, Q, Ctrl-C, Ctrl-D.
const ENDING: [u8; 4] = [b'q', b'Q', 3, 4];

/// Lines below the text: an empty one and the hint.
const LAST_LINES: usize = 2;

const OWN_SCREEN: &str = "\x1b[?1049h\x1b[?25l";
const FORMER_SCREEN: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";
