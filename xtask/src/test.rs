//! `cargo xtask test`: every test, live, and the counts summed over all test programs.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::command::cargo;
use crate::steps::{Outcome, Steps};
use crate::{go_programs, packages};

/// Installs missing packages, runs the tests, and prints the counts in the last line.
pub(crate) fn task(arguments: &[String]) -> ExitCode {
    let mut steps = Steps::default();
    steps.run("packages", packages::install_missing);
    steps.run("programs in Go", go_programs::install_missing);
    let mut counts = Counts::default();
    steps.run("tests", || step(arguments, &mut counts));
    steps.summary();
    println!("{counts}");
    steps.exit_code()
}

/// The same without the surroundings, for `ci`.
pub(crate) fn step(arguments: &[String], counts: &mut Counts) -> Result<Outcome, String> {
    let log = SkipLog::new();
    let run = |arguments: &[String], environment, counts: &mut Counts| {
        let run = Run {
            arguments,
            environment,
            log: log.path(),
        };
        run.count(counts)
    };
    let mut result = run(arguments, None, counts);
    if arguments.is_empty() {
        for (mechanism, tests) in MECHANISMS {
            let tests: Vec<String> = tests.split(' ').map(str::to_owned).collect();
            let again = run(&tests, Some(("SOFTCLOCK_EVENTS", mechanism)), counts);
            result = result.and(again.map_err(|error| format!("by {mechanism}: {error}")));
        }
    }
    let outcome = log.outcome(counts);
    result.and(outcome)
}

/// A run of `cargo test`.
pub(crate) struct Run<'a> {
    pub(crate) arguments: &'a [String],
    /// A variable to set in its environment, with its value.
    pub(crate) environment: Option<(&'a str, &'a str)>,
    /// The file of a [`SkipLog`].
    pub(crate) log: &'a Path,
}

impl Run<'_> {
    /// Runs the tests, and adds their results to `counts`.
    pub(crate) fn count(&self, counts: &mut Counts) -> Result<(), String> {
        let scope = (!names_packages(self.arguments)).then_some("--workspace");
        let mut child = cargo(["test", "--all-features", "--no-fail-fast"])
            .args(scope)
            .args(self.arguments)
            .envs(self.environment)
            .env("SOFTCLOCK_SKIP_LOG", self.log)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start cargo test: {error}"))?;
        let stdout = child.stdout.take().ok_or("cargo test has no output")?;
        let output = Counts::read_in_background(stdout);
        let status = child
            .wait()
            .map_err(|error| format!("cannot wait for cargo test: {error}"))?;
        let found = last_count(&output)?;
        counts.passed += found.passed;
        counts.failed += found.failed;
        counts.skipped += found.skipped;
        if status.success() {
            return Ok(());
        }
        // A program that crashed, or did not compile, prints no result to sum up.
        counts.failed = counts.failed.max(1);
        Err(format!("cargo test ended with {status}"))
    }
}

/// Whether cargo's own arguments choose packages, which `--workspace` would override.
fn names_packages(arguments: &[String]) -> bool {
    let mut own = arguments.iter().take_while(|argument| *argument != "--");
    own.any(|argument| argument.starts_with("-p") || argument.starts_with("--package"))
}

/// The counts once the output ends. A process left behind by a test would hold it open for ever.
fn last_count(output: &mpsc::Receiver<Counts>) -> Result<Counts, String> {
    const PATIENCE: Duration = Duration::from_secs(10);
    output.recv_timeout(PATIENCE).map_err(|_| {
        "a test left a process behind that still holds the output of cargo test".to_owned()
    })
}

/// The runtime, the server and the proxy are tested again by each mechanism of readiness but the default, without the
/// test that takes a minute. `select` leaves out the one with more descriptors than it can take and those of clients
/// that are lost, which it does not tell, and `poll` the one that lowers the limit of descriptors below those in use,
/// with which poll(2) fails.
const MECHANISMS: [(&str, &str); 3] = [
    (
        "io_uring",
        "--test runtime --test serve --test proxy -- --skip soak",
    ),
    (
        "poll",
        "--test runtime --test serve --test proxy -- --skip soak --skip without_descriptors",
    ),
    (
        "select",
        "--test runtime --test serve --test proxy -- --skip soak --skip idle_connections_are_small --skip that_leaves_before --skip clients_that_leave --skip what_holds_the_only_place --skip a_reload_keeps_the_count",
    ),
];

