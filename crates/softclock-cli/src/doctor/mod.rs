//! `softclock doctor`: what this machine offers, what is missing, and what to do about it.
//!
//! Each group of checks has a file; [`report`] prints what they found. Nothing on the machine is changed.

mod capabilities;
mod check;
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

use check::Group;
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
