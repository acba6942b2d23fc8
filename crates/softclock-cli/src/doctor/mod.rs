//! `softclock doctor`: checks the machine, and advises how to fix problems.
//!
//! Each group of checks has a file; [`report`] prints the findings. No check changes the machine.

mod capabilities;
mod check;
mod interrupts;
mod kernel_config;
mod limits;
mod measure;
mod proc;
mod quota;
mod report;
mod server;
mod timers;
mod tools;

use std::process::ExitCode;

use clap::Args;

use crate::logging;
use crate::stdout;
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
Each line reads: ok, note (it works but could work better) or missing. `softclock serve` cannot run without the items \
marked *; the exit status is 0 if all of them are present, else 1. Takes about half a second, mostly for measurements. \
NO_COLOR turns colours off.
";

/// Runs all checks and prints them. The exit code is a failure if `serve` cannot run.
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
    let shown = stdout::print(&text);
    if let Err(error) = &shown {
        logging::complain(&stdout::not_written(error));
    }
    if shown.is_ok() && report.can_serve() {
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
        group("interrupts", interrupts::checks()),
        group("capabilities", capabilities::checks()),
        group("packaging", server::packaging()),
    ]
}
