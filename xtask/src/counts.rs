//! The results that test programs print, summed up.

use std::fmt;
use std::io::{self, Read, Write};
use std::process::ChildStdout;
use std::sync::mpsc;

/// Tests passed, failed and skipped.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Programs that began, and those that printed a result.
    begun: usize,
    ended: usize,
    failed_tests: Vec<String>,
    /// Tests that failed beside others, and passed alone.
    unstable: Vec<String>,
}

impl Counts {
    pub(crate) fn read_in_background(stdout: ChildStdout) -> mpsc::Receiver<Counts> {
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

    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …` or `test NAME ... FAILED`; ignores
    /// others.
    fn add_line(&mut self, line: &str) {
        if let Some((_, result)) = line.split_once("test result: ") {
            self.ended += 1;
            self.add_result(result);
        } else if line.starts_with("running ") && line.trim_end_matches('s').ends_with(" test") {
            self.begun += 1;
        } else if let Some(name) = failed_test(line) {
            self.failed_tests.push(name.to_owned());
        }
    }

    fn add_result(&mut self, result: &str) {
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

    /// Adds the results of another run.
    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.begun += other.begun;
        self.ended += other.ended;
        self.failed_tests.extend(other.failed_tests);
        self.unstable.extend(other.unstable);
    }

    /// A test that skips itself returns early, so libtest counted it as passed.
    pub(crate) fn count_skipped(&mut self, skipped: usize) {
        self.passed = self.passed.saturating_sub(skipped);
        self.skipped += skipped;
    }

    /// Counts a failure of a run in which no test failed.
    pub(crate) fn count_failure(&mut self) {
        self.failed = self.failed.max(1);
    }

    /// The names of the tests that failed.
    pub(crate) fn failed_tests(&self) -> &[String] {
        &self.failed_tests
    }

    /// Whether tests failed and nothing else did, such as a program that crashed.
    pub(crate) fn all_failures_have_names(&self) -> bool {
        self.begun == self.ended
            && !self.failed_tests.is_empty()
            && self.failed == self.failed_tests.len()
    }

    /// Takes the tests that failed for unstable if `again`, a run of them alone, had as many that passed.
    pub(crate) fn passed_alone(&mut self, again: &Counts) -> bool {
        if again.passed < self.failed || again.failed > 0 || again.begun != again.ended {
            return false;
        }
        self.passed += std::mem::take(&mut self.failed);
        self.unstable.append(&mut self.failed_tests);
        true
    }

    /// Prints the tests that failed or were unstable, then the numbers.
    pub(crate) fn print(&self) {
        for name in &self.failed_tests {
            println!("failed: {name}");
        }
        for name in &self.unstable {
            println!("unstable: {name} failed beside others and passed alone");
        }
        println!("{self}");
    }
}

/// The name in `test NAME ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.trim_end_matches(" - should panic"))
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            passed,
            failed,
            skipped,
            ..
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> Counts {
        Counts::read(output.as_bytes(), io::sink())
    }

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

    const ONE_FAILED: &str = "running 2 tests\ntest a ... ok\ntest b::c ... FAILED\n\
        test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";

    #[test]
    fn a_test_that_passes_alone_is_unstable_and_no_failure() {
        let mut counts = read(ONE_FAILED);
        assert!(counts.all_failures_have_names());
        assert_eq!(counts.failed_tests(), ["b::c"]);
        assert!(!counts.passed_alone(&read(ONE_FAILED)));
        let nothing = "running 0 tests\ntest result: ok. 0 passed; 0 failed; 0 ignored\n";
        assert!(!counts.passed_alone(&read(nothing)));
        assert_eq!(counts.to_string(), "1 passed, 1 failed, 0 skipped");
        let alone =
            "running 1 test\ntest b::c ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
        assert!(counts.passed_alone(&read(alone)));
        assert_eq!(counts.to_string(), "2 passed, 0 failed, 0 skipped");
        assert_eq!((counts.failed_tests.len(), counts.unstable.len()), (0, 1));
    }

    #[test]
    fn a_program_that_crashed_is_no_unstable_test() {
        let crashed = format!("{ONE_FAILED}running 3 tests\ntest d ... ok\n");
        assert!(!read(&crashed).all_failures_have_names());
        let mut nothing_ran = Counts::default();
        assert!(!nothing_ran.all_failures_have_names());
        nothing_ran.count_failure();
        assert_eq!(nothing_ran.to_string(), "0 passed, 1 failed, 0 skipped");
    }
}
