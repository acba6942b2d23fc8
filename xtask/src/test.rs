//! `cargo xtask test`: every test, live, and the counts summed over all test programs.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread::available_parallelism;
use std::time::Duration;

use crate::command::{cargo, run};
use crate::counts::Counts;
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
    counts.print();
    steps.exit_code()
}

/// The same by each mechanism of readiness but the default, which takes longer.
pub(crate) fn mechanisms_task() -> ExitCode {
    let mut steps = Steps::default();
    steps.run("packages", packages::install_missing);
    steps.run("programs in Go", go_programs::install_missing);
    let mut counts = Counts::default();
    for (mechanism, tests) in MECHANISMS {
        steps.run(mechanism, || by_mechanism(mechanism, tests, &mut counts));
    }
    steps.summary();
    counts.print();
    steps.exit_code()
}

/// Compiles the tests, so that their run is not slowed down by what runs beside it.
pub(crate) fn compile() -> Result<Outcome, String> {
    let mut command = tests();
    command.args(["--workspace", "--no-run"]);
    run(command).map(|()| Outcome::Done)
}

/// The same without the surroundings, for `ci`.
pub(crate) fn step(arguments: &[String], counts: &mut Counts) -> Result<Outcome, String> {
    let log = SkipLog::new();
    let run = Run {
        arguments,
        environment: None,
        log: log.path(),
    };
    let mut result = run.count(counts);
    if arguments.is_empty() {
        for (mechanism, _) in MECHANISMS {
            let tests = "--test runtime";
            result = result.and(by_mechanism_to(log.path(), mechanism, tests, counts));
        }
    }
    let outcome = log.outcome(counts);
    result.and(outcome)
}

/// Runs `tests`, arguments for `cargo test`, by a mechanism of readiness.
fn by_mechanism(mechanism: &str, tests: &str, counts: &mut Counts) -> Result<Outcome, String> {
    let log = SkipLog::new();
    let result = by_mechanism_to(log.path(), mechanism, tests, counts);
    let outcome = log.outcome(counts);
    result.and(outcome)
}

fn by_mechanism_to(
    log: &Path,
    mechanism: &str,
    tests: &str,
    counts: &mut Counts,
) -> Result<(), String> {
    let arguments: Vec<String> = tests.split(' ').map(str::to_owned).collect();
    let run = Run {
        arguments: &arguments,
        environment: Some(("SOFTCLOCK_EVENTS", mechanism)),
        log,
    };
    let result = run.count(counts);
    result.map_err(|error| format!("by {mechanism}: {error}"))
}

/// A run of `cargo test`.
pub(crate) struct Run<'a> {
    pub(crate) arguments: &'a [String],
    /// A variable to set in its environment, with its value.
    pub(crate) environment: Option<(&'a str, &'a str)>,
    /// The file of a [`SkipLog`].
    pub(crate) log: &'a Path,
}

/// The variable by which the test programs learn how many tests to run at a time.
const THREADS: &str = "RUST_TEST_THREADS";

/// The value of [`THREADS`]: twice the processors, unless it is set, because most tests wait for most of their time.
fn threads() -> OsString {
    env::var_os(THREADS).unwrap_or_else(|| {
        let processors = available_parallelism().map_or(1, NonZero::get);
        (2 * processors).to_string().into()
    })
}

/// The most failed tests that are run again: more of them are no accident.
const MOST_REPEATED: usize = 3;

impl Run<'_> {
    /// Runs the tests, and adds their results to `counts`. Up to three failed tests are run again by themselves: if all
    /// of them pass then, the run succeeds, and the summary lists them as unstable.
    pub(crate) fn count(&self, counts: &mut Counts) -> Result<(), String> {
        let (mut found, success) = self.run(self.arguments)?;
        let failed = found.failed_tests().to_vec();
        let mut result = success;
        if result.is_err() {
            // A program that crashed, or did not compile, prints no result to sum up.
            found.count_failure();
        }
        if result.is_err() && found.all_failures_have_names() && failed.len() <= MOST_REPEATED {
            println!("\n--> again, alone: {}", failed.join(" "));
            let own = self
                .arguments
                .iter()
                .take_while(|argument| *argument != "--");
            let rest = ["--", "--exact", "--test-threads", "1"].map(str::to_owned);
            let again: Vec<String> = own.cloned().chain(rest).chain(failed).collect();
            let (second, success) = self.run(&again)?;
            if success.is_ok() && found.passed_alone(&second) {
                result = Ok(());
            }
        }
        counts.add(found);
        result
    }

    /// The counts of a run of `cargo test`, and whether it succeeded.
    fn run(&self, arguments: &[String]) -> Result<(Counts, Result<(), String>), String> {
        let scope = (!names_packages(arguments)).then_some("--workspace");
        let mut child = tests()
            .args(scope)
            .args(arguments)
            .envs(self.environment)
            .env("SOFTCLOCK_SKIP_LOG", self.log)
            .env(THREADS, threads())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start cargo test: {error}"))?;
        let stdout = child.stdout.take().ok_or("cargo test has no output")?;
        let output = Counts::read_in_background(stdout);
        let status = child
            .wait()
            .map_err(|error| format!("cannot wait for cargo test: {error}"))?;
        let success = match status.success() {
            true => Ok(()),
            false => Err(format!("cargo test ended with {status}")),
        };
        Ok((last_count(&output)?, success))
    }
}

/// The command for tests, without the packages.
fn tests() -> Command {
    cargo(["test", "--all-features", "--no-fail-fast"])
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

/// The file to which tests append a line when they skip themselves, or leave something out.
pub(crate) struct SkipLog(PathBuf);

impl SkipLog {
    pub(crate) fn new() -> Self {
        let name = format!("softclock-skipped-{}", std::process::id());
        Self(env::temp_dir().join(name))
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
    env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let log = SkipLog(env::temp_dir().join(format!("skips-{}", std::process::id())));
        let lines = "skipped: a::b: no curl\nskipped: c: x\nskipped: a::b: no wrk: really\n\
            in part: c: y\n";
        fs::write(&log.0, lines).expect("a writable directory");
        let path = log.0.clone();
        let told = ["in part: c: y", "skipped: a::b: no curl", "skipped: c: x"];
        assert_eq!(log.take(), told);
        assert!(!path.exists());
    }
}
