//! Violations of the invariants: each is written to a file, from which it can be repeated.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::asked::Mode;
use crate::limits::DELAY;

/// The violations that the sessions of a round find, and their counts.
pub(crate) struct Recorder {
    pub(crate) mode: Mode,
    seed: u64,
    violations: RefCell<Vec<String>>,
    pub(crate) tally: Tally,
    /// The last [`beat`](Self::beat).
    last_beat: Cell<Instant>,
    /// The end of the last time in which this program could not run.
    held_up: Cell<Option<Instant>>,
}

/// Counts that show that a round was not idle.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) sessions: Cell<u64>,
    pub(crate) answers: Cell<u64>,
    /// Requests with a good upstream's answer.
    pub(crate) good: Cell<u64>,
    /// Requests that the proxy answered itself.
    pub(crate) given_up: Cell<u64>,
    pub(crate) refusals: Cell<u64>,
    pub(crate) streams: Cell<u64>,
    pub(crate) tunnels: Cell<u64>,
    /// Sessions that this machine delayed, so that the server's timeouts may have expired.
    pub(crate) delayed: Cell<u64>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            ("sessions", &self.sessions),
            ("answers", &self.answers),
            ("good", &self.good),
            ("given up", &self.given_up),
            ("refusals", &self.refusals),
            ("streams", &self.streams),
            ("tunnels", &self.tunnels),
            ("delayed", &self.delayed),
        ];
        let words = counts.map(|(name, count)| format!("{} {name}", count.get()));
        f.write_str(&words.join(", "))
    }
}

pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl Recorder {
    pub(crate) fn new(mode: Mode, seed: u64) -> Self {
        Self {
            mode,
            seed,
            violations: RefCell::default(),
            tally: Tally::default(),
            last_beat: Cell::new(Instant::now()),
            held_up: Cell::new(None),
        }
    }

    /// Records every [`BEAT`] that this program runs.
    pub(crate) async fn beat(&self) {
        loop {
            self.last_beat.set(Instant::now());
            softclock::sleep(BEAT).await;
            if self.is_held_up() {
                self.held_up.set(Some(Instant::now()));
            }
        }
    }

    /// Returns whether this program was so delayed since `begun` that the server's timeouts may have expired.
    pub(crate) fn was_held_up_since(&self, begun: Instant) -> bool {
        // A session may be judged before the next beat.
        self.is_held_up() || self.held_up.get().is_some_and(|end| end >= begun)
    }

    fn is_held_up(&self) -> bool {
        self.last_beat.get().elapsed() > BEAT + DELAY
    }

    /// Keeps a violation; `details` is all that helps to understand it.
    pub(crate) fn violation(&self, session: Option<u64>, what: &str, details: &str) {
        let mut violations = self.violations.borrow_mut();
        if violations.len() >= MOST {
            return;
        }
        let of = session.map_or_else(|| "round".into(), |session| format!("session-{session}"));
        let (mode, seed) = (self.mode, self.seed);
        let number = violations.len();
        let path = directory().join(format!("{mode:?}-{seed}-{of}-{number}.txt"));
        let again = repeat(mode, seed, session);
        let text = format!("{what}\n\nAgain: {again}\n\n{details}\n");
        fs::write(&path, text).expect("the directory takes files");
        violations.push(format!(
            "{of}: {what}\n    kept in {}\n    again: {again}",
            path.display()
        ));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.violations.borrow().len() >= MOST
    }

    /// Fails the test if there were violations.
    pub(crate) fn finish(&self, log: &str) {
        let violations = self.violations.borrow();
        let log = &log[log.ceil_char_boundary(log.len().saturating_sub(2_000))..];
        assert!(
            violations.is_empty(),
            "{:?}, seed {}: {}\nThe server's log ends with:\n{log}",
            self.mode,
            self.seed,
            violations.join("\n")
        );
    }
}

fn repeat(mode: Mode, seed: u64, session: Option<u64>) -> String {
    let one = session.map_or_else(String::new, |session| {
        format!("SOFTCLOCK_FUZZ_SESSION={session} ")
    });
    let test = format!("{mode:?}").to_lowercase();
    format!("SOFTCLOCK_FUZZ_SEED={seed} {one}cargo test -p softclock-cli --test fuzz {test}_keeps")
}

fn directory() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    fs::create_dir_all(&path).expect("a directory below target");
    path
}

/// Bytes as text, cut where they are many.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(4_096)];
    let rest = bytes.len() - shown.len();
    let text = shown
        .escape_ascii()
        .to_string()
        .replace("\\r\\n", "\\r\\n\n");
    match rest {
        0 => text,
        rest => format!("{text}\n... and {rest} bytes"),
    }
}

/// Violations kept of a round.
const MOST: usize = 5;

/// Interval between beats.
const BEAT: Duration = Duration::from_millis(50);
