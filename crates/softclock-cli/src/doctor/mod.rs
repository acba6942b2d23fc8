//! `softclock doctor`: what this machine offers, what is missing, and what to do about it.
//!
//! Each group of checks has a file; [`report`] prints what they found. Nothing on the machine is changed.

mod capabilities;
mod kernel_config;
mod limits;
mod measure;
mod proc;
mod quota;
mod report;
mod server;
mod timers;
mod tools;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use report::{Colours, Report};

/// The options of `softclock doctor`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct DoctorOptions {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const NOTES: &str = "\
Each line reads: ok, note (it works, and could work better) or missing. A line marked * is what `softclock serve` \
cannot do without; the exit status is 0 if nothing of that is missing, else 1. Takes about half a second, most of it \
to measure. NO_COLOR turns colours off.
";

/// What was found out about one thing.
#[derive(Clone, Debug)]
struct Check {
    name: &'static str,
    status: Status,
    /// Whether `serve` cannot do without.
    needed: bool,
    found: String,
    /// The command or setting that would help.
    advice: Option<String>,
}

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    /// It works, and could work better; or it is not known whether it does.
    Note,
    Missing,
}

/// Checks that belong together.
struct Group {
    name: &'static str,
    checks: Vec<Check>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Ok,
            needed: false,
            found: found.into(),
            advice: None,
        }
    }

    fn note(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            status: Status::Note,
            ..Self::ok(name, found)
        }
    }

    fn missing(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            status: Status::Missing,
            ..Self::ok(name, found)
        }
    }

    /// A probe's answer: `yes` if it worked, else `no` and the error.
    fn probed(name: &'static str, result: io::Result<()>, yes: &str, no: &str) -> Self {
        match result {
            Ok(()) => Self::ok(name, yes),
            Err(error) => Self::missing(name, format!("{no}: {}", proc::reason(&error))),
        }
    }

    fn needed(self) -> Self {
        Self {
            needed: true,
            ..self
        }
    }

    /// What to do, told only where something is to be done.
    fn advice(self, advice: impl Into<String>) -> Self {
        let advice = (self.status != Status::Ok).then(|| advice.into());
        Self { advice, ..self }
    }

    /// A feature that nothing depends on yet is noted, not missed.
    fn optional(self) -> Self {
        let status = match self.status {
            Status::Missing => Status::Note,
            other => other,
        };
        Self { status, ..self }
    }
}

/// Examines, prints, and tells by the exit code whether `serve` can run.
pub(crate) fn run(options: &DoctorOptions) -> ExitCode {
    let report = Report {
        system: proc::system(),
        groups: examine(),
    };
    let text = if options.json {
        report.json()
    } else {
        report.text(Colours::of_stdout())
    };
    // Nobody may be reading; the exit code tells all the same.
    let _ = io::stdout().write_all(text.as_bytes());
    if report.can_serve() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn examine() -> Vec<Group> {
    let group = |name, checks| Group { name, checks };
    vec![
        group("timers", timers::checks()),
        group("measured", measure::checks()),
        group("server", server::checks()),
        group("event delivery", tools::event_delivery()),
        group("packets", tools::checks()),
        group("capabilities", capabilities::checks()),
        group("packaging", server::packaging()),
    ]
}
