//! Named steps, each with its time, and one summary at the end.

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The result of a step that did not fail.
pub(crate) enum Outcome {
    Done,
    /// Done, or left out, with something the reader should know.
    Notice(String),
}

/// The steps so far.
#[derive(Default)]
pub(crate) struct Steps {
    results: Vec<(&'static str, Duration, Result<Outcome, String>)>,
}

impl Steps {
    /// Runs `step`. A failure does not stop the steps after it: one run tells all that is wrong.
    pub(crate) fn run(
        &mut self,
        name: &'static str,
        step: impl FnOnce() -> Result<Outcome, String>,
    ) {
        println!("\n--> {name}");
        let start = Instant::now();
        let result = step();
        if let Err(reason) = &result {
            eprintln!("{reason}");
        }
        self.results.push((name, start.elapsed(), result));
    }

    /// Prints every step with its time and outcome.
    pub(crate) fn summary(&self) {
        let width = self.results.iter().map(|(name, ..)| name.len()).max();
        let width = width.unwrap_or(0);
        println!();
        for (name, time, result) in &self.results {
            let seconds = time.as_secs_f64();
            let outcome = match result {
                Ok(Outcome::Done) => "ok".to_owned(),
                Ok(Outcome::Notice(notice)) => format!("ok: {notice}"),
                Err(reason) => format!("FAILED: {}", reason.lines().next().unwrap_or_default()),
            };
            println!("{name:width$}  {seconds:>6.1} s  {outcome}");
        }
    }

    /// The status that tells whether any step failed.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.results.iter().any(|(.., result)| result.is_err()) {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}