/// Tests passed, failed and skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    fn read_in_background(stdout: ChildStdout) -> mpsc::Receiver<Counts> {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let counts = Counts::read(stdout, io::stdout());
            // The receiver is gone if the output took too long to end.
            let _ = sender.send(counts);
        });
        receiver
    }

    /// Copies `input` to `shown` as it comes, unfinished lines included, and sums up its results.
    fn read(mut input: impl Read, mut shown: impl Write) -> Counts {
        let mut counts = Counts::default();
        let mut line = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = input.read(&mut buffer) {
            let bytes = &buffer[..length];
            // The tests continue even if standard output is closed.
            let _ = shown.write_all(bytes).and_then(|()| shown.flush());
            for &byte in bytes {
                if byte == b'\n' {
                    counts.add_line(&String::from_utf8_lossy(&line));
                    line.clear();
                } else {
                    line.push(byte);
                }
            }
        }
        counts.add_line(&String::from_utf8_lossy(&line));
        counts
    }

    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`; ignores others.
    fn add_line(&mut self, line: &str) {
        let Some((_, result)) = line.split_once("test result: ") else {
            return;
        };
        let numbers = result.split_once(". ").map_or("", |(_, numbers)| numbers);
        for part in numbers.split(';') {
            let mut words = part.split_whitespace();
            let (Some(number), Some(kind)) = (words.next(), words.next()) else {
                continue;
            };
            let number: usize = number.parse().unwrap_or(0);
            match kind {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }

    /// A test that skips itself returns early, so libtest counted it as passed.
    fn count_skipped(&mut self, skipped: usize) {
        self.passed = self.passed.saturating_sub(skipped);
        self.skipped += skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// The file to which tests append a line when they skip themselves, or leave something out.
pub(crate) struct SkipLog(PathBuf);

impl SkipLog {
    pub(crate) fn new() -> Self {
        let name = format!("softclock-skipped-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Prints the lines, and adds the skipped tests to `counts`. Any is an error in CI, and a notice elsewhere.
    pub(crate) fn outcome(self, counts: &mut Counts) -> Result<Outcome, String> {
        let told = self.take();
        for line in &told {
            println!("{line}");
        }
        let skipped = (told.iter().filter(|line| line.starts_with(SKIPPED))).count();
        counts.count_skipped(skipped);
        if skipped == 0 {
            return Ok(Outcome::Done);
        }
        self::skipped(&format!("tests that could not run here: {skipped}"))
    }

    /// One line a test, sorted; removes the file.
    fn take(self) -> Vec<String> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        // Without a skipped test there is no file.
        let _ = fs::remove_file(&self.0);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines.dedup_by(|a, b| subject(a) == subject(b));
        lines
    }
}

/// A test that did not run completely: `skipped: NAME: reason` or `in part: NAME: reason`. Names contain `::` but no `:
/// `.
fn subject(line: &str) -> Option<(&str, &str)> {
    let (what, rest) = line.split_once(": ")?;
    Some((what, rest.split(": ").next()?))
}

/// The beginnings of lines about tests that did not run completely.
const SKIPPED: &str = "skipped: ";

/// Returns the outcome of a step that left something out: an error in CI, and a notice elsewhere.
pub(crate) fn skipped(message: &str) -> Result<Outcome, String> {
    match in_ci() {
        true => Err(format!("{message} (CI is set)")),
        false => Ok(Outcome::Notice(message.to_owned())),
    }
}

fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed_over_programs() {
        let output = "running 2 tests\n\
            test a ... ok\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished\n\
            test result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured; 9 filtered out\n";
        let mut shown = Vec::new();
        let mut counts = Counts::read(output.as_bytes(), &mut shown);
        assert_eq!(shown, output.as_bytes());
        assert_eq!(counts.to_string(), "5 passed, 4 failed, 1 skipped");
        counts.count_skipped(1);
        assert_eq!(counts.to_string(), "4 passed, 4 failed, 2 skipped");
    }

    #[test]
    fn packages_are_named_before_the_tests_own_arguments() {
        let named = |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            names_packages(&words)
        };
        assert!(named("--package xtask") && named("-pxtask name"));
        assert!(!named("name -- -p"));
    }

    #[test]
    fn a_test_is_skipped_once() {
        let log = SkipLog(std::env::temp_dir().join(format!("skips-{}", std::process::id())));
        let lines = "skipped: a::b: no curl\nskipped: c: x\nskipped: a::b: no wrk: really\n\
            in part: c: y\n";
        fs::write(&log.0, lines).expect("a writable directory");
        let path = log.0.clone();
        let told = ["in part: c: y", "skipped: a::b: no curl", "skipped: c: x"];
        assert_eq!(log.take(), told);
        assert!(!path.exists());
    }
}
