//! Runs scripts against softclock's TCP, in virtual time: see the documentation of the library.
//!
//! Prints a line for each script, and a sum. The exit status is 1 if any script fails, 2 if a file cannot be read.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use softclock_script::Verdict;
use softclock_script::run::run;
use softclock_script::stack_host::StackHost;

/// Runs scripts in packetdrill's language against softclock's TCP, in virtual time.
#[derive(Parser, Debug)]
#[command(version)]
struct Options {
    /// A name that holds for `#ifdef`, instead of STANDARD.
    #[arg(short = 'D', long = "define", value_name = "NAME")]
    defined: Vec<String>,
    /// Prints failures only.
    #[arg(short, long)]
    quiet: bool,
    /// The scripts.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut defined: Vec<&str> = options.defined.iter().map(String::as_str).collect();
    if defined.is_empty() {
        defined.push("STANDARD");
    }
    let (mut passed, mut failed, mut not_applicable) = (0u32, 0u32, 0u32);
    let mut is_unreadable = false;
    for file in &options.files {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{}: {error}", file.display());
                is_unreadable = true;
                continue;
            }
        };
        let verdict = run(&text, &defined, StackHost::new);
        match verdict {
            Verdict::Passed => passed += 1,
            Verdict::Failed(_) => failed += 1,
            Verdict::NotApplicable(_) => not_applicable += 1,
        }
        if !options.quiet || matches!(verdict, Verdict::Failed(_)) {
            println!("{}: {verdict}", file.display());
        }
    }
    println!("{passed} passed, {failed} failed, {not_applicable} not applicable");
    match (is_unreadable, failed) {
        (true, _) => ExitCode::from(2),
        (false, 0) => ExitCode::SUCCESS,
        (false, _) => ExitCode::FAILURE,
    }
}
